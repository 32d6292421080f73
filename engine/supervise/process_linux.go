package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	want := pgid
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		p, ok := parseStat(stat)
		if ok && p.group == want && !p.dead {
			return true
		}
	}
	return false
}

// procStat is the part of /proc/<pid>/stat that matters here.
type procStat struct {
	parent, group int
	// dead says that nothing of the process runs. A killed process whose first
	// thread is gone shows as a zombie while its other threads still end, and
	// until they have it holds its files and ports.
	dead bool
}

// parseStat reads "pid (comm) state ppid pgrp …" (proc_pid_stat(5)); comm may hold
// anything, also ")".
func parseStat(stat []byte) (p procStat, ok bool) {
	const state, ppid, pgrp, threads = 0, 1, 2, 17
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= threads {
		return p, false
	}
	var numbers [3]int
	for i, field := range []int{ppid, pgrp, threads} {
		n, err := strconv.Atoi(fields[field])
		if err != nil {
			return p, false
		}
		numbers[i] = n
	}
	p.parent, p.group = numbers[0], numbers[1]
	p.dead = strings.ContainsAny(fields[state], "ZX") && numbers[2] <= 1
	return p, true
}
