package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"assay/engine/supervise"
	"assay/rules/internal/worker"
)

const (
	queued = 64 // lines read ahead
	// drainLimit is how long the output of a killed group may take to end. Nothing
	// holds the pipe then, unless a descendant left the group.
	drainLimit = time.Second
)

// process is a running worker. Its lines are taken as they come, whole or not.
type process struct {
	proc          *supervise.Process
	stdin, stdout *os.File
	// grace is how long the end of its pipes may precede the end of the process,
	// when both are one event, and how long the rest of its group may outlive it.
	grace time.Duration
	lines chan []byte // closed at the end of the output
	err   error       // why it ended, once lines is closed
	seq   worker.Sequence
}

// startError says that the command cannot be started.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }

func start(c Command, grace time.Duration) (*process, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, startError{err}
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, startError{errors.Join(err, theirIn.Close(), in.Close())}
	}
	// The context of a check is not the worker's: it is ended by discard.
	proc, err := supervise.Start(context.Background(), supervise.Spec{
		Path: c.Path, Args: c.Args, Env: c.Env, Stdin: theirIn, Stdout: theirOut, Stderr: c.Log,
	})
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		return nil, startError{errors.Join(err, in.Close(), out.Close())}
	}
	p := &process{proc: proc, stdin: in, stdout: out, grace: grace, lines: make(chan []byte, queued)}
	go p.read()
	return p, nil
}

func (p *process) read() {
	defer close(p.lines)
	lines := worker.Lines(p.stdout, worker.MaxReply)
	for lines.Scan() {
		p.lines <- append([]byte(nil), lines.Bytes()...)
	}
	p.err = lines.Err()
}

// send writes a line; ctx bounds it, since the worker may not read.
func (p *process) send(ctx context.Context, line []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = p.stdin.SetWriteDeadline(time.Now()) })
	defer stop()
	if _, err := p.stdin.Write(line); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("the worker does not read its input: %w", context.Cause(ctx))
		}
		return p.exit()
	}
	return nil
}

// line returns the next line of the worker.
func (p *process) line(ctx context.Context) ([]byte, error) {
	select {
	case line, ok := <-p.lines:
		switch {
		case ok:
			return line, nil
		case errors.Is(p.err, bufio.ErrTooLong): // and it lives on
			return nil, fmt.Errorf("a line of more than %d bytes", worker.MaxReply)
		}
		return nil, errors.Join(p.err, p.exit())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// exit says how the process ended, when its pipes have.
func (p *process) exit() error {
	select {
	case <-p.proc.Done():
	case <-time.After(p.grace):
		return errors.New("the worker closed its input or output and lives on")
	}
	if err := p.proc.Wait(); err != nil {
		return fmt.Errorf("the worker died: %w", err)
	}
	return errors.New("the worker ended with exit status 0")
}

// survivors reports whether processes of the group outlive its leader, which has
// ended, for longer than the grace.
func (p *process) survivors() bool {
	for deadline := time.Now().Add(p.grace); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		// Orphans that came to this process are only gone when it has reaped them.
		_, _ = syscall.Wait4(-p.proc.Pid(), nil, syscall.WNOHANG, nil)
		if errors.Is(syscall.Kill(-p.proc.Pid(), 0), syscall.ESRCH) {
			return false
		}
	}
	return true
}

// end kills what is left of the worker.
func (p *process) end() {
	_ = p.proc.Stop(0)
	_ = p.stdout.SetReadDeadline(time.Now().Add(drainLimit))
	for range p.lines { // the reader may wait to pass one on
	}
	p.stdin.Close()
	p.stdout.Close()
}
