package stats

import (
	"math"
	"slices"
)

// Shift is the estimate of Hodges and Lehmann (1963): a median of all pairwise
// means or differences. A stray value moves it little, however far it strays.
type Shift struct {
	Value float64 `json:"value"`
	// Interval assumes no distribution: it inverts a rank test (Hollander and Wolfe,
	// Nonparametric Statistical Methods, sections 3.3 and 4.3). It is nil where there
	// are too few values for the confidence.
	Interval *Interval `json:"interval"`
}

// exactMost bounds the number of values whose rank distribution is counted out;
// above it the normal distribution is as good.
const exactMost = 50

// PairedShift is that of paired differences d, one or more, which it sorts: the
// median of the means of all pairs, each value with itself too. The interval takes
// the differences to be symmetric about their centre.
func PairedShift(d []float64, confidence float64) Shift {
	slices.Sort(d)
	n := len(d)
	count := func(v float64) int { // pairs i ≤ j with a mean of at most v
		total, j := 0, n-1
		for i := range n {
			for j >= i && d[i]+d[j] > 2*v {
				j--
			}
			if j < i {
				break
			}
			total += j - i + 1
		}
		return total
	}
	m := n * (n + 1) / 2
	rank := 0
	if n <= exactMost {
		rank = lowerRank(signedRanks(n), (1-confidence)/2)
	} else {
		rank = normalRank(float64(m)/2, math.Sqrt(float64(m)*float64(2*n+1)/12), (1-confidence)/2)
	}
	return shift(m, rank, d[0], d[n-1], confidence, count)
}

// TwoSampleShift is that of b beside a, one value or more each, which it sorts: the
// median of all differences of a value of b and one of a. The interval takes the
// two to be alike but for the shift.
func TwoSampleShift(a, b []float64, confidence float64) Shift {
	slices.Sort(a)
	slices.Sort(b)
	count := func(v float64) int { // pairs with a difference of at most v
		total, j := 0, 0
		for _, x := range a {
			for j < len(b) && b[j]-x <= v {
				j++
			}
			total += j
		}
		return total
	}
	m, all := len(a)*len(b), len(a)+len(b)
	rank := 0
	if all <= exactMost {
		rank = lowerRank(mannWhitney(len(a), len(b)), (1-confidence)/2)
	} else {
		rank = normalRank(float64(m)/2, math.Sqrt(float64(m)*float64(all+1)/12), (1-confidence)/2)
	}
	return shift(m, rank, b[0]-a[len(a)-1], b[len(b)-1]-a[0], confidence, count)
}

// shift takes the median of m values between low and high, and as its interval the
// rank-th from either end.
func shift(m, rank int, low, high, confidence float64, count func(float64) int) Shift {
	at := func(k int) float64 { return kth(k, low, high, count) }
	s := Shift{Value: at((m + 1) / 2)}
	if m%2 == 0 {
		s.Value += (at(m/2+1) - s.Value) / 2
	}
	if rank > 0 {
		s.Interval = &Interval{at(rank), at(m + 1 - rank), confidence}
	}
	return s
}

// kth is the k-th smallest, from 1, of values between low and high, of which count
// says how many are not above v. Halving finds it without listing the values.
func kth(k int, low, high float64, count func(v float64) int) float64 {
	if count(low) >= k {
		return low
	}
	for {
		mid := low + (high-low)/2
		if mid <= low || mid >= high {
			return high
		}
		if count(mid) >= k {
			high = mid
		} else {
			low = mid
		}
	}
}

// lowerRank is the greatest r with P(X < r) ≤ tail, X having these probabilities at
// 0, 1, …
func lowerRank(p []float64, tail float64) int {
	below := 0.0
	for r, x := range p {
		if below += x; below > tail {
			return r
		}
	}
	return len(p)
}

// normalRank is lowerRank by the normal distribution, with the correction for
// continuity.
func normalRank(mean, deviation, tail float64) int {
	return int(math.Floor(mean + .5 + deviation*math.Sqrt2*math.Erfinv(2*tail-1)))
}

// signedRanks is the distribution of Wilcoxon's signed rank statistic: the sum of
// those of the ranks 1 to n that a fair coin picks.
func signedRanks(n int) []float64 {
	p := make([]float64, n*(n+1)/2+1)
	p[0] = 1
	for rank := 1; rank <= n; rank++ {
		for sum := len(p) - 1; sum >= 0; sum-- {
			p[sum] /= 2
			if sum >= rank {
				p[sum] += p[sum-rank] / 2
			}
		}
	}
	return p
}

// mannWhitney is the distribution of the number of pairs in which the value of the
// first sample, of n, is the greater (Mann and Whitney 1947): the greatest value of
// all is the first's with probability n/(n+m), and then wins m times.
func mannWhitney(n, m int) []float64 {
	rows := make([][]float64, m+1) // for the present n, by the size of the second sample
	for j := range rows {
		rows[j] = []float64{1}
	}
	for i := 1; i <= n; i++ {
		for j := 1; j <= m; j++ {
			next := make([]float64, i*j+1)
			first := float64(i) / float64(i+j)
			for u, p := range rows[j] {
				next[u+j] += first * p
			}
			for u, p := range rows[j-1] {
				next[u] += (1 - first) * p
			}
			rows[j] = next
		}
	}
	return rows[m]
}
