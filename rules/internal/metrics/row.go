package metrics

import (
	"fmt"
	"slices"

	"assay/rules/internal/ledger"
)

// Definitions of the figures, for whoever prints them.
var Definitions = map[string]string{
	"percentile":          "linear interpolation at rank (n-1)p; 95 % interval of order statistics; absent below 6 (p50), 36 (p90), 72 (p95), 368 (p99) values",
	"latency_ms":          "client, dispatch to last content chunk, completed measured requests; monotonic clock of the client",
	"ttft_ms":             "client, dispatch to first content chunk (text, reasoning or tool call); streams that arrive as they are generated",
	"itl_ms":              "per request (last chunk - first chunk) / (n-1), n the server's completion tokens, n ≥ 2; then over requests, each with the same weight",
	"task_call_ms":        "wall time of the native call, by the worker's clock; the scope says what is inside",
	"reject_ms":           "dispatch to refusal; by the server's record where the client's has no duration",
	"window_s":            "first measured dispatch to last arrival for a measured request of any class, monotonic clock of the client, summed over samples",
	"requests_per_s":      "completed requests / window",
	"output_tokens_per_s": "the server's completion tokens of completed requests / window; partial answers of other requests count nothing",
}

// Row holds the figures of one row of a report: the measured requests of its
// samples, pooled.
type Row struct {
	Samples  int                  `json:"samples"`
	Measured int                  `json:"measured"`
	Counts   map[ledger.Class]int `json:"counts"` // every class, also those that are 0

	// AcceptedOnly is set when requests were refused: latencies are then those
	// of accepted requests, and mean nothing without Rejected.
	AcceptedOnly bool  `json:"accepted_only"`
	Rejected     Share `json:"rejected"`
	NotCompleted Share `json:"not_completed"`

	LatencyMS Stats `json:"latency_ms"`
	TTFTMS    Stats `json:"ttft_ms"`
	ITLMS     Stats `json:"itl_ms"`
	// Streams says how far the row's streams were seen to be incremental.
	Streams Streams `json:"streams"`

	TaskCallMS Stats `json:"task_call_ms"`
	// Scope is that of the native time; it is absent if samples differ.
	Scope string `json:"task_call_scope,omitempty"`

	RejectMS Stats `json:"reject_ms"`
	// RejectSources counts by whose clock the refusals were timed.
	RejectSources map[string]int `json:"reject_sources"`

	WindowS          *float64 `json:"window_s,omitempty"`
	RequestsPerS     *float64 `json:"requests_per_s,omitempty"`
	OutputTokens     *int64   `json:"output_tokens,omitempty"`
	OutputTokensPerS *float64 `json:"output_tokens_per_s,omitempty"`
}

// Streams counts the completed streams.
type Streams struct {
	Verified   int `json:"verified"`
	Buffered   int `json:"buffered"`
	Unverified int `json:"unverified"` // too short to tell, or no server record
}

// Compute pools the ledgers of a row's samples.
func Compute(samples ...*ledger.Ledger) Row {
	p := pool{scopes: map[string]bool{}}
	row := Row{Samples: len(samples), Counts: map[ledger.Class]int{}, RejectSources: map[string]int{}}
	for _, class := range ledger.Classes {
		row.Counts[class] = 0
	}
	for _, sample := range samples {
		p.addWindow(sample.Summary.Window)
		for i := range sample.Entries {
			if e := &sample.Entries[i]; e.Phase == ledger.Measured && !e.Unplanned {
				row.add(&p, e)
			}
		}
	}
	row.finish(&p)
	return row
}

// pool gathers values in ms over samples.
type pool struct {
	latency, ttft, itl, task, reject []float64
	scopes                           map[string]bool
	window                           int64 // ns
	unwindowed                       bool  // a sample has no window
	tokens                           int64
	uncounted                        int // completed requests without a token count
}

func (p *pool) addWindow(w *ledger.Window) {
	if w == nil {
		p.unwindowed = true
		return
	}
	p.window += w.EndNS - w.StartNS
}

