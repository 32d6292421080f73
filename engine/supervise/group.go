//go:build unix

package supervise

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"
)

// Group tells a process group from any other that may have its number later.
type Group struct {
	// ID is the leader's process id, and that of the group and of the session.
	ID int `json:"id"`
	// Start is when the leader started, in clock ticks since the boot named by
	// Boot. Both are unset where there is no /proc.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
	// Program is the leader's, without its folders; Dir is where it was started.
	Program string `json:"program"`
	Dir     string `json:"dir,omitempty"`
}

type observerKey struct{}

// WithObserver returns a context with which Start tells started of each group.
func WithObserver(ctx context.Context, started func(Group)) context.Context {
	return context.WithValue(ctx, observerKey{}, started)
}

func observe(ctx context.Context, pid int, spec Spec) {
	if started, ok := ctx.Value(observerKey{}).(func(Group)); ok {
		g := Group{ID: pid, Program: filepath.Base(spec.Path)}
		if dir, err := filepath.EvalSymlinks(spec.Dir); err == nil {
			g.Dir = dir // as the kernel will show it
		}
		g.Start, g.Boot = startOf(pid)
		started(g)
	}
}

// Kill ends a group that outlived the process which started it, and reports
// whether there was one. It does nothing unless the group is surely the same.
func (g Group) Kill() (bool, error) {
	if g.ID <= 1 || !g.same() {
		return false, nil
	}
	if err := syscall.Kill(-g.ID, syscall.SIGKILL); err != nil {
		return false, fmt.Errorf("kill process group %d: %w", g.ID, err)
	}
	for deadline := time.Now().Add(killLimit); groupAlive(g.ID); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return true, fmt.Errorf("process group %d is still there %s after SIGKILL", g.ID, killLimit)
		}
	}
	return true, nil
}
