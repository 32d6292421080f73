package stats

import "math"

// StudentQuantile is the value that Student's t distribution with df degrees of
// freedom, df > 0, exceeds with probability 1-p, for 0.5 < p < 1.
func StudentQuantile(p, df float64) float64 {
	low, high := 0.0, 1.0
	for studentTails(high, df) > 2*(1-p) {
		low, high = high, 2*high
	}
	for range 200 {
		mid := low + (high-low)/2
		if mid == low || mid == high {
			break
		}
		if studentTails(mid, df) > 2*(1-p) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// studentTails is P(|T| > t) for t ≥ 0 (Abramowitz and Stegun, 26.7.1 with
// 26.5.27).
func studentTails(t, df float64) float64 { return betaRatio(df/(df+t*t), df/2, 0.5) }

// betaRatio is the regularized incomplete beta function I_x(a, b).
func betaRatio(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2): // where the fraction converges slowly
		return 1 - betaRatio(1-x, b, a)
	}
	gamma := func(v float64) float64 { g, _ := math.Lgamma(v); return g }
	front := math.Exp(gamma(a+b) - gamma(a) - gamma(b) + a*math.Log(x) + b*math.Log1p(-x))
	return front * betaFraction(x, a, b) / a
}

// betaFraction is the continued fraction of the incomplete beta function
// (Abramowitz and Stegun, 26.5.8), by Lentz's method.
func betaFraction(x, a, b float64) float64 {
	const tiny, enough = 1e-300, 1e-16
	nonzero := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/nonzero(1-(a+b)*x/(a+1))
	f := d
	for i := range 10_000 {
		m := float64(i + 1)
		for _, k := range []float64{
			m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)),
			-(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)),
		} {
			d = 1 / nonzero(1+k*d)
			c = nonzero(1 + k/c)
			f *= c * d
		}
		if math.Abs(c*d-1) < enough {
			break
		}
	}
	return f
}
