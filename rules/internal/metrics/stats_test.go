package metrics

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func upTo(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i + 1)
	}
	return v
}

func TestInterpolationIsStated(t *testing.T) {
	for _, c := range []struct{ p, want float64 }{{0, 1}, {.5, 50.5}, {.99, 99.01}, {1, 100}} {
		if got := Interpolate(upTo(100), c.p); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("p%g of 1..100 is %v, want %v", 100*c.p, got, c.want)
		}
	}
}

func TestSampleFloor(t *testing.T) {
	for p, want := range map[float64][2]int{.5: {5, 6}, .9: {29, 36}, .95: {59, 72}, .99: {299, 368}, .999: {2995, 3688}} {
		if got := [2]int{leastFor(p, alpha), Floor(p)}; got != want {
			t.Errorf("floors of p%g are %d, want %d", 100*p, got, want)
		}
	}
}

func TestIntervalRanks(t *testing.T) {
	for _, c := range []struct {
		n    int
		p    float64
		want Ranks
	}{
		{71, .5, Ranks{27, 45}}, {71, .9, Ranks{59, 69}},
		{100, .5, Ranks{40, 61}}, {100, .9, Ranks{84, 96}}, {100, .95, Ranks{90, 100}},
		{368, .99, Ranks{360, 368}},
		{1000, .5, Ranks{469, 532}}, {1000, .9, Ranks{881, 919}}, {1000, .95, Ranks{936, 964}}, {1000, .99, Ranks{983, 997}},
		{10000, .99, Ranks{9880, 9920}},
	} {
		if got, ok := IntervalRanks(c.n, c.p); !ok || got != c.want {
			t.Errorf("n=%d p%g: %v %v, want %v", c.n, 100*c.p, got, ok, c.want)
		}
	}
	if r, ok := IntervalRanks(100, .99); ok {
		t.Errorf("n=100 has no upper bound for p99, got %v", r)
	}
}

// The floor is exactly where the interval begins to exist.
func TestFloorAndIntervalAgree(t *testing.T) {
	for _, p := range []float64{.5, .9, .95, .99} {
		for n := 1; n < 2*Floor(p); n++ {
			if _, ok := IntervalRanks(n, p); ok != (n >= Floor(p)) {
				t.Errorf("n=%d p%g: interval %v", n, 100*p, ok)
			}
		}
	}
}

// A public tool reported the maximum of 71 values as their p99.
func TestHighPercentileOfFewValuesIsAbsent(t *testing.T) {
	s := Describe(upTo(71))
	if *s.P50.Value != 36 || *s.P50.Low != 27 || *s.P50.High != 45 {
		t.Errorf("p50 %+v", s.P50)
	}
	if *s.P90.Ranks != (Ranks{59, 69}) {
		t.Errorf("p90 ranks %v", s.P90.Ranks)
	}
	for name, q := range map[string]Quantile{"n too small (needs 59 one-sided, 72 two-sided)": s.P95, "n too small (needs 299 one-sided, 368 two-sided)": s.P99} {
		if q.Value != nil || q.Absent != name {
			t.Errorf("got %+v, want %q", q, name)
		}
	}
	if s := Describe(upTo(1000)); *s.P99.Ranks != (Ranks{983, 997}) {
		t.Errorf("p99 ranks %v", s.P99.Ranks)
	}
}

func TestNothingIsNotZero(t *testing.T) {
	s := Describe(nil)
	if s.N != 0 || s.Mean != nil || s.Min != nil || s.Max != nil || s.P50.Value != nil || s.Absent == "" {
		t.Errorf("%+v", s)
	}
	if p := Proportion(0, 0); p.Value != nil || p.Low != nil {
		t.Errorf("%+v", p)
	}
}

