package metrics

import "assay/rules/internal/ledger"

// tokenWeighted is the inter-token latency with the same weight for each gap: all
// time between first and last tokens, divided by all gaps. Beside it Row.ITLMS has
// the same weight for each request. The two differ as soon as long answers are
// faster or slower than short ones, and tools disagree which of them "ITL" is.
type tokenWeighted struct {
	ns   float64
	gaps int64
}

// add counts the gaps of an entry that completed; one without an inter-token
// latency has none.
func (t *tokenWeighted) add(e *ledger.Entry) {
	if e.Client.ITLNS == nil || e.Tokens.Completion == nil {
		return
	}
	gaps := *e.Tokens.Completion - 1
	t.ns += *e.Client.ITLNS * float64(gaps)
	t.gaps += gaps
}

// ms is the mean in ms, nil of no gaps.
func (t *tokenWeighted) ms() *float64 {
	if t.gaps == 0 {
		return nil
	}
	ms := t.ns / float64(t.gaps) / 1e6
	return &ms
}

// interChunk is the mean gap between the content chunks of a stream in ms, nil of
// fewer than two. A chunk may hold many tokens, so it is not the time of a token.
func interChunk(c *ledger.Client) *float64 {
	if c.TTFTNS == nil || c.LatencyNS == nil || c.Chunks < 2 {
		return nil
	}
	ms := toMS(*c.LatencyNS-*c.TTFTNS) / float64(c.Chunks-1)
	return &ms
}
