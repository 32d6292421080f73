// Package stats holds the inference that comparisons rest on: how far a difference
// of means can be known, by what robust method it is checked, and what many
// verdicts at once cost. It knows numbers only, neither units nor requests.
package stats

import (
	"math"
	"slices"
)

// Interval is a two-sided confidence interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Confidence is the least probability, 0 to 1, with which such intervals hold
	// the true value.
	Confidence float64 `json:"confidence"`
}

// Estimate is an estimated mean, or difference of means, whose error follows
// Student's t.
type Estimate struct {
	Value float64
	Error float64 // standard error
	DF    float64 // degrees of freedom
}

// Mean estimates the mean of what v, two values or more, is a sample of.
func Mean(v []float64) Estimate {
	mean, variance := Moments(v)
	n := float64(len(v))
	return Estimate{mean, math.Sqrt(variance / n), n - 1}
}

// Welch estimates the mean of b minus that of a, two values or more each, with
// variances that need not be equal: Welch (1947), degrees of freedom by
// Satterthwaite (1946).
func Welch(a, b []float64) Estimate {
	meanA, varA := Moments(a)
	meanB, varB := Moments(b)
	return welch(meanB-meanA, varA, float64(len(a)), varB, float64(len(b)))
}

func welch(difference, varA, na, varB, nb float64) Estimate {
	ea, eb := varA/na, varB/nb
	e := Estimate{Value: difference, Error: math.Sqrt(ea + eb), DF: na + nb - 2}
	if e.Error > 0 {
		// By the shares, as the squares of small variances vanish.
		x, y := ea/(ea+eb), eb/(ea+eb)
		e.DF = 1 / (x*x/(na-1) + y*y/(nb-1))
	}
	return e
}

// Interval is the interval of the estimate, 0 < confidence < 1.
func (e Estimate) Interval(confidence float64) Interval {
	half := 0.0
	if e.Error > 0 {
		half = e.Error * StudentQuantile((1+confidence)/2, e.DF)
	}
	return Interval{e.Value - half, e.Value + half, confidence}
}

// Level is the least α for which the 1-α interval holds neither end of ±margin, so
// that the estimate is known to be above it, below it or within. Within is the
// equivalence test of Schuirmann (1987), each of its two tests at α/2.
func (e Estimate) Level(margin float64) float64 {
	if e.Error == 0 {
		return 0
	}
	return studentTails(math.Abs(math.Abs(e.Value)-margin)/e.Error, e.DF)
}

// SamplesNeeded is how many values on each side would make the 1-level interval of
// Welch(a, b) hold neither end of ±margin, if means and spread stayed as they are;
// ok is false if most would not do. It is an expectation: with just so many the
// odds are about even.
func SamplesNeeded(a, b []float64, margin, level float64, most int) (n int, ok bool) {
	meanA, varA := Moments(a)
	meanB, varB := Moments(b)
	enough := func(n int) bool {
		return welch(meanB-meanA, varA, float64(n), varB, float64(n)).Level(margin) <= level
	}
	if !enough(most) {
		return 0, false
	}
	low, high := 1, most // enough is monotonic: error and quantile both fall with n
	for low+1 < high {
		if mid := (low + high) / 2; enough(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high, true
}

// Holm spreads the error alpha over several verdicts by Holm's method (1979): the
// level that each is judged at, in the order of p, the least level at which each
// would be given. A verdict stands if its p is not above its level; then the
// probability that any of them is wrong is at most alpha. For verdicts with a
// direction that is proved if they are independent (Shaffer 1980), and a test tries
// it for such that are not.
func Holm(p []float64, alpha float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if p[i] < p[j] {
			return -1
		} else if p[i] > p[j] {
			return 1
		}
		return 0
	})
	levels := make([]float64, len(p))
	left := len(p)
	for _, i := range order {
		levels[i] = alpha / float64(left)
		if p[i] <= levels[i] {
			left--
		}
	}
	return levels
}

// Moments are the mean and the unbiased variance; the variance of a single value
// is 0.
func Moments(v []float64) (mean, variance float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	if len(v) < 2 {
		return mean, 0
	}
	for _, x := range v {
		variance += (x - mean) * (x - mean)
	}
	return mean, variance / float64(len(v)-1)
}
