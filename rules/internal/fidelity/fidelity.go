// Package fidelity judges a replay: whether the recorded schedule is the one that
// was sent. It looks at every request of the schedule, so its shares and gates are
// of the run itself and not estimates of others.
//
// Definitions are those of open-loop measurement: lag is the dispatch minus the
// planned time, rates are (n-1)/span, each of its own events.
package fidelity

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/stats"
	"assay/rules/internal/trace"
)

// Limits are those of the gates.
type Limits struct {
	MedianLagMS float64 // half of the requests may be later
	P99LagMS    float64 // one in a hundred may be later
	Rate        float64 // by which share the send rate may differ from the offered one
}

// Windows is into how many parts of equal length a schedule is cut.
const Windows = 10

// Expected is what a plan says of a request beside its time.
type Expected struct {
	PromptTokens *int64 // nil if that is not known before
	TooLong      bool   // it is to be refused
}

// Conditions are what is known of the load generator.
type Conditions struct {
	// ConnectionWaits counts the requests that waited for a connection, nil if that
	// was not recorded.
	ConnectionWaits *int
	// Saturated says that the load generator's CPUs were busy.
	Saturated bool
}

// Report is the account of one replay.
type Report struct {
	// Trace is what became of the trace before it was sent.
	Trace trace.Facts `json:"trace"`
	// Zero is where lags count from; nil if nothing was sent.
	Zero *ledger.Schedule `json:"zero"`

	Planned int                  `json:"planned"`
	Sent    int                  `json:"sent"`
	Counts  map[ledger.Class]int `json:"counts"`

	// In requests per second, (n-1)/span: planned times, dispatches, ends of completed
	// requests; nil below two, or without a span.
	OfferedPerS   *float64 `json:"offered_per_s"`
	SentPerS      *float64 `json:"sent_per_s"`
	CompletedPerS *float64 `json:"completed_per_s"`

	LagMS metrics.Stats `json:"lag_ms"`
	// Drift is nil below three distinct planned times.
	Drift *Drift `json:"drift"`
	// Overtaken counts the requests that were sent behind one that was planned later,
	// OvertakenMS is the longest time by which.
	Overtaken   int     `json:"overtaken"`
	OvertakenMS float64 `json:"overtaken_ms"`

	NotOpen NotOpen  `json:"not_open_loop"`
	Gates   []Gate   `json:"gates"`
	Windows []Window `json:"windows"`
}

