package supervise

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// AdoptOrphans makes this process the parent of descendants whose own parent
// ends, in place of process 1, so that none gets out of KillDescendants' sight.
func AdoptOrphans() {
	// An old kernel without it leaves orphans to process 1.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// KillDescendants kills every process below this one, whatever its group or
// session, and returns how many there were, when none is left or after a second.
// It is for moments when there should be none.
func KillDescendants() (killed int) {
	seen := map[int]bool{}
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		pids := descendants(os.Getpid())
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			seen[pid] = true
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
	}
	return len(seen)
}

// descendants lists the living processes below root.
func descendants(root int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if p, ok := parseStat(stat); ok && !p.dead {
			children[p.parent] = append(children[p.parent], pid)
		}
	}
	var below []int
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		below = append(below, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return below
}
