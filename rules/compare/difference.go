package compare

import (
	"fmt"
	"math"
	"slices"

	"assay/rules/internal/metrics"
	"assay/rules/internal/stats"
)

// Verdict says how b is beside a.
type Verdict string

// The verdicts. All but the last need the whole interval over samples on one side
// of the margin, or within it.
const (
	Better     Verdict = "better" // by more than the margin
	Worse      Verdict = "worse"  // by more than the margin
	Equal      Verdict = "equal within margin"
	CannotTell Verdict = "cannot tell"
)

// Figure is one figure of both sides, in its unit, and how they compare.
type Figure struct {
	Name           string `json:"name"`
	Title          string `json:"title"`
	Unit           string `json:"unit"` // "ms" or "requests/s"
	HigherIsBetter bool   `json:"higher_is_better"`
	// Withheld says why the figure is not compared; the rest is then absent.
	Withheld *Reason `json:"withheld,omitempty"`
	*Difference
}

// Difference is b minus a.
type Difference struct {
	A metrics.Repeats `json:"a"`
	B metrics.Repeats `json:"b"`
	// Mean is the difference of the means over samples, Percent in percent of the
	// smaller one, so that it only changes its sign when the sides are swapped.
	Mean    float64  `json:"mean"`
	Percent *float64 `json:"percent"` // null if the smaller mean is 0
	Margin  float64  `json:"margin"`
	// Requests compares the same requests in pairs. It is nil of a rate.
	Requests *Paired `json:"requests"`
	// Samples compares the samples; nil where a side has fewer than a claim needs, or
	// was imported.
	Samples *Sampled `json:"samples"`
	Verdict Verdict  `json:"verdict"`
	// Why says why nothing can be told, and what would be needed.
	Why string `json:"why,omitempty"`
}

// Interval is a two-sided interval in the unit of its figure.
type Interval = stats.Interval

// Paired is over requests: the differences of each request's means over the samples
// of the sides. Requests of one sample are not independent, so these intervals are
// too narrow, and no verdict rests on them.
type Paired struct {
	N        int         `json:"n"`
	Interval *Interval   `json:"interval"` // of the mean, by Student's t; null of one request
	Shift    stats.Shift `json:"hodges_lehmann"`
}

// Sampled is over samples, which are independent: each has a server of its own.
type Sampled struct {
	// Interval is that of Welch; Judged is the same at the level that the verdict
	// was given at, stricter if several figures are judged.
	Interval Interval `json:"interval"`
	Judged   Interval `json:"judged"`
	// Shift is the robust estimate beside the means, at the level of Judged.
	Shift stats.Shift `json:"hodges_lehmann"`
}

// The least that have an interval: requests for the mean, requests for the rank test,
// where 2 of the 2^n orders of signs must be 5 % at most, and samples for a claim.
const (
	LeastForMean  = 2
	LeastForShift = 6
	LeastSamples  = metrics.ClaimSamples
)

const alpha = 1 - metrics.Confidence

// mostSamples is the most that a reader is advised to measure.
const mostSamples = 1000

// figures compares all that the sides have, and says how many were judged.
func figures(a, b side, marginPercent float64) (list []Figure, judged int) {
	var claims []claim
	var least []float64
	for _, k := range kinds {
		if k.streamed && a.mode() != "streamed" {
			continue
		}
		f := Figure{Name: k.name, Title: k.title, Unit: k.unit, HigherIsBetter: k.higherIsBetter}
		x, y, withheld := k.observe(a, b)
		if f.Withheld = withheld; withheld == nil {
			f.Difference = difference(x, y, marginPercent)
			if who := unseen(a, b); who != "" {
				f.Why = who + ", and a run of unknown origin bears no verdict"
			} else if f.A.Low == nil || f.B.Low == nil {
				f.Why = fewSamples(len(x.samples), len(y.samples))
			} else {
				c := claim{f, stats.Welch(x.samples, y.samples)}
				claims, least = append(claims, c), append(least, c.estimate.Level(f.Margin))
			}
		}
		list = append(list, f)
	}
	for i, level := range stats.Holm(least, alpha) {
		claims[i].judge(least[i] <= level, level)
	}
	return list, len(claims)
}

// difference describes without judging.
func difference(x, y observed, marginPercent float64) *Difference {
	d := &Difference{A: metrics.Repeat(x.samples), B: metrics.Repeat(y.samples), Verdict: CannotTell}
	d.Mean = *d.B.Mean - *d.A.Mean
	if least := min(*d.A.Mean, *d.B.Mean); least > 0 {
		percent := 100 * d.Mean / least
		d.Percent, d.Margin = &percent, marginPercent/100*least
	}
	if n := len(x.requests); n > 0 {
		pairs := make([]float64, n)
		for i := range pairs {
			pairs[i] = y.requests[i] - x.requests[i]
		}
		d.Requests = &Paired{N: n}
		if n > 1 {
			i := stats.Mean(pairs).Interval(metrics.Confidence)
			d.Requests.Interval = &i
		}
		d.Requests.Shift = stats.PairedShift(pairs, metrics.Confidence)
	}
	return d
}

func fewSamples(a, b int) string {
	needed := func(n int) int { return max(0, metrics.ClaimSamples-n) }
	return fmt.Sprintf("a has %s and b %s, no claim: measure %d more of a and %d more of b", samples(a), samples(b), needed(a), needed(b))
}

// claim is a figure with samples enough, and its difference over them.
type claim struct {
	Figure
	estimate stats.Estimate
}

// judge gives the verdict: known is whether the interval at this level holds neither
// end of the margin.
func (c claim) judge(known bool, level float64) {
	d, x, y := c.Difference, c.A.Values, c.B.Values
	d.Samples = &Sampled{
		Interval: c.estimate.Interval(metrics.Confidence), Judged: c.estimate.Interval(1 - level),
		Shift: stats.TwoSampleShift(slices.Clone(x), slices.Clone(y), 1-level),
	}
	if known {
		d.Verdict = c.place(d.Mean)
		return
	}
	d.Why = fmt.Sprintf("the interval holds an end of the margin, and at this spread %d samples would not tell either", mostSamples)
	if n, ok := stats.SamplesNeeded(x, y, d.Margin, level, mostSamples); ok {
		d.Why = fmt.Sprintf("the interval holds an end of the margin: at this spread about %s on each side would tell", samples(n))
	}
}

// place says on which side of the margin a difference is.
func (f Figure) place(difference float64) Verdict {
	switch higher := difference > 0; {
	case math.Abs(difference) <= f.Margin:
		return Equal
	case higher == f.HigherIsBetter:
		return Better
	}
	return Worse
}

func samples(n int) string {
	if n == 1 {
		return "1 sample"
	}
	return fmt.Sprintf("%d samples", n)
}
