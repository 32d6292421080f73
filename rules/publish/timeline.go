package publish

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"assay/rules/internal/ledger"
)

// The drawing of a time line, in px.
const (
	lineWidth, lineLeft, lineRight, lineTop = 1000, 40, 980, 18
	barsHeight                              = 480 // at most, of all bars together
	binsHeight                              = 80  // above and below the zero line
	// barsMost is the most requests that get a bar each; above it they are
	// counted in binsN intervals of time.
	barsMost = 300
	binsN    = 94 // 10 px each
)

// letters stand for the classes where colour alone would not do.
var letters = map[ledger.Class]string{
	ledger.NotSent: "N", ledger.Incomplete: "U", ledger.Cancelled: "C", ledger.Rejected: "R", ledger.Invalid: "I",
	ledger.Failed: "F", ledger.Empty: "E", ledger.PromptTruncated: "T",
}

// timeline shows the requests of one sample by the client's clock, from its
// first dispatch on.
type timeline struct {
	Absent string // why there is nothing to draw
	Height px     // of the drawing
	Bottom px     // where the axis is
	X      []tick
	Shades []shade
	Bars   []bar
	Bins   []bin
	Y      []tick // of the bins
	Legend []classCount
	Notes  []string
}

// shade is the time of a phase that is not measured.
type shade struct {
	Phase    ledger.Phase
	X, Width px
}

// bar is one request, from dispatch to the last content or, without content, to
// the last thing that arrived. The time before the first content is drawn pale.
type bar struct {
	Class           ledger.Class
	Letter          string
	X, Y, Height    px
	Wait, Rest      px // widths
	RestX           px
	LetterX, Middle px
	Title           string
}

// bin counts the requests that were dispatched in one interval of time:
// completed ones above the zero line, others below.
type bin struct {
	Class               ledger.Class
	X, Y, Width, Height px
	Title               string
}

type classCount struct {
	Class  ledger.Class
	Letter string
	N      int
}

// placed is an entry with its place in time, in s.
type placed struct {
	*ledger.Entry
	start, first, end float64
	streamed          bool
}

func newTimeline(entries []ledger.Entry) timeline {
	var t timeline
	var list []placed
	counts := map[ledger.Class]int{}
	for i := range entries {
		counts[entries[i].Class]++
		if p, ok := place(&entries[i]); ok {
			list = append(list, p)
		}
	}
	for _, class := range ledger.Classes {
		if n := counts[class]; n > 0 {
			t.Legend = append(t.Legend, classCount{class, letters[class], n})
		}
	}
	if missing := len(entries) - len(list); missing > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%s without a dispatch in the client's records cannot be drawn.", count(missing, "request")))
	}
	if len(list) == 0 {
		t.Absent = "no request has a place in time"
		return t
	}
	slices.SortStableFunc(list, func(a, b placed) int { return cmp.Compare(a.start, b.start) })
	x := axis{list[0].start, list[0].end, lineLeft, lineRight}
	for _, p := range list {
		x.hi = max(x.hi, p.end)
	}
	t.X = x.ticks(10)
	t.shade(list, x)
	if len(list) <= barsMost {
		t.drawBars(list, x)
	} else {
		t.drawBins(list, x)
	}
	t.Height = t.Bottom + 36
	return t
}

