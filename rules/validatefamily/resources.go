package validatefamily

import (
	"fmt"
	"regexp"

	"assay/rules/internal/host"
)

// OutOfMemoryError says that the machine was too small. It is no verdict: it says
// nothing about the model, and holds for this machine only, so nothing is stored.
type OutOfMemoryError struct{ Err error }

func (e *OutOfMemoryError) Error() string {
	return fmt.Sprintf("out of memory, which is a limit of this machine and says nothing about the model: %v", e.Err)
}

// Brief is what stands where a verdict is missing.
func (e *OutOfMemoryError) Brief() string { return "out of memory, a limit of the machine" }

func (e *OutOfMemoryError) Unwrap() error { return e.Err }

// exhausted is how engines say that memory did not suffice.
var exhausted = regexp.MustCompile(`(?i)out of memory|MemoryError|bad_alloc|cannot allocate memory|failed to allocate|cudaMalloc failed|unable to allocate`)

// memory watches for the want of it.
type memory struct{ kills int64 }

func watchMemory() memory { return memory{host.OutOfMemoryKills()} }

// check tells an error that comes from want of memory from any other: the engine
// says so, or the kernel killed for it since the watch began.
func (m memory) check(err error) error {
	if err != nil && (exhausted.MatchString(err.Error()) || host.OutOfMemoryKills() > m.kills) {
		return &OutOfMemoryError{err}
	}
	return err
}
