package main

import (
	"math"
	"slices"
)

// quantiles summarise a sample, in µs. Without enough values a percentile is
// absent: below 368 the 99th has no upper bound at 95 %, two-sided.
type quantiles struct {
	N   int      `json:"n"`
	P50 *float64 `json:"p50,omitempty"`
	P99 *float64 `json:"p99,omitempty"`
	Max *float64 `json:"max,omitempty"`
}

// quantilesOf takes ns.
func quantilesOf(ns []int64) quantiles {
	q := quantiles{N: len(ns)}
	if q.N == 0 {
		return q
	}
	sorted := make([]float64, len(ns))
	for i, v := range ns {
		sorted[i] = float64(v) / 1e3
	}
	slices.Sort(sorted)
	keep := func(v float64) *float64 { v = math.Round(v*100) / 100; return &v }
	q.P50, q.Max = keep(percentile(sorted, 0.5)), keep(sorted[q.N-1])
	if q.N >= 368 {
		q.P99 = keep(percentile(sorted, 0.99))
	}
	return q
}

// percentile interpolates linearly at rank (n-1)p of sorted values; NaN of none.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := p * float64(len(sorted)-1)
	below := int(rank)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + (rank-float64(below))*(sorted[below+1]-sorted[below])
}

// slope is the least-squares slope of y over x; 0 where x does not vary.
func slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}
