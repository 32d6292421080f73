package ledger

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// A piece that takes longer than all others keeps its place, and the others do not
// run away from it.
func TestInOrder(t *testing.T) {
	const n, workers = 100, 2
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
	const most = workers + 2
	var begun atomic.Int64
	slow := func(i int) int {
		begun.Add(1)
		if i == 0 {
			for begun.Load() < most {
				runtime.Gosched()
			}
			time.Sleep(10 * time.Millisecond) // room for what must not happen
			if ahead := begun.Load(); ahead > most {
				t.Errorf("%d pieces were begun before the first had ended", ahead)
			}
		}
		return i
	}
	var got []int
	for i := range inOrder(n, func() func(int) int { return slow }) {
		got = append(got, i)
	}
	if len(got) != n || !slices.IsSorted(got) {
		t.Errorf("the pieces came as %v", got)
	}
}

func TestInOrderEnds(t *testing.T) {
	const workers = 2
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
	var done atomic.Int64
	for i := range inOrder(1000, func() func(int) int { return func(i int) int { done.Add(1); return i } }) {
		if i == 3 {
			break
		}
	}
	if n := done.Load(); n > 4+workers+2 {
		t.Errorf("%d pieces were done for a reader of 4", n)
	}
	for range inOrder(0, func() func(int) int { return func(i int) int { return i } }) {
		t.Error("something came of nothing")
	}
}
