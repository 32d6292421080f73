package metrics

import (
	"fmt"
	"maps"
	"sync"

	"assay/rules/internal/ledger"
)

// Definitions of the figures, for whoever prints them; docs/metrics.md has them at
// length.
var Definitions = map[string]string{
	"percentile":            "linear interpolation at rank (n-1)p of the values of all samples together; 95 % interval of order statistics; absent below 6 (p50), 36 (p90), 72 (p95), 368 (p99) values",
	"response_ms":           "client, planned time to last content chunk, completed measured requests of a recorded schedule; what the load generator was late is inside, where latency_ms counts from the dispatch",
	"latency_ms":            "client, dispatch to last content chunk, completed measured requests; monotonic clock of the client",
	"ttfb_ms":               "client, dispatch to status line and headers; the time of a connection is inside",
	"ttft_ms":               "client, dispatch to first content chunk (text, reasoning or tool call); streams that arrive as they are generated",
	"ttfo_ms":               "client, dispatch to first text behind reasoning; streams that begin with reasoning",
	"itl_ms":                "per request (last chunk - first chunk) / (n-1), n the server's completion tokens, n ≥ 2; then over requests, each with the same weight",
	"itl_token_weighted_ms": "all time between first and last chunks / all gaps between tokens; each gap with the same weight",
	"icl_ms":                "per request (last chunk - first chunk) / (content chunks - 1); a chunk may hold several tokens, so this is no inter-token latency",
	"task_call_ms":          "wall time of the native call, by the worker's clock; the scope says what is inside",
	"reject_ms":             "dispatch to refusal; by the server's record where the client's has no duration",
	"rejected":              "measured requests that were refused for capacity / all measured requests; 95 % interval of Wilson",
	"window_s":              "first measured dispatch to last arrival for a measured request of any class, monotonic clock of the client, summed over samples",
	"requests_per_s":        "completed requests / window",
	"output_tokens_per_s":   "the server's completion tokens of completed requests / window; partial answers of other requests count nothing",
	"goodput":               "measured requests that completed within every limit / all measured requests of the plan, refused, failed and never sent ones too; 95 % interval of Wilson",
	"repeats":               "one mean or rate of each sample; from 5 samples on the 95 % interval of their mean by Student's t",
}

// Row holds the figures of one row of a report: the measured requests of its
// samples, pooled. docs/metrics.md defines each.
type Row struct {
	Samples  int                  `json:"samples"`
	Measured int                  `json:"measured"`
	Counts   map[ledger.Class]int `json:"counts"` // every class, also those that are 0

	// AcceptedOnly is set when requests were refused: latencies are then those
	// of accepted requests.
	AcceptedOnly bool  `json:"accepted_only"`
	Rejected     Share `json:"rejected"`
	NotCompleted Share `json:"not_completed"`

	LatencyMS Latency `json:"latency_ms"`
	// ResponseMS counts from the planned time of a recorded schedule.
	ResponseMS Latency `json:"response_ms"`
	TTFBMS     Latency `json:"ttfb_ms"`
	TTFTMS     Latency `json:"ttft_ms"`
	TTFOMS     Latency `json:"ttfo_ms"`
	ITLMS      Latency `json:"itl_ms"`
	// ITLTokenWeightedMS weighs each gap between tokens alike, where ITLMS weighs
	// each request alike.
	ITLTokenWeightedMS *float64 `json:"itl_token_weighted_ms,omitempty"`
	ICLMS              Latency  `json:"icl_ms"`
	// Streams says how far the row's streams were seen to be incremental.
	Streams Streams `json:"streams"`

	TaskCallMS Latency `json:"task_call_ms"`
	// Scope is that of the native time; it is absent if samples differ.
	Scope string `json:"task_call_scope,omitempty"`

	RejectMS Stats `json:"reject_ms"`
	// RejectSources counts by whose clock the refusals were timed.
	RejectSources map[string]int `json:"reject_sources"`

	WindowS          *float64 `json:"window_s,omitempty"`
	RequestsPerS     *float64 `json:"requests_per_s,omitempty"`
	OutputTokens     *int64   `json:"output_tokens,omitempty"`
	OutputTokensPerS *float64 `json:"output_tokens_per_s,omitempty"`
	// Goodput is absent without limits.
	Goodput *Goodput `json:"goodput,omitempty"`

	// Repeats has one value of each sample, where all else is of all together.
	Repeats Repeated `json:"repeats"`
}

// Streams counts the completed streams.
type Streams struct {
	Verified   int `json:"verified"`
	Buffered   int `json:"buffered"`
	Unverified int `json:"unverified"` // too short to tell, or no server record
}

// Builder gathers the entries of a row's samples. The zero Builder is empty.
type Builder struct {
	Limits *Limits // of a good request; nil for no goodput

	samples        []sample
	measured, good int
	counts         map[ledger.Class]int
	// In ms, those of a sample behind those of the samples before.
	latency, ttfb, ttft, ttfo, itl, icl, task, reject []float64
	response                                          []float64                                    // ms, of a schedule
	begun                                             struct{ latency, ttft, task, completed int } // what was there before the sample
	weighted                                          tokenWeighted
	streams                                           Streams
	scopes                                            map[string]bool
	rejectSources                                     map[string]int
	window                                            int64 // ns
	unwindowed                                        bool  // a sample has no window
	tokens                                            int64
	uncounted                                         int // completed requests without a token count
}