func place(e *ledger.Entry) (placed, bool) {
	c := e.Client
	if c == nil || c.StartNS == nil {
		return placed{}, false
	}
	p := placed{Entry: e, start: seconds(*c.StartNS)}
	p.first, p.end = p.start, p.start
	switch {
	case c.LatencyNS != nil:
		p.end += seconds(*c.LatencyNS)
	case c.EndNS != nil:
		p.end = seconds(*c.EndNS)
	}
	p.end = max(p.end, p.start)
	if c.TTFTNS != nil {
		p.first, p.streamed = min(p.start+seconds(*c.TTFTNS), p.end), true
	}
	return p, true
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func (t *timeline) shade(list []placed, x axis) {
	for _, phase := range ledger.Phases {
		if phase == ledger.Measured {
			continue
		}
		from, to := math.Inf(1), math.Inf(-1)
		for _, p := range list {
			if p.Phase == phase {
				from, to = min(from, p.start), max(to, p.end)
			}
		}
		if from <= to {
			t.Shades = append(t.Shades, shade{phase, x.at(from), x.at(to) - x.at(from)})
		}
	}
}

func (t *timeline) drawBars(list []placed, x axis) {
	pitch := max(px(barsHeight)/px(len(list)), 1)
	pitch = min(pitch, 14)
	for i, p := range list {
		b := bar{Class: p.Class, Letter: letters[p.Class], Title: hover(p),
			X: x.at(p.start), Y: lineTop + px(i)*pitch, Height: pitch * .8}
		end := max(x.at(p.end), b.X+2) // a refusal is short, but it is there
		first := b.X
		if p.streamed {
			first = min(x.at(p.first), end)
		}
		b.Wait, b.RestX, b.Rest = first-b.X, first, end-first
		b.LetterX, b.Middle = end+3, b.Y+b.Height/2+3
		t.Bars = append(t.Bars, b)
	}
	t.Bottom = lineTop + px(len(list))*pitch + 2
}

func hover(p placed) string {
	parts := []string{p.RequestID, words(string(p.Class))}
	if p.RequestID == "" {
		parts[0] = "no request id"
	}
	if p.Reason != "" {
		parts[1] += " (" + words(string(p.Reason)) + ")"
	}
	parts = append(parts, words(string(p.Phase)), fmt.Sprintf("dispatched at %.3f s", p.start))
	if p.Unplanned {
		parts = append(parts, "beyond the plan")
	}
	if p.streamed {
		parts = append(parts, fmt.Sprintf("first content after %.1f ms", 1e3*(p.first-p.start)))
	}
	what := "last arrival"
	if p.Client.LatencyNS != nil {
		what = "last content"
	}
	parts = append(parts, fmt.Sprintf("%s after %.1f ms", what, 1e3*(p.end-p.start)))
	if p.Server != nil && p.Server.TaskCallNS != nil {
		parts = append(parts, fmt.Sprintf("task call %.1f ms", float64(*p.Server.TaskCallNS)/1e6))
	}
	return strings.Join(parts, ", ")
}

func (t *timeline) drawBins(list []placed, x axis) {
	counts := make([]map[ledger.Class]int, binsN)
	for i := range counts {
		counts[i] = map[ledger.Class]int{}
	}
	width := (x.hi - x.lo) / binsN
	for _, p := range list {
		i := 0
		if width > 0 {
			i = min(int((p.start-x.lo)/width), binsN-1)
		}
		counts[i][p.Class]++
	}
	most := 0
	for _, c := range counts {
		others := -c[ledger.Completed]
		for _, n := range c {
			others += n
		}
		most = max(most, c[ledger.Completed], others)
	}
	const zero = lineTop + binsHeight
	scale := axis{0, float64(most), 0, binsHeight}
	t.Y = []tick{{zero - binsHeight, fmt.Sprint(most)}, {zero, "0"}, {zero + binsHeight, fmt.Sprint(most)}}
	for i, c := range counts {
		from := x.lo + float64(i)*width
		below := px(zero)
		for _, class := range ledger.Classes {
			n := c[class]
			if n == 0 {
				continue
			}
			b := bin{Class: class, X: x.at(from), Width: px(lineRight-lineLeft)/binsN - 1, Height: scale.at(float64(n)),
				Title: fmt.Sprintf("%s %s, dispatched from %.3f to %.3f s", count(n, "request"), words(string(class)), from, from+width)}
			if class == ledger.Completed {
				b.Y = zero - b.Height
			} else {
				b.Y = below
				below += b.Height
			}
			t.Bins = append(t.Bins, b)
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("%d requests are too many for a bar each (more than %d): they are counted by their dispatch in %d intervals of %.3f s, completed above the line, all others below. Single requests are in the ledger.",
		len(list), barsMost, binsN, width))
	t.Bottom = zero + binsHeight + 2
}
