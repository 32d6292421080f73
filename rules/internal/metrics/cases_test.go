package metrics

import "testing"

// A public tool reported the maximum of 71 values as their p99: between twelve equal
// runs it moved by 23.5 %, the mean by 8.5 %.
func TestO14HighPercentileOfFewValues(t *testing.T) {
	s := Describe(upTo(71))
	if *s.P50.Value != 36 || *s.P50.Ranks != (Ranks{27, 45}) || *s.P50.Low != 27 || *s.P50.High != 45 {
		t.Errorf("p50 %+v", s.P50)
	}
	if *s.P90.Ranks != (Ranks{59, 69}) {
		t.Errorf("p90 %+v", s.P90)
	}
	if q := s.P99; q.Value != nil || q.Low != nil || q.High != nil || q.Absent != "n too small (needs 299 one-sided, 368 two-sided)" {
		t.Errorf("p99 %+v", q)
	}
	if *s.Max != 71 || *s.Mean != 36 {
		t.Errorf("the maximum is %v and the mean %v", *s.Max, *s.Mean)
	}
	if r := Describe(upTo(1000)).P99.Ranks; r == nil || *r != (Ranks{983, 997}) {
		t.Errorf("p99 of 1000 values has the ranks %v", r)
	}
	// Never the maximum in its place, however many values lack.
	for n := 1; n < 368; n++ {
		if q := Describe(upTo(n)).P99; q.Value != nil || q.Absent == "" {
			t.Fatalf("p99 of %d values is %v", n, *q.Value)
		}
	}
	if Describe(upTo(368)).P99.Value == nil {
		t.Error("368 values are enough for p99")
	}
}
