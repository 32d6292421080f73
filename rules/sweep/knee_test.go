package sweep

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// curve makes points of a law: what is completed and how long it takes at each load.
func curve(law func(load float64) (throughput, latency float64), loads ...float64) []point {
	var list []point
	for _, load := range loads {
		p := point{name: fmt.Sprintf("cell%v", load), load: load}
		p.throughput, p.latency = law(load)
		list = append(list, p)
	}
	return list
}

// repeated gives each point samples of its power, spread evenly by a share of it.
func repeated(points []point, n int, spread float64) []point {
	points = slices.Clone(points)
	for i, p := range points {
		points[i].samples = nil
		for k := range n {
			points[i].samples = append(points[i].samples, p.power()*(1+spread*(2*float64(k)/float64(n-1)-1)))
		}
	}
	return points
}

var (
	closed = Workload{Axis: Concurrency}
	open   = Workload{Axis: RequestRate}
)

// Where power is greatest is known in closed form for these.
func TestKneeOfKnownServers(t *testing.T) {
	mm1 := func(capacity float64) func(float64) (float64, float64) { // one queue, random arrivals: half the capacity
		return func(rate float64) (float64, float64) { return rate, 1 / (capacity - rate) }
	}
	balanced := func(stations float64) func(float64) (float64, float64) { // exact mean value analysis: stations - 1
		return func(n float64) (float64, float64) { return n / (n + stations - 1), n + stations - 1 }
	}
	lanes := func(lanes float64) func(float64) (float64, float64) { // full speed until saturated: as many as there are lanes
		return func(n float64) (float64, float64) { return min(n, lanes), max(1, n/lanes) }
	}
	for _, test := range []struct {
		name            string
		w               Workload
		points          []point
		knee, low, high float64
	}{
		{"M/M/1", open, curve(mm1(10), 1, 2, 3, 4, 5, 6, 7, 8, 9), 5, 4, 6},
		{"M/M/1, uneven loads", open, curve(mm1(10), 1, 4.5, 9), 4.5, 1, 9},
		{"five balanced stations", closed, curve(balanced(5), 1, 2, 3, 4, 5, 6, 8), 4, 3, 5},
		{"four lanes", closed, curve(lanes(4), 1, 2, 4, 8, 16), 4, 2, 8},
		{"one lane", closed, curve(lanes(1), 1, 2, 4), 1, 1, 2},
	} {
		for _, points := range [][]point{test.points, repeated(test.points, 5, 0.001)} {
			k := findKnee(test.w, points)
			if k.Load == nil || *k.Load != test.knee || *k.Low != test.low || *k.High != test.high || k.Absent != "" {
				t.Errorf("%s: %+v, want %v between %v and %v", test.name, k, test.knee, test.low, test.high)
				continue
			}
			if estimate := k.Note != ""; estimate != (points[0].samples == nil) || k.Cell != fmt.Sprintf("cell%v", test.knee) {
				t.Errorf("%s: %+v", test.name, k)
			}
		}
	}
}

