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
		fmt.Fprintf(w, "Matched work: one request at a time, the same requests with the same answers. b minus a; equal within %g %% of the smaller mean.\n\n", c.MarginPercent)
		fmt.Fprintf(w, "| | a | b | difference of means | of requests | robust, of requests | of samples | b is |\n|---|---|---|---|---|---|---|---|\n")
		for _, f := range c.Figures {
			writeFigure(w, f)
		}
		fmt.Fprintf(w, "\nThe brackets are intervals: of requests 95 %% by Student's t and, robust, by Hodges and Lehmann; of samples by Welch, at the level that the verdict was given at.\n\n")
		for _, f := range c.Figures {
			if f.Difference != nil && f.Why != "" {
				fmt.Fprintf(w, "* %s: %s\n", f.Title, f.Why)
			}
		}
		for _, gap := range c.Gaps {
			fmt.Fprintf(w, "* %s\n", gap)
		}
	}
}

func sideName(s compare.Side) string {
	return s.Name() + ", " + count(s.Samples, "sample")
}

func writeFigure(w io.Writer, f compare.Figure) {
	name := f.Title + ", " + f.Unit
	if f.Withheld != nil {
		fmt.Fprintf(w, "| %s | | | withheld: %s | | | | |\n", name, f.Withheld.Message)
		return
	}
	difference := fmt.Sprintf("%+.2f", f.Mean)
	if f.Percent != nil {
		difference += fmt.Sprintf(" (%+.1f %%)", *f.Percent)
	}
	requests, robust, samples := "", "", "no claim"
	if r := f.Requests; r != nil {
		requests, robust = bracket(r.Interval, compare.LeastForMean), fmt.Sprintf("%+.2f %s", r.Shift.Value, bracket(r.Shift.Interval, compare.LeastForShift))
	}
	if f.Samples != nil {
		samples = bracket(&f.Samples.Judged, compare.LeastSamples)
	}
	fmt.Fprintf(w, "| %s | %.2f | %.2f | %s | %s | %s | %s | %s |\n", name, *f.A.Mean, *f.B.Mean, difference, requests, robust, samples, f.Verdict)
}

func bracket(i *compare.Interval, needs int) string {
	if i == nil {
		return fmt.Sprintf("n too small (needs %d)", needs)
	}
	return fmt.Sprintf("[%+.2f, %+.2f]", i.Low, i.High)
}