func (r *Row) add(p *pool, e *ledger.Entry) {
	r.Measured++
	r.Counts[e.Class]++
	if e.Reject != nil {
		p.reject = append(p.reject, toMS(e.Reject.NS))
		r.RejectSources[e.Reject.Source]++
	}
	if e.Class != ledger.Completed {
		return
	}
	appendMS(&p.latency, e.Client.LatencyNS)
	appendMS(&p.ttft, e.Client.TTFTNS)
	if v := e.Client.ITLNS; v != nil {
		p.itl = append(p.itl, *v/1e6)
	}
	switch e.Client.Incremental {
	case ledger.Verified:
		r.Streams.Verified++
	case ledger.Buffered:
		r.Streams.Buffered++
	case ledger.Unverified:
		r.Streams.Unverified++
	}
	if e.Server != nil && e.Server.TaskCallNS != nil {
		appendMS(&p.task, e.Server.TaskCallNS)
		p.scopes[e.Server.Scope] = true
	}
	if e.Tokens.Completion == nil {
		p.uncounted++
	} else {
		p.tokens += *e.Tokens.Completion
	}
}

func (r *Row) finish(p *pool) {
	completed := r.Counts[ledger.Completed]
	r.Rejected = Proportion(r.Counts[ledger.Rejected], r.Measured)
	r.NotCompleted = Proportion(r.Measured-completed, r.Measured)
	r.AcceptedOnly = r.Counts[ledger.Rejected] > 0

	r.LatencyMS = Describe(p.latency)
	r.RejectMS = Describe(p.reject)
	r.TTFTMS, r.ITLMS = Describe(p.ttft), Describe(p.itl)
	if why := r.Streams.doubt(); why != "" && len(p.ttft) > 0 {
		r.TTFTMS, r.ITLMS = withheld(why), withheld(why)
	}

	r.TaskCallMS = Describe(p.task)
	switch len(p.scopes) {
	case 0:
	case 1:
		for scope := range p.scopes {
			r.Scope = scope
		}
	default:
		r.TaskCallMS = withheld(fmt.Sprintf("the samples time %d different scopes", len(p.scopes)))
	}

	if p.unwindowed || p.window <= 0 {
		return
	}
	seconds := float64(p.window) / 1e9
	rate := float64(completed) / seconds
	r.WindowS, r.RequestsPerS = &seconds, &rate
	if p.uncounted == 0 {
		tokens, rate := p.tokens, float64(p.tokens)/seconds
		r.OutputTokens, r.OutputTokensPerS = &tokens, &rate
	}
}

// doubt says why times within streams do not count. One stream that was held
// back shows that something on the way buffers; leaving out just that one
// would flatter the rest. Short streams alone show nothing.
func (s Streams) doubt() string {
	switch {
	case s.Buffered > 0:
		return fmt.Sprintf("%d of %d streams did not arrive as they were generated", s.Buffered, s.Verified+s.Buffered+s.Unverified)
	case s.Verified == 0:
		return "no stream could be verified to be incremental"
	}
	return ""
}

func withheld(why string) Stats {
	q := Quantile{Absent: why}
	return Stats{Absent: why, P50: q, P90: q, P95: q, P99: q}
}

func appendMS(to *[]float64, ns *int64) {
	if ns != nil {
		*to = append(*to, toMS(*ns))
	}
}

func toMS(ns int64) float64 { return float64(ns) / 1e6 }

// Goodput is the share of the measured requests, all of them, that completed
// within limit ms of latency. What was refused, failed or came back empty is
// never good.
func Goodput(limitMS float64, samples ...*ledger.Ledger) Share {
	good, all := 0, 0
	for _, sample := range samples {
		for e := range slices.Values(sample.Entries) {
			if e.Phase != ledger.Measured || e.Unplanned {
				continue
			}
			all++
			if e.Class == ledger.Completed && e.Client.LatencyNS != nil && toMS(*e.Client.LatencyNS) <= limitMS {
				good++
			}
		}
	}
	return Proportion(good, all)
}
