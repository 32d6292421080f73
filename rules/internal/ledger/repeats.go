package ledger

import (
	"slices"
	"time"
)

// Limits of what a repeated prompt may gain. A cache gains far more: AIPerf
// 0.13.0's own repeats against llama.cpp had their first token in 17 ms instead
// of 460, and 35 instead of 800.
const (
	minRepeats = 3
	leastGain  = 5 * time.Millisecond // below that two times are alike
)

// repeatedPrompts finds prompts that were sent again, in warm-up or
// measurement, and whether that made them faster.
func (b *builder) repeatedPrompts(entries []Entry) {
	seen := map[string]*Entry{}
	var gains gains
	for i := range entries {
		e := &entries[i]
		if e.Phase == Probe || e.Client == nil || e.Client.PromptSHA256 == "" {
			continue
		}
		before := seen[e.Client.PromptSHA256]
		if before == nil {
			seen[e.Client.PromptSHA256] = e
			if e.Phase == Measured {
				gains.first(e)
			}
			continue
		}
		b.found.add(RepeatedPrompt, Warning, e.RequestID, "%s request with the prompt of %s (%s)", e.Phase, before.RequestID, before.Phase)
		if e.Phase == Measured {
			gains.repeat(before, e)
		}
	}
	if !gains.much() {
		return
	}
	severity := Warning
	if b.in.PromptCache {
		severity = Info // it was declared
	}
	for _, r := range gains.repeats {
		b.found.add(FasterRepeats, severity, r.id, "first token after %s, of the same prompt before after %s", ms(r.again), ms(r.before))
	}
}

// gains compares times to the first token: a repeat's with that of its own
// prompt, which has the same length, and all with the first sendings of the
// measured phase, since those of a warm-up may be slow for being the first.
type gains struct {
	repeats []repeat
	firsts  []int64
}

type repeat struct {
	id            string
	before, again int64
}

// timed reports whether e has a time to its first token that is its own.
func timed(e *Entry) bool {
	return e.Class == Completed && e.Client.TTFTNS != nil && e.Client.Incremental != Buffered
}

func (g *gains) first(e *Entry) {
	if timed(e) {
		g.firsts = append(g.firsts, *e.Client.TTFTNS)
	}
}

func (g *gains) repeat(before, again *Entry) {
	if timed(before) && timed(again) {
		g.repeats = append(g.repeats, repeat{again.RequestID, *before.Client.TTFTNS, *again.Client.TTFTNS})
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
