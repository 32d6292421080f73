package ledger

import (
	"math"
	"strings"
	"time"

	"assay/rules/internal/aiperf"
)

// seen is what detectors need of a client's record and no entry holds.
type seen struct {
	lag             *int64 // from when the scheduler let it go to its start, by one wall clock
	text, reasoning bool
}

func seenIn(r *aiperf.Request) seen {
	s := seen{text: r.Response.Text != "", reasoning: r.Response.Reasoning != ""}
	// A cancelled request has its start stamped again.
	if r.CreditWallNS != nil && !r.Cancelled {
		lag := r.StartWallNS - *r.CreditWallNS
		s.lag = &lag
	}
	return s
}

// watch is what detectors gather while the requests pass in the order of the
// ledger, and the server's records before them.
type watch struct {
	answered *int64 // the last arrival of any earlier answer that this server gave, as an offset

	// Of the measured requests.
	dispatched          int
	firstStart          int64 // offset
	lastStart           int64
	firstWall, lastWall int64 // of dispatches and ends
	fastest, slowest    int64 // latency of what AIPerf takes for a success; 0 if there is none
	late                []late

	// The server's wall clock is ahead of the client's by atLeast to atMost,
	// since it receives between dispatch and end.
	placed          int
	atLeast, atMost int64
	low, high       string // whose
	turns           map[string]int64

	boot string // of the first of the server's records
}

// late is a request that was dispatched later than MedianLag.
type late struct {
	id  string
	lag int64
}

// Limits of the dispatch lag, from the moment the scheduler lets a request go.
// They are those of inference-perf's advice; AIPerf itself warns from 500 ms.
const (
	MedianLag = 10 * time.Millisecond
	P99Lag    = 100 * time.Millisecond
)

// detect takes a judged request into account, in the order of the ledger.
func (b *builder) detect(d *draft) {
	b.reasoning(d)
	b.cacheAcross(d)
	b.closedConnection(d)
	b.place(d)
	if what := b.in.Conditions.outside(d.Client.StartWallNS); what != "" {
		b.found.add(WrongRun, Blocking, d.RequestID, "the client sent it %s", what)
	}
	if d.Phase == Measured {
		b.pace(d)
	}
}

// pace keeps what is needed of the measured dispatches.
func (b *builder) pace(d *draft) {
	w, c := &b.watch, d.Client
	if start := c.StartNS; start != nil {
		if w.dispatched == 0 {
			w.firstStart, w.firstWall = *start, c.StartWallNS
		}
		w.dispatched++
		w.lastStart = max(w.lastStart, *start)
		end := c.StartWallNS
		if c.EndNS != nil {
			end += *c.EndNS - *start
		}
		w.lastWall = max(w.lastWall, end)
	}
	if l := c.LatencyNS; l != nil && c.AIPerfSuccess {
		if w.slowest == 0 || *l < w.fastest {
			w.fastest = *l
		}
		w.slowest = max(w.slowest, *l)
	}
	if lag := value(d.seen.lag); lag > int64(MedianLag) {
		w.late = append(w.late, late{strings.Clone(d.RequestID), lag})
	}
}

// lags judges the median and the 99th percentile: over half, or over a
// hundredth, of the requests are beyond their limits.
func (b *builder) lags() {
	w := &b.watch
	beyond := 0
	for _, l := range w.late {
		if l.lag > int64(P99Lag) {
			beyond++
		}
	}
	limit := MedianLag
	switch {
	case 2*len(w.late) > w.dispatched:
	case 100*beyond > w.dispatched:
		limit = P99Lag
	default:
		return
	}
	for _, l := range w.late {
		if l.lag > int64(limit) {
			b.found.add(DispatchLag, Warning, l.id, "%s after the scheduler had let it go", ms(l.lag))
		}
	}
}

