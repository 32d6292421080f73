package supervise

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// startOf returns when a process started and in which boot; zero for one that is
// gone.
func startOf(pid int) (start uint64, boot string) {
	s, ok := readStat(pid)
	if !ok {
		return 0, ""
	}
	return s.start, bootID()
}

func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

type stat struct {
	state          byte
	group, session int
	start          uint64
}

// readStat reads /proc/PID/stat, see proc(5).
func readStat(pid int) (stat, bool) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, false
	}
	// pid (comm) state ppid pgrp session … starttime is the 22nd; comm may hold
	// anything, also ")".
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return stat{}, false
	}
	s := stat{state: fields[0][0]}
	var errs [3]error
	s.group, errs[0] = strconv.Atoi(string(fields[2]))
	s.session, errs[1] = strconv.Atoi(string(fields[3]))
	s.start, errs[2] = strconv.ParseUint(string(fields[19]), 10, 64)
	return s, errs == [3]error{}
}

// same reports whether what has the number now is this group. While the leader
// lives, its start tells. Without it the number could have gone to another group
// whose leader ended as well; then the processes must stand in the directory that
// the leader was started in, which nothing else uses.
func (g Group) same() bool {
	if g.Boot == "" || g.Boot != bootID() {
		return false
	}
	if leader, ok := readStat(g.ID); ok && !strings.ContainsRune("ZX", rune(leader.state)) {
		return leader.start == g.Start && leader.group == g.ID
	}
	if g.Dir == "" {
		return false
	}
	members := 0
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err != nil {
			continue
		}
		s, ok := readStat(pid)
		if !ok || s.group != g.ID || strings.ContainsRune("ZX", rune(s.state)) {
			continue
		}
		dir, err := os.Readlink(filepath.Join(proc, "cwd"))
		if err != nil || s.session != g.ID || s.start < g.Start || dir != g.Dir && !strings.HasPrefix(dir, g.Dir+"/") {
			return false
		}
		members++
	}
	return members > 0
}
