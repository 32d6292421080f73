package ledger

import (
	"slices"
	"strings"
	"time"
)

// Limits of what a repeated prompt may gain. A cache gains far more: AIPerf
// 0.13.0's own repeats against llama.cpp had their first token in 17 ms instead
// of 460, and 35 instead of 800.
const (
	minRepeats = 3
	leastGain  = 5 * time.Millisecond // below that two times are alike
)

// repeated reports a prompt that was sent before, in warm-up or measurement.
func (b *builder) repeated(d *draft, row *row) {
	if d.Phase == Probe || d.prompt == 0 {
		return
	}
	before := &b.firstWith[d.prompt-1]
	if *before == nil {
		*before = row
		b.gains.first(d)
		return
	}
	b.found.add(RepeatedPrompt, Warning, d.RequestID, "%s request with the prompt of %s (%s)", d.Phase, b.ids.text((*before).id), Phases[(*before).phase])
	b.gains.repeat(d)
}

// fasterRepeats reports repeats that a cache must have answered.
func (b *builder) fasterRepeats() {
	if !b.gains.much() {
		return
	}
	severity := Warning
	if b.in.PromptCache {
		severity = Info // it was declared
	}
	for _, r := range b.gains.repeats {
		b.found.add(FasterRepeats, severity, r.id, "first token after %s, of the same prompt before after %s", ms(r.again), ms(r.before))
	}
}

// gains compares times to the first token: a repeat's with that of its own
// prompt, which has the same length, and all with the first sendings of the
// measured phase, since those of a warm-up may be slow for being the first.
type gains struct {
	ttft    []int64 // of the first sending, by prompt; 0 if it has none
	repeats []repeat
	firsts  []int64 // of the measured ones
}

type repeat struct {
	id            string
	before, again int64
}

// ownTTFT is a time to the first token that is the request's own, 0 if there is none.
func ownTTFT(d *draft) int64 {
	if d.Class != Completed || d.Client.Incremental == Buffered {
		return 0
	}
	return value(d.Client.TTFTNS)
}

func (g *gains) first(d *draft) {
	if g.ttft == nil {
		return // nothing was repeated
	}
	ttft := ownTTFT(d)
	g.ttft[d.prompt-1] = ttft
	if d.Phase == Measured && ttft > 0 {
		g.firsts = append(g.firsts, ttft)
	}
}

func (g *gains) repeat(d *draft) {
	before, again := g.ttft[d.prompt-1], ownTTFT(d)
	if d.Phase == Measured && before > 0 && again > 0 {
		g.repeats = append(g.repeats, repeat{strings.Clone(d.RequestID), before, again})
	}
}

// much: of three repeats or more, the median takes less than half the time of
// the same prompt before and, if there are any, of the measured first sendings.
func (g *gains) much() bool {
	if len(g.repeats) < minRepeats {
		return false
	}
	var again, saved, doubled []int64
	for _, r := range g.repeats {
		again = append(again, r.again)
		saved = append(saved, r.before-r.again)
		doubled = append(doubled, r.before-2*r.again)
	}
	return median(doubled) > 0 && median(saved) > int64(leastGain) &&
		(len(g.firsts) == 0 || 2*median(again) < median(g.firsts))
}

func median(v []int64) int64 {
	slices.Sort(v)
	return v[len(v)/2]
}
