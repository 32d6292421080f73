//go:build unix && !linux

package supervise

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// AllowedCPUs lists the CPUs this process may run on. Without an affinity
// interface these are all of them.
func AllowedCPUs() ([]int, error) {
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus, nil
}

func pinned(cpus []int, start func() error) error {
	if len(cpus) > 0 {
		return fmt.Errorf("CPUs %v were asked for, but %s has no CPU affinity; leave the CPU set out", cpus, runtime.GOOS)
	}
	return start()
}

func groupAlive(pgid int) bool {
	return !errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH)
}
