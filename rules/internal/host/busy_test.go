package host

import (
	"slices"
	"testing"
	"time"
)

func TestBusyOfASetOfCPUs(t *testing.T) {
	const stat = "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 100 0 50 1000 5 3 2 9 0 0\ncpu1 10 0 5 1000 5 0 0 9 0 0\ncpu11 7 0 0 0 0 0 0 0 0 0\nintr 1\n"
	for _, c := range []struct {
		cpus []int
		want time.Duration
		ok   bool
	}{
		{[]int{0}, 1550 * time.Millisecond, true},
		{[]int{0, 1}, 1700 * time.Millisecond, true},
		{[]int{11}, 70 * time.Millisecond, true},
		{[]int{0, 2}, 0, false},
		{nil, 0, false},
	} {
		if got, ok := parseBusy(stat, c.cpus); got != c.want || ok != c.ok {
			t.Errorf("%v: %s %v, want %s %v", c.cpus, got, ok, c.want, c.ok)
		}
	}
	if _, ok := parseBusy("", []int{0}); ok {
		t.Error("nothing says how busy a CPU was")
	}
}

// However long a run is, its series is short and spans it.
func TestBusyLogStaysShort(t *testing.T) {
	var l BusyLog
	const calls = 100_000
	for i := range int64(calls) {
		l.Add(Busy{WallNS: i})
	}
	walls := make([]int64, len(l.Readings))
	for i, r := range l.Readings {
		walls[i] = r.WallNS
	}
	step := walls[1] - walls[0]
	for i := range walls {
		if walls[i] != int64(i)*step {
			t.Fatalf("readings are not evenly apart: %v", walls)
		}
	}
	if len(walls) >= maxReadings || len(walls) < maxReadings/2 || walls[len(walls)-1] < calls-step || !slices.IsSorted(walls) {
		t.Errorf("%d readings, the last at %d", len(walls), walls[len(walls)-1])
	}
}
