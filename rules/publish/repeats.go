package publish

import (
	"cmp"
	"fmt"
	"strings"

	"assay/rules/internal/metrics"
)

// repeatedFigure is a figure over samples as a report prints it.
type repeatedFigure struct {
	Title string
	metrics.Repeats
	Refused string // "" of what is no latency
}

// repeated leaves out the figures that a row cannot have.
func repeated(r Row) []repeatedFigure {
	all := r.Figures.Repeats
	var list []repeatedFigure
	add := func(title string, f metrics.LatencyRepeats) {
		list = append(list, repeatedFigure{title, f.Repeats, refused(f.Rejected)})
	}
	add("mean client latency, ms", all.LatencyMS)
	if r.Mode != "buffered" {
		add("mean time to first token, ms", all.TTFTMS)
	}
	if r.Figures.TaskCallMS.N > 0 {
		add("mean native task call, ms", all.TaskCallMS)
	}
	return append(list, repeatedFigure{"requests/s", all.RequestsPerS, ""})
}

// good says what the goodput is, in a sentence.
func good(g metrics.Goodput) string {
	var kept []string
	for _, l := range []struct {
		name  string
		limit *float64
	}{{"latency", g.Limits.LatencyMS}, {"time to first token", g.Limits.TTFTMS}, {"inter-token latency", g.Limits.ITLMS}} {
		if l.limit != nil {
			kept = append(kept, fmt.Sprintf("%s of %g ms", l.name, *l.limit))
		}
	}
	within := strings.Join(kept, ", ")
	if g.Absent != "" {
		return fmt.Sprintf("Goodput within a %s: n/a, %s.", within, g.Absent)
	}
	return fmt.Sprintf("Goodput: %s of the offered requests completed within a %s; %s requests/s.", share(g.Share), within, orNone(number(g.PerS)))
}

// refused stands beside every latency.
func refused(s metrics.Share) string { return fmt.Sprintf("%d of %d", s.Count, s.Of) }

func interval(r metrics.Repeats) string {
	if r.Low == nil {
		return r.Absent
	}
	return fmt.Sprintf("[%.1f, %.1f]", *r.Low, *r.High)
}

func list(values []float64) string {
	var parts []string
	for _, v := range values {
		parts = append(parts, fmt.Sprintf("%.1f", v))
	}
	return cmp.Or(strings.Join(parts, ", "), "n/a")
}

func value(v *float64) string {
	if v == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.1f", *v)
}

func percent(v *float64) string {
	if v == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}
