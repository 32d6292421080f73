package metrics

import (
	"math"
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
	for p, want := range map[float64]int{.5: 6, .9: 36, .95: 72, .99: 368, .999: 3688} {
		if got := Floor(p); got != want {
			t.Errorf("floor of p%g is %d, want %d", 100*p, got, want)
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
	for name, q := range map[string]Quantile{"n too small (needs 72)": s.P95, "n too small (needs 368)": s.P99} {
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
	}{{0, 100, 0, .0370}, {3, 1000, .0010, .0088}, {100, 100, .9630, 1}} {
		got := Proportion(c.count, c.n)
		if math.Abs(*got.Low-c.low) > 5e-5 || math.Abs(*got.High-c.high) > 5e-5 {
			t.Errorf("%d/%d: [%v, %v], want [%v, %v]", c.count, c.n, *got.Low, *got.High, c.low, c.high)
		}
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
