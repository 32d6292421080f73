package compare

import (
	"fmt"
	"slices"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/join"
)

// kind is a figure that is compared: a duration that each request has, or a rate
// that each sample has.
type kind struct {
	name, title, unit string
	higherIsBetter    bool
	streamed          bool                                // only streams have it
	duration          func(*ledger.Entry) *float64        // ns; nil if there is none
	rate              func(join.Sample) (float64, string) // why there is none
	withheld          func(a, b side) *Reason             // of the whole run
}

// kinds are in the order of a report. With the same token counts on both sides,
// output tokens per second stand in the ratio of requests per second, and are no
// figure of their own.
var kinds = []kind{
	{name: "client_latency", title: "client latency", unit: "ms",
		duration: func(e *ledger.Entry) *float64 { return float(e.Client.LatencyNS) }},
	{name: "ttft", title: "time to first token", unit: "ms", streamed: true,
		duration: func(e *ledger.Entry) *float64 { return float(e.Client.TTFTNS) },
		withheld: doubted(func(r metrics.Row) string { return r.TTFTMS.Absent })},
	{name: "itl", title: "inter-token latency", unit: "ms", streamed: true,
		duration: func(e *ledger.Entry) *float64 { return e.Client.ITLNS },
		withheld: doubted(func(r metrics.Row) string { return r.ITLMS.Absent })},
	{name: "task_call", title: "task call", unit: "ms", duration: taskCall, withheld: scopesDiffer},
	{name: "requests_per_s", title: "throughput", unit: "requests/s", higherIsBetter: true, rate: throughput},
}

func float(ns *int64) *float64 {
	if ns == nil {
		return nil
	}
	v := float64(*ns)
	return &v
}

func taskCall(e *ledger.Entry) *float64 {
	if e.Server == nil {
		return nil
	}
	return float(e.Server.TaskCallNS)
}

func throughput(s join.Sample) (perS float64, absent string) {
	w := s.Ledger.Window
	if w == nil || w.EndNS <= w.StartNS {
		return 0, fmt.Sprintf("sample %s has no window", s.ID)
	}
	return float64(s.Ledger.Counts[ledger.Measured][ledger.Completed]) / (float64(w.EndNS-w.StartNS) / 1e9), ""
}

// doubted takes over what the join withholds of a run.
func doubted(absent func(metrics.Row) string) func(a, b side) *Reason {
	return func(a, b side) *Reason {
		for _, s := range []side{a, b} {
			if why := absent(s.joined.Row); why != "" {
				return &Reason{Code: Doubted, Message: s.name + ": " + why}
			}
		}
		return nil
	}
}

// scopesDiffer says why task calls cannot be compared, nil if they can.
func scopesDiffer(a, b side) *Reason {
	x, err := scope(a)
	if err != nil {
		return &Reason{Code: Scopes, Message: err.Error()}
	}
	y, err := scope(b)
	if err != nil {
		return &Reason{Code: Scopes, Message: err.Error()}
	}
	if x != y {
		return &Reason{Code: Scopes, Message: fmt.Sprintf("the sides time different things: %s and %s", x, y), A: x, B: y}
	}
	return nil
}

// scope is the one scope of a side's task calls.
func scope(s side) (string, error) {
	found := ""
	for _, entries := range s.ledgers {
		for i := range entries {
			e := &entries[i]
			if e.Phase != ledger.Measured || taskCall(e) == nil {
				continue
			}
			if found != "" && e.Server.Scope != found {
				return "", fmt.Errorf("%s times the scopes %s and %s", s.name, found, e.Server.Scope)
			}
			found = e.Server.Scope
		}
	}
	if found == "" {
		return "", fmt.Errorf("%s has no task calls", s.name)
	}
	return found, nil
}

// observed are the values of a figure on one side.
type observed struct {
	samples  []float64 // one for each sample: the mean over its requests, or its rate
	requests []float64 // one for each request: the mean over the samples; nil of a rate
}

// observe reads a figure of matched sides, in its unit. The same requests count in
// every sample, so that what differs between requests is in no difference.
func (k kind) observe(a, b side) (x, y observed, withheld *Reason) {
	if k.withheld != nil {
		if withheld = k.withheld(a, b); withheld != nil {
			return x, y, withheld
		}
	}
	if k.rate != nil {
		for _, s := range []struct {
			side
			to *observed
		}{{a, &x}, {b, &y}} {
			for _, sample := range s.joined.Samples {
				v, absent := k.rate(sample)
				if absent != "" {
					return x, y, &Reason{Code: NothingToTime, Message: s.name + ": " + absent}
				}
				s.to.samples = append(s.to.samples, v)
			}
		}
		return x, y, nil
	}
	x.samples, y.samples = make([]float64, len(a.ledgers)), make([]float64, len(b.ledgers))
	all, partly := slices.Concat(a.ledgers, b.ledgers), 0
	for i := range a.ledgers[0] {
		known := 0
		for _, entries := range all {
			if k.of(&entries[i]) != nil {
				known++
			}
		}
		switch known {
		case 0:
		case len(all):
			x.add(k, i, a.ledgers)
			y.add(k, i, b.ledgers)
		default:
			partly++
		}
	}
	switch {
	case partly > 0:
		return x, y, &Reason{Code: PartlyTimed, Count: partly, Of: len(a.ledgers[0]), Message: fmt.Sprintf("%d requests have this duration in some samples only", partly)}
	case len(x.requests) == 0:
		return x, y, &Reason{Code: NothingToTime, Message: "no request completed with this duration"}
	}
	for _, o := range []observed{x, y} {
		for i := range o.samples {
			o.samples[i] /= float64(len(x.requests))
		}
	}
	return x, y, nil
}

// add takes in the i-th request of all samples; o.samples are sums until all are
// in.
func (o *observed) add(k kind, i int, ledgers [][]ledger.Entry) {
	sum := 0.0
	for s, entries := range ledgers {
		ms := *k.of(&entries[i]) / 1e6
		o.samples[s] += ms
		sum += ms
	}
	o.requests = append(o.requests, sum/float64(len(ledgers)))
}

// of is the duration of a measured request that completed.
func (k kind) of(e *ledger.Entry) *float64 {
	if e.Phase != ledger.Measured || e.Class != ledger.Completed {
		return nil
	}
	return k.duration(e)
}
