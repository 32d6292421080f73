// Package metrics turns ledger entries into the figures of a row. Latencies are
// over the completed measured requests alone, with the share of refused
// requests beside them. docs/metrics.md defines every figure.
//
// A figure that the data does not carry is null, with its reason; it is never
// zero, and never the maximum in place of a high percentile. Percentiles of
// several samples are those of their pooled values: percentiles are not averaged
// anywhere.
package metrics

import (
	"fmt"
	"math"
	"slices"
)

// Confidence is the two-sided level of all intervals and sample floors.
const Confidence = 0.95

const alpha = 1 - Confidence

// Stats describes a sample. Values have the unit in the name of the field that
// holds the Stats.
type Stats struct {
	N    int      `json:"n"`
	Mean *float64 `json:"mean"`
	Min  *float64 `json:"min"`
	Max  *float64 `json:"max"`
	P50  Quantile `json:"p50"`
	P90  Quantile `json:"p90"`
	P95  Quantile `json:"p95"`
	P99  Quantile `json:"p99"`
	// Absent says why there are no values although there may be requests.
	Absent string `json:"absent,omitempty"`
}

// Quantile is a percentile by linear interpolation between the values at rank
// (n-1)p, with a 95 % interval that assumes nothing about the distribution:
// two order statistics, whose 1-based ranks are given. The interval takes the
// values for independent, which requests of one run are not quite.
type Quantile struct {
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	Ranks *Ranks   `json:"ranks"`
	// Absent says why there is no value.
	Absent string `json:"absent,omitempty"`
}

// Ranks of order statistics, from 1.
type Ranks struct {
	Low  int `json:"low"`
	High int `json:"high"`
}

// Latency is a duration of the requests that completed, and the share of all
// measured ones that were refused. They are one value, so that none is shown
// without the other: a server that refuses half its load must not look faster for
// it.
type Latency struct {
	Stats
	Rejected Share `json:"rejected"`
}

// Describe computes the Stats of values, which it sorts.
func Describe(values []float64) Stats {
	slices.Sort(values)
	n := len(values)
	s := Stats{N: n}
	for _, q := range []struct {
		p  float64
		to *Quantile
	}{{.50, &s.P50}, {.90, &s.P90}, {.95, &s.P95}, {.99, &s.P99}} {
		*q.to = quantile(values, q.p)
	}
	if n == 0 {
		s.Absent = "no values"
		return s
	}
	least, most := values[0], values[n-1]
	s.Mean, s.Min, s.Max = mean(values), &least, &most
	return s
}

// mean is nil of nothing.
func mean(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	m := sum / float64(len(values))
	return &m
}

func quantile(sorted []float64, p float64) Quantile {
	n := len(sorted)
	if n < Floor(p) {
		return Quantile{Absent: fmt.Sprintf("n too small (needs %d one-sided, %d two-sided)", leastFor(p, alpha), Floor(p))}
	}
	q := Quantile{}
	v := Interpolate(sorted, p)
	q.Value = &v
	if r, ok := IntervalRanks(n, p); ok {
		low, high := sorted[r.Low-1], sorted[r.High-1]
		q.Low, q.High, q.Ranks = &low, &high, &r
	}
	return q
}

// Interpolate is the quantile at rank (n-1)p, linear between neighbours:
// definition 7 of Hyndman and Fan, NumPy's default. sorted is ascending and not
// empty, 0 ≤ p ≤ 1.
func Interpolate(sorted []float64, p float64) float64 {
	rank := float64(len(sorted)-1) * p
	i := int(rank)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (rank-float64(i))*(sorted[i+1]-sorted[i])
}

// Floor is the least n for which the quantile p has a two-sided interval of
// order statistics: the least n with max(p, 1-p)^n ≤ (1-Confidence)/2. It is 6
// for p50, 36 for p90, 72 for p95 and 368 for p99.
func Floor(p float64) int { return leastFor(p, alpha/2) }

// leastFor is the least n for which an extreme value bounds the quantile p, missing
// it with the probability tail at most: with all of alpha on one side it is the floor
// of a bound alone, 5, 29, 59 and 299.
func leastFor(p, tail float64) int {
	n := int(math.Log(tail)/math.Log(max(p, 1-p))) - 1
	for math.Pow(max(p, 1-p), float64(n)) > tail {
		n++
	}
	return n
}

// IntervalRanks are the order statistics that bound the quantile p of n values
// with at least Confidence, half of the rest on each side; ok is false if n is
// below the floor. With B the number of values below the quantile, binomial
// (n, p): low is the greatest l with P(B < l) ≤ α/2, high the least u with
// P(B ≥ u) ≤ α/2.
func IntervalRanks(n int, p float64) (r Ranks, ok bool) {
	r.Low = lowRank(n, p)
	// The upper end is the lower end of the mirrored problem.
	r.High = n + 1 - lowRank(n, 1-p)
	return r, r.Low >= 1 && r.High <= n
}

// lowRank is the greatest l with P(B ≤ l-1) ≤ α/2; 0 if there is none.
func lowRank(n int, p float64) int {
	logGamma := func(x int) float64 {
		v, _ := math.Lgamma(float64(x) + 1)
		return v
	}
	// Forty deviations below the mean there is less than float64 resolves.
	mean := float64(n) * p
	from := max(0, int(mean-40*math.Sqrt(mean*(1-p))))
	below := 0.0
	for k := from; k <= n; k++ {
		below += math.Exp(logGamma(n) - logGamma(k) - logGamma(n-k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
		if below > alpha/2 {
			return k
		}
	}
	return n
}

// Share is a proportion with its 95 % Wilson interval.
type Share struct {
	Count int      `json:"count"`
	Of    int      `json:"of"`
	Value *float64 `json:"value"` // null of nothing
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// Proportion is count of n with the score interval of Wilson (1927).
func Proportion(count, n int) Share {
	s := Share{Count: count, Of: n}
	if n == 0 {
		return s
	}
	const z = 1.959963984540054 // normal quantile of (1+Confidence)/2
	p, m := float64(count)/float64(n), float64(n)
	centre := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	low, high := max(0, centre-half), min(1, centre+half)
	// Exact at the ends, where rounding would leave a trace.
	if count == 0 {
		low = 0
	}
	if count == n {
		high = 1
	}
	s.Value, s.Low, s.High = &p, &low, &high
	return s
}