// Drift is the slope of lag over planned time, in ms a second, by least squares over
// one value for each planned time, the mean of its requests: requests of one time
// wait for each other. The 95 % interval is by Student's t.
type Drift struct {
	MSPerS float64 `json:"ms_per_s"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Stamps int     `json:"stamps"`
}

// NotOpen counts the requests for which the replay was not open loop: their time
// depended on what became of others.
type NotOpen struct {
	// TurnDependent are later turns, which wait for the turn before.
	TurnDependent int `json:"turn_dependent"`
	// ConnectionWaits waited for a connection; nil if that was not recorded.
	ConnectionWaits *int `json:"connection_waits"`
	// ClientSaturated are all requests, if the load generator's CPUs were busy.
	ClientSaturated int `json:"client_saturated"`
	// ConcurrencyCap is the most requests at a time; 0 is none, so none was held back.
	ConcurrencyCap int `json:"concurrency_cap"`
}

// Gate is a condition that a replay has to meet.
type Gate struct {
	Name  string   `json:"name"`
	Value *float64 `json:"value"` // nil if it cannot be told
	Limit float64  `json:"limit"`
	Unit  string   `json:"unit,omitempty"`
	Met   bool     `json:"met"`
	Why   string   `json:"why"`
}

// Window is the part of the requests that were planned within it.
type Window struct {
	FromS     float64 `json:"from_s"` // in it
	ToS       float64 `json:"to_s"`   // not in it, but for the last
	Planned   int     `json:"planned"`
	Sent      int     `json:"sent"`
	Completed int     `json:"completed"`
	Rejected  int     `json:"rejected"`
	Other     int     `json:"other"`
	// Late are those beyond the limit of the 99th percentile.
	Late       int           `json:"late"`
	LagMS      metrics.Stats `json:"lag_ms"`
	TTFTMS     metrics.Stats `json:"ttft_ms"`
	ResponseMS metrics.Stats `json:"response_ms"`
}

// Unmet names the gates that were not met, each with its reason.
func (r *Report) Unmet() (reasons []string) {
	for _, g := range r.Gates {
		if !g.Met {
			reasons = append(reasons, g.Name+": "+g.Why)
		}
	}
	return reasons
}

// Builder gathers the requests of one replay.
type Builder struct {
	Limits   Limits
	Expected map[string]Expected // by conversation

	requests  []request
	dependent int
	unplaced  []ledger.Class
}

// request is what a report needs of an entry.
type request struct {
	class               ledger.Class
	due                 int64
	lag, response, ttft *int64
	tooLong, miscounted bool
}

// Add adds an entry, which is not kept; only those of a schedule count.
func (b *Builder) Add(e *ledger.Entry) {
	if e.Phase == ledger.Measured && e.Place.Turn > 0 {
		b.dependent++
	}
	s := e.Schedule
	switch {
	case e.Phase != ledger.Measured || e.Unplanned:
		return
	case s == nil && e.Place.Turn == 0:
		// Nobody knows which of the plan it was, as of one that only the server has.
		b.unplaced = append(b.unplaced, e.Class)
	}
	if s == nil {
		return
	}
	expected := b.Expected[e.Place.Conversation]
	r := request{class: e.Class, due: s.DueNS, lag: s.LagNS, tooLong: expected.TooLong}
	if e.Class == ledger.Completed {
		r.response = s.ResponseNS
		if e.Client != nil {
			r.ttft = e.Client.TTFTNS
		}
		if want := expected.PromptTokens; want != nil {
			r.miscounted = e.Tokens.Prompt == nil || *e.Tokens.Prompt != *want
		}
	}
	b.requests = append(b.requests, r)
}

// Report closes the account. summary is that of the same entries.
func (b *Builder) Report(facts trace.Facts, summary *ledger.Summary, c Conditions) *Report {
	r := &Report{Trace: facts, Zero: summary.Schedule, Planned: len(b.requests) + len(b.unplaced), Counts: map[ledger.Class]int{}}
	for _, class := range ledger.Classes {
		r.Counts[class] = 0
	}
	for _, class := range b.unplaced {
		r.Counts[class]++
	}
	var due, sent, ended []int64
	var lags []float64
	for _, q := range b.requests {
		r.Counts[q.class]++
		due = append(due, q.due)
		if q.lag != nil {
			sent = append(sent, q.due+*q.lag)
			lags = append(lags, ms(*q.lag))
		}
		if q.response != nil {
			ended = append(ended, q.due+*q.response)
		}
	}
	r.Sent = r.Planned - r.Counts[ledger.NotSent]
	r.OfferedPerS, r.SentPerS, r.CompletedPerS = rate(due), rate(sent), rate(ended)
	r.LagMS = metrics.Describe(lags) // sorts
	r.Drift = drift(b.requests)
	r.Overtaken, r.OvertakenMS = overtaken(b.requests)
	r.NotOpen = NotOpen{TurnDependent: b.dependent, ConnectionWaits: c.ConnectionWaits}
	if c.Saturated {
		r.NotOpen.ClientSaturated = r.Sent
	}
	r.Windows = b.windows()
	r.Gates = b.gates(r, lags)
	return r
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

// rate is (n-1)/span of events.
func rate(at []int64) *float64 {
	if len(at) < 2 || slices.Max(at) == slices.Min(at) {
		return nil
	}
	perS := float64(len(at)-1) / (float64(slices.Max(at)-slices.Min(at)) / 1e9)
	return &perS
}

func drift(requests []request) *Drift {
	type stamp struct {
		sum float64
		n   int
	}
	byDue := map[int64]*stamp{}
	for _, q := range requests {
		if q.lag == nil {
			continue
		}
		if byDue[q.due] == nil {
			byDue[q.due] = &stamp{}
		}
		byDue[q.due].sum += ms(*q.lag)
		byDue[q.due].n++
	}
	var x, y []float64
	var order []int64
	for due := range byDue {
		order = append(order, due)
	}
	slices.Sort(order) // sums of floats depend on it
	for _, due := range order {
		x = append(x, float64(due)/1e9)
		y = append(y, byDue[due].sum/float64(byDue[due].n))
	}
	if len(x) < 3 {
		return nil
	}
	slope := leastSquares(x, y)
	i := slope.Interval(metrics.Confidence)
	return &Drift{slope.Value, i.Low, i.High, len(x)}
}

// leastSquares is the slope of y over x, three values or more, not all x alike.
func leastSquares(x, y []float64) stats.Estimate {
	meanX, _ := stats.Moments(x)
	meanY, _ := stats.Moments(y)
	var xx, xy, rest float64
	for i := range x {
		xx += (x[i] - meanX) * (x[i] - meanX)
		xy += (x[i] - meanX) * (y[i] - meanY)
	}
	slope := xy / xx
	for i := range x {
		r := y[i] - meanY - slope*(x[i]-meanX)
		rest += r * r
	}
	df := float64(len(x) - 2)
	return stats.Estimate{Value: slope, Error: math.Sqrt(rest / df / xx), DF: df}
}

// overtaken looks at the requests from the latest plan to the earliest; among those
// of one time there is no order.
func overtaken(requests []request) (n int, longest float64) {
	var sent []request
	for _, q := range requests {
		if q.lag != nil {
			sent = append(sent, q)
		}
	}
	slices.SortFunc(sent, func(a, b request) int { return cmp.Compare(b.due, a.due) })
	first := int64(math.MaxInt64) // dispatch of those that were planned later
	for from := 0; from < len(sent); {
		to, earliest := from, int64(math.MaxInt64)
		for ; to < len(sent) && sent[to].due == sent[from].due; to++ {
			at := sent[to].due + *sent[to].lag
			earliest = min(earliest, at)
			if at > first {
				n++
				longest = max(longest, ms(at-first))
			}
		}
		first = min(first, earliest)
		from = to
	}
	return n, longest
}

// windows cuts the time from the first to the last planned one.
func (b *Builder) windows() []Window {
	if len(b.requests) == 0 {
		return nil
	}
	low, high := b.requests[0].due, b.requests[0].due
	for _, q := range b.requests {
		low, high = min(low, q.due), max(high, q.due)
	}
	n := int64(Windows)
	if high == low {
		n = 1
	}
	list := make([]Window, n)
	type values struct{ lag, ttft, response []float64 }
	in := make([]values, n)
	for _, q := range b.requests {
		i := int64(0)
		if high > low {
			i = min(n-1, int64(float64(q.due-low)/float64(high-low)*float64(n)))
		}
		w, v := &list[i], &in[i]
		w.Planned++
		switch q.class {
		case ledger.Completed:
			w.Completed++
		case ledger.Rejected:
			w.Rejected++
		default:
			w.Other++
		}
		if q.class != ledger.NotSent {
			w.Sent++
		}
		if q.lag != nil && ms(*q.lag) > b.Limits.P99LagMS {
			w.Late++
		}
		for to, ns := range map[*[]float64]*int64{&v.lag: q.lag, &v.ttft: q.ttft, &v.response: q.response} {
			if ns != nil {
				*to = append(*to, ms(*ns))
			}
		}
	}
	for i := range list {
		list[i].FromS = float64(low)/1e9 + float64(high-low)/1e9*float64(i)/float64(n)
		list[i].ToS = float64(low)/1e9 + float64(high-low)/1e9*float64(i+1)/float64(n)
		list[i].LagMS, list[i].TTFTMS, list[i].ResponseMS = metrics.Describe(in[i].lag), metrics.Describe(in[i].ttft), metrics.Describe(in[i].response)
	}
	return list
}

// gates judges the report; lags are sorted.
func (b *Builder) gates(r *Report, lags []float64) []Gate {
	count := func(name, what string, n int) Gate {
		v := float64(n)
		return Gate{name, &v, 0, "requests", n == 0, fmt.Sprintf("%d of %d planned requests %s", n, r.Planned, what)}
	}
	unknown := r.Counts[ledger.NotSent] + r.Counts[ledger.Incomplete] + r.Counts[ledger.Cancelled]
	refused, miscounted := 0, 0
	for _, q := range b.requests {
		if q.class == ledger.Invalid && !q.tooLong || q.tooLong && served(q.class) {
			refused++
		}
		if q.miscounted {
			miscounted++
		}
	}
	return []Gate{
		count("every request was sent and has an end", "were not sent, were given up, or have no known end", unknown),
		count("refused as invalid are the rows beyond the context, and no other", "are refused though they fit, or not refused though they do not", refused),
		count("prompts have the planned length", "have another number of prompt tokens by the server's count", miscounted),
		b.lag("median lag", r, lags, 0.5, b.Limits.MedianLagMS),
		b.lag("p99 lag", r, lags, 0.99, b.Limits.P99LagMS),
		b.rate(r),
		straight(r),
	}
}

// served says that the server worked on a request. One that is beyond the context can
// also be refused because all lanes are busy, before anybody looks at its length.
func served(c ledger.Class) bool {
	return slices.Contains([]ledger.Class{ledger.Failed, ledger.Empty, ledger.PromptTruncated, ledger.Completed}, c)
}

// lag judges a percentile of the requests that were sent: the least value that the
// share p of them does not exceed. It is of all of them, so it needs no interval.
func (b *Builder) lag(name string, r *Report, lags []float64, p, limit float64) Gate {
	g := Gate{Name: name, Limit: limit, Unit: "ms"}
	switch {
	case len(lags) == 0:
		g.Why = "nothing was sent"
		return g
	case r.Zero.Zero != ledger.ZeroReported:
		g.Why = "AIPerf reported no start of the schedule, so a delay that all requests share cannot be seen"
		return g
	}
	v := lags[int(math.Ceil(p*float64(len(lags))))-1]
	g.Value, g.Met = &v, v < limit
	g.Why = fmt.Sprintf("%.3f ms of all %d dispatches, below %g ms is asked for", v, len(lags), limit)
	return g
}

func (b *Builder) rate(r *Report) Gate {
	g := Gate{Name: "send rate against offered rate", Limit: 100 * b.Limits.Rate, Unit: "%"}
	if r.OfferedPerS == nil || r.SentPerS == nil {
		g.Met, g.Why = r.OfferedPerS == nil, "there is no span to take a rate of"
		return g
	}
	v := 100 * math.Abs(*r.SentPerS / *r.OfferedPerS - 1)
	g.Value, g.Met = &v, v <= g.Limit
	g.Why = fmt.Sprintf("%.4f of %.4f requests/s, %.2f %% off, at most %g %% is asked for", *r.SentPerS, *r.OfferedPerS, v, g.Limit)
	return g
}

// straight judges the drift: the lag must not grow with time, by more than chance.
func straight(r *Report) Gate {
	g := Gate{Name: "no drift", Unit: "ms/s"}
	d := r.Drift
	if d == nil {
		g.Met, g.Why = true, "fewer than three distinct times have no slope"
		return g
	}
	g.Value, g.Met = &d.MSPerS, d.Low <= 0
	g.Why = fmt.Sprintf("slope %.4f ms/s [%.4f, %.4f] over %d times; the interval has to reach 0 or below", d.MSPerS, d.Low, d.High, d.Stamps)
	return g
}
