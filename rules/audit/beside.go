package audit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/metrics"
)

// Beside sets AIPerf's summary beside the ledger.
type Beside struct {
	// Over says that AIPerf's figures are over other requests than the ledger's,
	// and over which; empty if they are not.
	Over    string     `json:"over_other_requests,omitempty"`
	Figures []Compared `json:"figures"`
}

// Compared is one figure of AIPerf's summary beside the ledger's.
type Compared struct {
	Figure string `json:"figure"`
	Unit   string `json:"unit"`
	// AIPerf and Ledger are absent where a side has no value.
	AIPerf *float64 `json:"aiperf,omitempty"`
	Ledger *float64 `json:"ledger,omitempty"`
	Agrees bool     `json:"agrees"`
	// Why explains what differs, or what is absent.
	Why string `json:"why,omitempty"`
}

// beside is nil without a summary.
func beside(p *aiperf.Reported, row metrics.Row, t *tally) *Beside {
	if p == nil {
		return nil
	}
	all := &Beside{Over: t.others(row)}
	add := func(figure, unit string, theirs, ours *float64, absent, why string) {
		c := Compared{Figure: figure, Unit: unit, AIPerf: theirs, Ledger: ours}
		switch {
		case theirs == nil && ours == nil:
			return
		case ours == nil:
			c.Why = absent
		case theirs == nil:
			c.Why = "AIPerf gives none"
		default:
			if c.Agrees = equal(*theirs, *ours); !c.Agrees {
				c.Why = why
			}
			if !c.Agrees && why+all.Over == "" {
				c.Why = "the files do not explain it"
			}
		}
		all.Figures = append(all.Figures, c)
	}
	successes := float64(row.Counts["completed"])
	theirs := float64(t.successes)
	if p.Latency != nil && p.Latency.Count != nil {
		theirs = *p.Latency.Count
	}
	add("successes", "requests", &theirs, &successes, "", "")
	for _, f := range []struct {
		name   string
		theirs *aiperf.Spread
		ours   metrics.Latency
		why    string
	}{
		{"latency", p.Latency, row.LatencyMS, ""},
		{"time to first token", p.TTFT, row.TTFTMS, ""},
		{"inter-token latency", p.ITL, row.ITLMS, "AIPerf divides by the tokens of its own tokenizer, the ledger by the server's"},
	} {
		if f.theirs == nil {
			f.theirs = &aiperf.Spread{}
		}
		add(f.name+" mean", "ms", f.theirs.Avg, f.ours.Mean, f.ours.Absent, f.why)
		add(f.name+" p50", "ms", f.theirs.P50, f.ours.P50.Value, cmp.Or(f.ours.Absent, f.ours.P50.Absent), f.why)
		add(f.name+" p99", "ms", f.theirs.P99, f.ours.P99.Value, cmp.Or(f.ours.Absent, f.ours.P99.Absent), f.why)
	}
	window := ""
	if p.DurationS != nil && row.WindowS != nil && !equal(*p.DurationS, *row.WindowS) {
		window = fmt.Sprintf("AIPerf divides by %.3f s, from the first start to the last end of its successes; the ledger by %.3f s, to the last arrival for a request of any class", *p.DurationS, *row.WindowS)
	}
	add("throughput", "requests/s", p.RequestsPerS, row.RequestsPerS, "the window is not known", window)
	add("output tokens", "tokens/s", p.OutputTokensPerS, row.OutputTokensPerS, "not every completed request has the server's token count",
		join("AIPerf counts with its own tokenizer, the ledger takes the server's count", window))
	return all
}

// others says that AIPerf's figures are over another set of requests, "" if they
// are not.
func (t *tally) others(row metrics.Row) string {
	if len(t.wrong) == 0 {
		if completed := row.Counts["completed"]; completed > t.successes {
			return fmt.Sprintf("AIPerf calls %d requests errors that completed", completed-t.successes)
		}
		if lost := row.Counts["incomplete"]; lost > 0 {
			return fmt.Sprintf("requests without an end in the export: %d", lost)
		}
		return ""
	}
	n := 0
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(t.wrong)) {
		n += t.wrong[what]
		parts = append(parts, fmt.Sprintf("%d %s", t.wrong[what], what))
	}
	return fmt.Sprintf("AIPerf's figures are over %d requests, %d of which did not complete (%s)", t.successes, n, strings.Join(parts, ", "))
}

// equal says whether two values are one: AIPerf rounds, and takes its own stamps.
func equal(a, b float64) bool {
	const same = 0.001
	return math.Abs(a-b) <= same*math.Max(math.Abs(a), math.Abs(b))
}

// join puts those of the reasons that there are behind one another.
func join(reasons ...string) string {
	return strings.Join(slices.DeleteFunc(reasons, func(s string) bool { return s == "" }), "; ")
}
