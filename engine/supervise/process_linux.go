package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// AllowedCPUs lists the CPUs this process may run on, ascending.
func AllowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPU affinity: %w", err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// pinned calls start with the calling thread bound to cpus, which need not be
// among those of this process: a server bound to one set starts workers on
// another. The thread must be locked.
func pinned(cpus []int, start func() error) error {
	if len(cpus) == 0 {
		return start()
	}
	var before, set, got unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read the CPU affinity: %w", err)
	}
	for _, cpu := range cpus {
		set.Set(cpu)
		if cpu < 0 || !set.IsSet(cpu) { // CPUSet drops what it cannot hold
			return fmt.Errorf("there is no CPU %d", cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to CPUs %v: %w", cpus, err)
	}
	err := unix.SchedGetaffinity(0, &got)
	if err == nil && got != set { // the kernel quietly drops what it cannot give
		err = fmt.Errorf("bind to CPUs %v: not all of them may be used here", cpus)
	}
	if err == nil {
		err = start()
	}
	// The thread may be the process's first, whose affinity is shown as the
	// process's own.
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

// groupAlive reports whether the group has a process that is not a zombie.
// Zombies count for kill(2), and where process 1 does not reap them they stay.
func groupAlive(pgid int) bool {
	if err := syscall.Kill(-pgid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return true
	}
	want := []byte(strconv.Itoa(pgid))
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		// pid (comm) state ppid pgrp …; comm may hold anything, also ")".
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 2 && bytes.Equal(fields[2], want) && !bytes.ContainsAny(fields[0], "ZX") {
			return true
		}
	}
	return false
}