// Add adds an entry, which is not kept; only the measured ones that were planned
// count. The entries of a sample come in any order, and Sample behind them.
func (b *Builder) Add(e *ledger.Entry) {
	if e.Phase != ledger.Measured || e.Unplanned {
		return
	}
	if b.counts == nil {
		b.counts, b.scopes, b.rejectSources = map[ledger.Class]int{}, map[string]bool{}, map[string]int{}
	}
	b.measured++
	b.counts[e.Class]++
	if e.Reject != nil {
		b.reject = append(b.reject, toMS(e.Reject.NS))
		b.rejectSources[e.Reject.Source]++
	}
	if b.Limits != nil && b.Limits.Good(e) {
		b.good++
	}
	if e.Class == ledger.Completed {
		b.completed(e)
	}
}

// Sample closes a sample, whose entries were added.
func (b *Builder) Sample(s ledger.Summary) {
	of := sample{
		latency: mean(b.latency[b.begun.latency:]), ttft: mean(b.ttft[b.begun.ttft:]), task: mean(b.task[b.begun.task:]),
	}
	if w := s.Window; w != nil && w.EndNS > w.StartNS {
		b.window += w.EndNS - w.StartNS
		seconds := float64(w.EndNS-w.StartNS) / 1e9
		of.rate = perSecond(float64(b.counts[ledger.Completed]-b.begun.completed), &seconds)
	} else {
		b.unwindowed = true
	}
	b.samples = append(b.samples, of)
	b.begun.latency, b.begun.ttft, b.begun.task, b.begun.completed = len(b.latency), len(b.ttft), len(b.task), b.counts[ledger.Completed]
}

func (b *Builder) completed(e *ledger.Entry) {
	c := e.Client
	appendMS(&b.latency, c.LatencyNS)
	if s := e.Schedule; s != nil {
		appendMS(&b.response, s.ResponseNS)
	}
	appendMS(&b.ttfb, c.TTFBNS)
	appendMS(&b.ttft, c.TTFTNS)
	appendMS(&b.ttfo, c.TTFONS)
	if v := c.ITLNS; v != nil {
		b.itl = append(b.itl, *v/1e6)
	}
	if v := interChunk(c); v != nil {
		b.icl = append(b.icl, *v)
	}
	b.weighted.add(e)
	switch c.Incremental {
	case ledger.Verified:
		b.streams.Verified++
	case ledger.Buffered:
		b.streams.Buffered++
	case ledger.Unverified:
		b.streams.Unverified++
	}
	if e.Server != nil && e.Server.TaskCallNS != nil {
		appendMS(&b.task, e.Server.TaskCallNS)
		b.scopes[e.Server.Scope] = true
	}
	if e.Tokens.Completion == nil {
		b.uncounted++
	} else {
		b.tokens += *e.Tokens.Completion
	}
}

// Row returns the figures of all that was added.
func (b *Builder) Row() Row {
	r := Row{Samples: len(b.samples), Measured: b.measured, Counts: map[ledger.Class]int{}, Streams: b.streams, RejectSources: map[string]int{}}
	for _, class := range ledger.Classes {
		r.Counts[class] = b.counts[class]
	}
	maps.Copy(r.RejectSources, b.rejectSources)
	completed := r.Counts[ledger.Completed]
	r.Rejected = Proportion(r.Counts[ledger.Rejected], r.Measured)
	r.NotCompleted = Proportion(r.Measured-completed, r.Measured)
	r.AcceptedOnly = r.Counts[ledger.Rejected] > 0

	b.describe(&r)
	if !b.unwindowed && b.window > 0 {
		seconds := float64(b.window) / 1e9
		r.WindowS, r.RequestsPerS = &seconds, perSecond(float64(completed), &seconds)
		if b.uncounted == 0 {
			tokens := b.tokens
			r.OutputTokens, r.OutputTokensPerS = &tokens, perSecond(float64(tokens), &seconds)
		}
	}
	r.Goodput = b.goodput(&r)
	r.Repeats = b.repeated(&r)
	return r
}

// describe fills in the distributions, and withholds those that are in doubt.
func (b *Builder) describe(r *Row) {
	var describing sync.WaitGroup
	describing.Go(func() { r.RejectMS = Describe(b.reject) })
	for to, values := range map[*Latency][]float64{
		&r.LatencyMS: b.latency, &r.ResponseMS: b.response, &r.TTFBMS: b.ttfb, &r.TTFTMS: b.ttft, &r.TTFOMS: b.ttfo, &r.ITLMS: b.itl, &r.ICLMS: b.icl, &r.TaskCallMS: b.task,
	} {
		to.Rejected = r.Rejected
		describing.Go(func() { to.Stats = Describe(values) })
	}
	describing.Wait()
	if why := r.Streams.doubt(); why != "" && len(b.ttft) > 0 {
		for _, within := range []*Latency{&r.TTFTMS, &r.TTFOMS, &r.ITLMS, &r.ICLMS} {
			if within.N > 0 {
				within.Stats = withheld(why)
			}
		}
	} else {
		r.ITLTokenWeightedMS = b.weighted.ms()
	}
	switch len(b.scopes) {
	case 0:
	case 1:
		for scope := range b.scopes {
			r.Scope = scope
		}
	default:
		r.TaskCallMS.Stats = withheld(fmt.Sprintf("the samples time %d different scopes", len(b.scopes)))
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

// perSecond is n over a window, nil without one.
func perSecond(n float64, seconds *float64) *float64 {
	if seconds == nil {
		return nil
	}
	rate := n / *seconds
	return &rate
}