// reasoning looks at answers that think before they speak.
func (b *builder) reasoning(d *draft) {
	if d.Class != Completed {
		return
	}
	if d.seen.reasoning && !d.seen.text && !d.tools {
		b.found.add(ReasoningOnly, Warning, d.RequestID, "%d content chunks, all of reasoning; finish reason %q", d.Client.Chunks, d.client.FinishReason)
	}
	of, all := d.Tokens.Reasoning, value(d.Tokens.Completion)
	switch {
	case d.seen.reasoning && of == nil:
		b.found.add(ReasoningTokens, Info, d.RequestID, "reasoning arrived; the server does not say how many of the %d completion tokens it took", all)
	case value(of) > all:
		b.found.add(ReasoningTokens, Warning, d.RequestID, "%d reasoning tokens of %d completion tokens: the server does not count them among these", *of, all)
	case value(of) > 0 && !d.seen.reasoning:
		b.found.add(ReasoningTokens, Warning, d.RequestID, "%d of %d completion tokens are of reasoning that was not sent", *of, all)
	}
}

// cacheAcross: a declared cache may serve a conversation its own earlier turns.
// What is cached beyond these came from others. Below half of the prompt that is
// the chat template and the system's part, which all share; and so is what the
// server counts beyond the client's estimate, which is of the text alone.
func (b *builder) cacheAcross(d *draft) {
	if !b.in.PromptCache {
		return // any cached token is a finding of its own
	}
	own := b.watch.turns[d.CorrelationID]
	cached, prompt := value(d.Tokens.Cached), value(d.Tokens.Prompt)
	template := int64(0)
	if text := value(d.Tokens.ClientPromptEstimate); text > 0 {
		template = prompt - text
	}
	if foreign := cached - own; d.Phase == Measured && 2*foreign > prompt && foreign > template {
		b.found.add(CacheAcross, Warning, d.RequestID, "%d of %d prompt tokens were cached, %d came with earlier turns of the conversation", cached, prompt, own)
	}
	if d.CorrelationID == "" {
		return
	}
	if b.watch.turns == nil {
		b.watch.turns = map[string]int64{}
	}
	b.watch.turns[d.CorrelationID] = max(own, prompt+value(d.Tokens.Completion))
}

// closedConnection finds the keep-alive race: the server closes an idle
// connection while the client sends on it. The request never got there, so the
// server has no record, and there was an answer before, so there was a
// connection to use again.
func (b *builder) closedConnection(d *draft) {
	c, w := d.Client, &b.watch
	if c.StartNS == nil {
		return
	}
	if d.Reason == Transport && c.Status == nil && d.Join == ClientOnly && w.answered != nil && *w.answered <= *c.StartNS && d.facts.closed {
		b.found.add(ConnectionClosed, Warning, d.RequestID, "%s, dispatched %s after the answer before it had ended", c.ErrorType, ms(*c.StartNS-*w.answered))
	}
	if c.Status != nil && d.Join == Matched && c.EndNS != nil && (w.answered == nil || *c.EndNS > *w.answered) {
		end := *c.EndNS
		w.answered = &end
	}
}

// place narrows the offset of the server's wall clock.
func (b *builder) place(d *draft) {
	if d.received == 0 || d.HiddenRetries > 0 || !endedWell(d.Class) || d.perf.start == nil || d.perf.end == nil {
		return
	}
	w, received := &b.watch, d.received
	start := d.Client.StartWallNS
	end := start + *d.perf.end - *d.perf.start
	if w.placed == 0 {
		w.atLeast, w.atMost = math.MinInt64, math.MaxInt64
	}
	w.placed++
	if v := received - end; v > w.atLeast {
		w.atLeast, w.low = v, d.RequestID
	}
	if v := received - start; v < w.atMost {
		w.atMost, w.high = v, d.RequestID
	}
}

// wallClocks: one offset must do for the whole run, and none is needed where
// both sides read the same machine's clock.
func (b *builder) wallClocks() {
	w, slack := &b.watch, int64(b.in.Tolerance)
	switch {
	case w.placed == 0:
	case w.atLeast > w.atMost+slack:
		b.found.add(WallClocksDiffer, Warning, w.low, "by this request the server's clock is at least %s ahead, by %s at most %s", ms(w.atLeast), w.high, ms(w.atMost))
	case b.in.Conditions.BootID != "" && (w.atLeast > slack || w.atMost < -slack):
		b.found.add(WallClocksDiffer, Warning, w.low, "the server's clock is %s to %s ahead on one machine", ms(w.atLeast), ms(w.atMost))
	}
}