func TestWilson(t *testing.T) {
	for _, c := range []struct {
		count, n  int
		low, high float64
	}{{0, 100, 0, .0370}, {3, 1000, .0010, .0088}, {100, 100, .9630, 1}, {1, 29, .0061, .1718}, {81, 263, .2553, .3662}} {
		got := Proportion(c.count, c.n)
		if math.Abs(*got.Low-c.low) > 5e-5 || math.Abs(*got.High-c.high) > 5e-5 {
			t.Errorf("%d/%d: [%v, %v], want [%v, %v]", c.count, c.n, *got.Low, *got.High, c.low, c.high)
		}
	}
}

// The ranks of p and of 1-p mirror each other, both move up with p, and the quantile
// lies between them.
func TestIntervalRanksMirror(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, p := rapid.IntRange(1, 3000).Draw(t, "n"), float64(rapid.IntRange(1, 999).Draw(t, "per mille"))/1000
		r, ok := IntervalRanks(n, p)
		if m, mirrored := IntervalRanks(n, 1-p); mirrored != ok || m.Low != n+1-r.High || m.High != n+1-r.Low {
			t.Fatalf("p%g: %v, p%g: %v", 100*p, r, 100-100*p, m)
		}
		if !ok {
			return
		}
		if at := float64(n-1)*p + 1; float64(r.Low) > at || float64(r.High) < at {
			t.Fatalf("rank %g is not in %v", at, r)
		}
		if higher, ok := IntervalRanks(n, min(1, p+.001)); ok && (higher.Low < r.Low || higher.High < r.High) {
			t.Fatalf("p%g: %v, a little higher: %v", 100*p, r, higher)
		}
		// By definition: P(B < low) and P(B ≥ high) are at most 2.5 %, and one rank
		// further in would be more.
		below := func(k int) (sum float64) {
			for i := range k {
				sum += math.Exp(logBinomial(n, i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
			}
			return sum
		}
		const tail, rounding = alpha / 2, 1e-9
		if below(r.Low) > tail+rounding || below(r.Low+1) < tail-rounding || 1-below(r.High) > tail+rounding || 1-below(r.High-1) < tail-rounding {
			t.Fatalf("n=%d p%g: %v", n, 100*p, r)
		}
	})
}

func logBinomial(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// Intervals of percentiles and of shares hold the true value at least as often as
// they say, to within four deviations of the count. Seeded: the same every time.
func TestCoverage(t *testing.T) {
	const runs, n = 2000, 400
	random := rand.New(rand.NewPCG(3, 5))
	held, shares := map[string]int{}, 0
	for range runs {
		values, good := make([]float64, n), 0
		for i := range values {
			if values[i] = random.ExpFloat64(); values[i] < 1 {
				good++
			}
		}
		s := Describe(values)
		for _, q := range []struct {
			name string
			p    float64
			Quantile
		}{{"p50", .5, s.P50}, {"p90", .9, s.P90}, {"p95", .95, s.P95}, {"p99", .99, s.P99}} {
			if truth := -math.Log1p(-q.p); *q.Low <= truth && truth <= *q.High {
				held[q.name]++
			}
		}
		if w := Proportion(good, n); *w.Low <= 1-1/math.E && 1-1/math.E <= *w.High {
			shares++
		}
	}
	least := .95 - 4*math.Sqrt(.05*.95/runs)
	for name, count := range held {
		if share := float64(count) / runs; share < least || share > .99 {
			t.Errorf("%s: held in %.1f %%", name, 100*share)
		}
	}
	// Wilson's is centred on 95 %, not bounded by it.
	if share := float64(shares) / runs; share < least || share > .97 {
		t.Errorf("share: held in %.1f %%", 100*share)
	}
}

func TestStatsAreOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 1, 600).Draw(t, "values")
		s := Describe(v)
		last := *s.Min
		for _, q := range []Quantile{s.P50, s.P90, s.P95, s.P99} {
			if q.Value == nil {
				continue
			}
			if *q.Value < last || *q.Low > *q.Value || *q.High < *q.Value || *q.High > *s.Max {
				t.Fatalf("%+v", s)
			}
			last = *q.Value
		}
	})
}
