package publish

import (
	"fmt"
	"io"

	"assay/rules/compare"
)

// writeComparisons writes the part of report.md with the comparisons.
func writeComparisons(w io.Writer, list []compare.Comparison) {
	for _, c := range list {
		fmt.Fprintf(w, "\n## Comparison: %s (b) beside %s (a)\n\n", sideName(c.B), sideName(c.A))
		if !c.Comparable {
			fmt.Fprintf(w, "Not compared: the work is not the same.\n\n")
			for _, r := range c.Reasons {
				fmt.Fprintf(w, "* `%s`: %s\n", r.Code, r.Message)
			}
			continue
		}
		fmt.Fprintf(w, "Matched work: one request at a time, the same requests with the same answers. Milliseconds, b minus a; equal within %g %% of the faster side's mean.\n\n", c.MarginPercent)
		fmt.Fprintf(w, "| | n | mean of a | mean of b | mean difference | median difference | b is |\n|---|---|---|---|---|---|---|\n")
		writeTiming(w, "client latency", c.ClientLatency)
		writeTiming(w, "task call", c.TaskCall)
		fmt.Fprintf(w, "\nThe brackets are 95 %% intervals: of the mean by Student's t, of the median by order statistics.\n\n")
		for _, gap := range c.Gaps {
			fmt.Fprintf(w, "* %s\n", gap)
		}
	}
}

func sideName(s compare.Side) string {
	return fmt.Sprintf("%s, %s, %s, %s", s.Model, s.Engine, s.Endpoint, count(s.Samples, "sample"))
}

func writeTiming(w io.Writer, name string, t *compare.Timing) {
	if t == nil || t.Difference == nil {
		why := "n/a"
		if t != nil {
			why = t.Withheld
		}
		fmt.Fprintf(w, "| %s | | | | withheld: %s | | |\n", name, why)
		return
	}
	interval := "n too small"
	if i := t.Mean95; i != nil {
		interval = fmt.Sprintf("[%+.2f, %+.2f]", i.Low, i.High)
	}
	median := t.Median.Absent
	if m := t.Median; m.Value != nil {
		median = fmt.Sprintf("%+.2f", *m.Value)
		if m.Low != nil && m.High != nil {
			median += fmt.Sprintf(" [%+.2f, %+.2f]", *m.Low, *m.High)
		}
	}
	fmt.Fprintf(w, "| %s | %d | %.2f | %.2f | %+.2f (%+.1f %%) %s | %s | %s |\n",
		name, t.Requests, t.MeanA, t.MeanB, t.Mean, t.Percent, interval, median, t.Verdict)
}