// No knee where there are too few points, where no peak was seen, or where the noise
// is as great as the differences.
func TestKneeThatNobodyCanTell(t *testing.T) {
	rising := curve(func(n float64) (float64, float64) { return n, 1 }, 1, 2, 4, 8)
	falling := curve(func(n float64) (float64, float64) { return 1, n }, 2, 4, 8)
	peak := curve(func(n float64) (float64, float64) { return min(n, 4), max(1, n/4) }, 1, 2, 4, 8)
	twice := curve(func(n float64) (float64, float64) { return n, map[float64]float64{1: 1, 2: .5, 3: 3, 4: 1, 5: 9}[n] }, 1, 2, 3, 4, 5)
	near := curve(func(n float64) (float64, float64) { return map[float64]float64{1: 1, 2: 3, 3: 3.1, 4: 1}[n], 1 }, 1, 2, 3, 4)
	over := slices.Clone(peak)
	over[0].overloaded = true
	for _, test := range []struct {
		name   string
		points []point
		want   string
	}{
		{"none", nil, "0 of the loads can be judged (needs 3)"},
		{"two", peak[1:3], "2 of the loads can be judged (needs 3)"},
		{"rising", rising, "power still rises at the highest load, c=8"},
		{"falling", falling, "power falls from the lowest load on, c=2"},
		{"two peaks", twice, "power rises and falls more than once"},
		{"two peaks beyond doubt", repeated(twice, 5, .01), "power rises and falls more than once"},
		{"noise", repeated(near, 5, .2), "power at c=2 may be as great as at c=3"},
		{"overload at once", over, "too many errors from the lowest load on, c=1"},
	} {
		if k := findKnee(closed, test.points); k.Load != nil || k.Low != nil || k.High != nil || k.Absent != "cannot tell: "+test.want {
			t.Errorf("%s: %+v, want %q", test.name, k, test.want)
		}
	}
	// A dip within the noise is no second peak.
	dip := curve(func(n float64) (float64, float64) { return map[float64]float64{1: 1, 2: .99, 3: 5, 4: 1}[n], 1 }, 1, 2, 3, 4)
	if k := findKnee(closed, repeated(dip, 5, .1)); k.Load == nil || *k.Load != 3 {
		t.Errorf("a dip within the noise: %+v", k)
	}
}

// A cell of which too much was refused looks fast: it bounds the knee and never is it.
func TestOverloadIsNoKnee(t *testing.T) {
	points := curve(func(n float64) (float64, float64) { return n, 1 }, 1, 2, 4, 8)
	points[2].overloaded = true
	k := findKnee(closed, points)
	if k.Load == nil || *k.Load != 2 || *k.Low != 1 || *k.High != 4 {
		t.Errorf("%+v", k)
	}
	// What it measured does not matter, as long as it was overloaded.
	points[2].throughput, points[2].latency = 0, 0
	if again := findKnee(closed, points); *again.Load != *k.Load || *again.High != *k.High {
		t.Errorf("%+v", again)
	}
}

// A knee is a measured load inside its bracket; it stays where it is in other units
// and when cells of higher load are added behind a peak.
func TestKneeIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 8).Draw(t, "n")
		var points []point
		load := 1.0
		for i := range n {
			points = append(points, point{
				name: fmt.Sprint(i), load: load, throughput: rapid.Float64Range(.01, 100).Draw(t, "throughput"),
				latency: rapid.Float64Range(.001, 100).Draw(t, "latency"), overloaded: rapid.IntRange(0, 9).Draw(t, "overloaded") == 0,
			})
			load += float64(rapid.IntRange(1, 8).Draw(t, "step"))
		}
		k := findKnee(closed, points)
		if (k.Load == nil) != strings.HasPrefix(k.Absent, "cannot tell: ") {
			t.Fatalf("%+v", k)
		}
		if k.Load == nil {
			return
		}
		at := slices.IndexFunc(points, func(p point) bool { return p.load == *k.Load })
		if at < 0 || points[at].overloaded || points[at].name != k.Cell || *k.Low > *k.Load || *k.High <= *k.Load {
			t.Fatalf("%+v of %+v", k, points)
		}
		for i := range points {
			points[i].latency *= 1000
			points[i].throughput *= 60
		}
		if scaled := findKnee(closed, points); scaled.Load == nil || *scaled.Load != *k.Load {
			t.Fatalf("in other units: %+v, was %+v", scaled, k)
		}
		last := points[len(points)-1]
		last.load, last.latency, last.overloaded = last.load*2, last.latency*2, false
		if last.power() == 0 || math.IsInf(last.power(), 0) {
			return
		}
		if more := findKnee(closed, append(points, last)); more.Load == nil || *more.Load != *k.Load {
			t.Fatalf("with a cell more: %+v, was %+v", more, k)
		}
	})
}
