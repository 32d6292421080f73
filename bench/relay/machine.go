package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// What /proc says. A file that cannot be read counts as empty: a process may end
// between two looks.

func fields(path string) []string {
	data, _ := os.ReadFile(path)
	return strings.Fields(string(data))
}

// tree lists a process and its descendants.
func tree(pid int) []int {
	all := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		for _, f := range fields(path) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, tree(child)...)
			}
		}
	}
	return all
}

// cpuOf is the CPU time of the processes' threads so far.
func cpuOf(pids []int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, path := range tasks {
			if f := fields(path); len(f) > 0 {
				ns, _ := strconv.ParseInt(f[0], 10, 64)
				sum += time.Duration(ns)
			}
		}
	}
	return sum
}

// load is the load average over one minute.
func load() float64 {
	f := fields("/proc/loadavg")
	if len(f) == 0 {
		return 0
	}
	value, _ := strconv.ParseFloat(f[0], 64)
	return value
}

// busy is the CPU time that all processes of the machine have used, to the
// kernel's tick of 10 ms.
func busy() time.Duration {
	f := fields("/proc/stat")
	if len(f) < 9 {
		return 0
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		n, _ := strconv.ParseInt(f[i], 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// usedShare waits and returns the share of the machine that was used meanwhile,
// which is by others as long as the caller rests. Virtual machines book CPU time in
// bursts, so that one second can show nothing.
func usedShare() float64 {
	before, began := busy(), time.Now()
	time.Sleep(3 * time.Second)
	return float64(busy()-before) / float64(time.Since(began)) / float64(runtime.NumCPU())
}

func machine() map[string]string {
	m := map[string]string{"cpus": strconv.Itoa(runtime.NumCPU()), "arch": runtime.GOARCH}
	if f := fields("/proc/sys/kernel/osrelease"); len(f) > 0 {
		m["kernel"] = f[0]
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m["cpu"] = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// footprint is what a process holds.
type footprint struct {
	RSS     int64 `json:"rss_bytes"`
	Threads int64 `json:"threads"`
	Files   int64 `json:"open_files"`
}

func footprintOf(pid int) footprint {
	var f footprint
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		n, _ := strconv.ParseInt(number, 10, 64)
		switch name {
		case "VmRSS":
			f.RSS = n << 10
		case "Threads":
			f.Threads = n
		}
	}
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	f.Files = int64(len(open))
	return f
}
