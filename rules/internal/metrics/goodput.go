package metrics

import "assay/rules/internal/ledger"

// Limits are what a good request must keep, in ms; nil sets no limit.
type Limits struct {
	LatencyMS *float64 `json:"latency_ms"`
	TTFTMS    *float64 `json:"ttft_ms"`
	ITLMS     *float64 `json:"itl_ms"` // of the request's mean gap between tokens
}

// Good reports whether a request completed within every limit. A duration that has
// a limit and is not known keeps it not; an answer of one token has no gap to
// limit.
func (l Limits) Good(e *ledger.Entry) bool {
	if e.Class != ledger.Completed {
		return false
	}
	within := func(ns, limitMS *float64) bool { return limitMS == nil || ns != nil && *ns/1e6 <= *limitMS }
	oneToken := e.Tokens.Completion != nil && *e.Tokens.Completion == 1
	return within(float(e.Client.LatencyNS), l.LatencyMS) && within(float(e.Client.TTFTNS), l.TTFTMS) &&
		(oneToken || within(e.Client.ITLNS, l.ITLMS))
}

// Goodput is the share of the offered requests that were good. Offered are all
// measured requests of the plan, so one that was refused, failed, came back empty
// or was never sent counts against the server and not out of the sum.
type Goodput struct {
	Limits Limits `json:"limits"`
	Share
	PerS *float64 `json:"per_s"` // good requests / window
	// Absent says why there is no goodput although there are limits.
	Absent string `json:"absent,omitempty"`
}

// goodput is nil without limits.
func (b *Builder) goodput(r *Row) *Goodput {
	if b.Limits == nil {
		return nil
	}
	g := &Goodput{Limits: *b.Limits}
	for _, limited := range []struct {
		limit  *float64
		name   string
		absent string
	}{{g.Limits.TTFTMS, "time to first token", r.TTFTMS.Absent}, {g.Limits.ITLMS, "inter-token latency", r.ITLMS.Absent}} {
		if limited.limit != nil && limited.absent != "" && r.Counts[ledger.Completed] > 0 {
			g.Absent = "the " + limited.name + " that is limited is not known: " + limited.absent
			return g
		}
	}
	g.Share = Proportion(b.good, b.measured)
	g.PerS = perSecond(float64(b.good), r.WindowS)
	return g
}

func float(ns *int64) *float64 {
	if ns == nil {
		return nil
	}
	v := float64(*ns)
	return &v
}
