//go:build unix

// Package supervise starts a process tree on a given set of CPUs and ends all
// of it: whatever the tree holds — pipes, ports, children that ignore signals —
// is gone when Stop returns.
//
// Every process leads its own session and process group, and signals go to the
// group. A descendant that opens a session of its own leaves the group and is
// out of reach.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// defaultGrace is the time between TERM and KILL when the context ends and
	// the Spec does not say.
	defaultGrace = 5 * time.Second
	// killLimit is how long a killed group may take to disappear. Only a process
	// stuck in the kernel needs longer; it is reported.
	killLimit = 10 * time.Second
)

// Spec says what to start.
type Spec struct {
	Path string
	Args []string // without the program's own name
	Env  []string // as in exec.Cmd: nil means this process's environment
	Dir  string

	// The standard streams; nil means the null device. They are files, handed
	// over as they are: with no copying goroutine between, a grandchild that
	// keeps a pipe open cannot hold up Wait. The caller closes its own ends.
	Stdin, Stdout, Stderr *os.File

	// CPUs limits the tree to these CPUs. It is set before exec, because the
	// affinity of a running process is that of each thread by itself. Empty means
	// no limit.
	CPUs []int

	// Grace is the time between TERM and KILL when the context of Start ends;
	// 0 means 5 s.
	Grace time.Duration
}

// Process is a running process tree.
type Process struct {
	pid  int // also the group's id
	done chan struct{}
	err  error // of the leader, once done is closed
	cpu  time.Duration
	gone atomic.Bool
	// detach ends the watch on the context.
	detach func() bool
}

// Start starts the process. When ctx ends the tree is stopped as by
// Stop(spec.Grace). On Linux the leader is killed if this process dies.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	// A nil *os.File in an interface would not be nil.
	if spec.Stdin != nil {
		cmd.Stdin = spec.Stdin
	}
	if spec.Stdout != nil {
		cmd.Stdout = spec.Stdout
	}
	if spec.Stderr != nil {
		cmd.Stderr = spec.Stderr
	}
	cmd.SysProcAttr = attributes()

	grace := spec.Grace
	if grace == 0 {
		grace = defaultGrace
	}
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ties the parent-death signal to the thread that forked, and
		// the child inherits that thread's affinity. So one thread starts the
		// child, stays with it, and is thrown away afterwards: the goroutine ends
		// without unlocking it.
		runtime.LockOSThread()
		if err := pinned(spec.CPUs, cmd.Start); err != nil {
			started <- fmt.Errorf("start %s: %w", spec.Path, err)
			return
		}
		p.pid = cmd.Process.Pid
		p.detach = context.AfterFunc(ctx, func() { _ = p.stop(grace) })
		observe(ctx, p.pid, spec)
		started <- nil

		p.err = cmd.Wait()
		p.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		// Looked at now, while the number cannot have been given to another group.
		if !groupAlive(p.pid) {
			p.gone.Store(true)
			p.detach()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid is the leader's process id and the id of its group.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the leader has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns when the leader has ended: nil for exit status 0, otherwise an
// *exec.ExitError. Other processes of the group may live on until Stop.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// CPUTime is the CPU time of the leader and of the descendants that were waited
// for, known once the leader has ended.
func (p *Process) CPUTime() time.Duration {
	<-p.done
	return p.cpu
}

// Stop ends the whole group: TERM, up to grace for it to go, then KILL. It
// returns when no process of the group is left; the error names a group that
// outlived even KILL. With grace 0 it kills at once. It may be called several
// times and at the same time: a second call with a shorter grace hurries the
// first.
func (p *Process) Stop(grace time.Duration) error {
	p.detach()
	return p.stop(grace)
}

func (p *Process) stop(grace time.Duration) error {
	if grace > 0 {
		p.signal(syscall.SIGTERM)
		if p.awaitGone(grace) {
			return nil
		}
	}
	p.signal(syscall.SIGKILL)
	if p.awaitGone(killLimit) {
		return nil
	}
	return fmt.Errorf("process group %d is still there %s after SIGKILL", p.pid, killLimit)
}

func (p *Process) signal(sig syscall.Signal) {
	if !p.gone.Load() {
		// An error means that the group is gone, which awaitGone finds out.
		_ = syscall.Kill(-p.pid, sig)
	}
}

// awaitGone waits until the leader is reaped and its group is empty.
func (p *Process) awaitGone(limit time.Duration) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	select {
	case <-p.done:
	case <-deadline.C:
		return false
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if p.gone.Load() {
			return true
		}
		p.reap()
		if !groupAlive(p.pid) {
			p.gone.Store(true)
			return true
		}
		select {
		case <-time.After(pause):
		case <-deadline.C:
			return false
		}
	}
}

// reap collects orphans of the group that became our children, as they do when
// this process is process 1 or a subreaper. The leader itself is never
// collected here: awaitGone calls it only after the leader's end.
func (p *Process) reap() {
	for {
		pid, err := syscall.Wait4(-p.pid, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
