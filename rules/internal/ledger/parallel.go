package ledger

import (
	"iter"
	"runtime"
	"sync"
)

// inOrder does n pieces of work on GOMAXPROCS goroutines, which have ended when the
// iteration has, and yields the results in order. It is never far ahead of its
// reader.
func inOrder[T any](n int, worker func() func(int) T) iter.Seq[T] {
	return func(yield func(T) bool) {
		workers := runtime.GOMAXPROCS(0)
		// Piece i comes through ready[i%len(ready)]. It is given out when the one before
		// it there was taken, so nobody waits to hand over.
		ready := make([]chan T, workers+2)
		for i := range ready {
			ready[i] = make(chan T, 1)
		}
		todo := make(chan int, len(ready))
		var running sync.WaitGroup
		defer running.Wait()
		defer close(todo)
		for range workers {
			running.Go(func() {
				do := worker()
				for i := range todo {
					ready[i%len(ready)] <- do(i)
				}
			})
		}
		given := 0
		for i := range n {
			for ; given < min(n, i+len(ready)); given++ {
				todo <- given
			}
			if !yield(<-ready[i%len(ready)]) {
				return
			}
		}
	}
}
