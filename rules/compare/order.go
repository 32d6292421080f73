package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Order is how the samples of two sides lay in time. Samples that take turns,
// best A B B A, see the same machine: what changes steadily meanwhile falls on both
// sides alike.
type Order struct {
	// Sequence names the side of each sample by its start, such as "A B B A".
	Sequence string `json:"sequence"`
	// Interleaved: of every two samples in a row, from the first on, one is of each
	// side, and there are two of each or more.
	Interleaved bool `json:"interleaved"`
	// LaterSeconds is by how much b was measured later than a, from the middle of
	// its samples to that of a's, on average; negative if earlier.
	LaterSeconds float64 `json:"b_later_seconds"`
}

// order reads the times of the samples; nil if one has none.
func order(a, b side) *Order {
	type stamp struct {
		side  string
		start time.Time
	}
	var stamps []stamp
	var middle [2]float64 // s, from the first sample of a
	for i, s := range []side{a, b} {
		for _, sample := range s.joined.Samples {
			f := sample.Facts
			if f.Started.IsZero() || f.Finished.IsZero() {
				return nil
			}
			stamps = append(stamps, stamp{"AB"[i : i+1], f.Started})
			half := f.Finished.Sub(f.Started) / 2
			middle[i] += f.Started.Add(half).Sub(a.joined.Samples[0].Facts.Started).Seconds() / float64(len(s.joined.Samples))
		}
	}
	slices.SortStableFunc(stamps, func(x, y stamp) int { return x.start.Compare(y.start) })
	o := &Order{LaterSeconds: middle[1] - middle[0], Interleaved: len(stamps) >= 4 && len(stamps)%2 == 0}
	names := make([]string, len(stamps))
	for i, s := range stamps {
		names[i] = s.side
		if i%2 == 1 && s.side == stamps[i-1].side {
			o.Interleaved = false
		}
	}
	o.Sequence = strings.Join(names, " ")
	return o
}

// later says when b was measured beside a.
func (o *Order) later() string {
	word, s := "later", o.LaterSeconds
	if s < 0 {
		word, s = "earlier", -s
	}
	return fmt.Sprintf("on average %s %s", time.Duration(s*float64(time.Second)).Round(100*time.Millisecond), word)
}
