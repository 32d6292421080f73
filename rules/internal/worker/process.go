package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"assay/engine/supervise"
)

// exitNotice is how long the end of a worker's output may precede the end of
// its process, when both are one event.
const exitNotice = time.Second

// process is a worker in a process of its own, reached by pipes.
type process struct {
	*worker
	proc   *supervise.Process
	stdin  *os.File
	stdout *os.File
	send   sync.Mutex // one frame at a time
	tasks  sync.WaitGroup
}

func spawn(w *worker, spec Spec) (*process, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the worker: %w", err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the worker: %w", err), theirIn.Close(), in.Close())
	}
	// The context is the lane's concern: it ends a worker in order.
	proc, err := supervise.Start(context.Background(), supervise.Spec{
		Path: spec.Command[0], Args: spec.Command[1:], Env: spec.Env, CPUs: spec.CPUs,
		Stdin: theirIn, Stdout: theirOut, Stderr: os.Stderr,
	})
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	p := &process{worker: w, proc: proc, stdin: in, stdout: out}
	p.tasks.Go(p.read)
	p.tasks.Go(func() {
		// Children of a dead worker may hold its output open: end them too.
		<-proc.Done()
		if err := proc.Stop(0); err != nil {
			w.retire(err)
		}
	})
	return p, nil
}

func (p *process) ended() <-chan struct{} { return p.proc.Done() }

// read passes on the worker's replies until its output ends or breaks the
// protocol.
func (p *process) read() {
	defer close(p.replies)
	lines := Lines(p.stdout, MaxReply)
	for lines.Scan() {
		r, err := DecodeReply(lines.Bytes())
		if err == nil {
			err = p.accept(r)
		}
		if err != nil {
			p.retire(fmt.Errorf("protocol violation: %w", err))
			return
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		p.retire(fmt.Errorf("protocol violation: a line of more than %d bytes", MaxReply))
	case errors.Is(err, errTorn):
		p.retire(fmt.Errorf("%w; %w", p.exit(), err))
	default:
		p.retire(p.exit())
	}
}

// exit says how the worker's process ended, after its output has.
func (p *process) exit() error {
	select {
	case <-p.proc.Done():
	case <-time.After(exitNotice):
		return errors.New("the worker closed its output and lives on")
	}
	if err := p.proc.Wait(); err != nil {
		return fmt.Errorf("the worker died: %w", err)
	}
	return errors.New("the worker ended: exit status 0")
}

func (p *process) write(ctx context.Context, frame Request) error {
	line, err := Encode(frame)
	if err != nil {
		return err
	}
	p.send.Lock()
	defer p.send.Unlock()
	// The pipe may be full and the worker may not read.
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = p.stdin.SetWriteDeadline(time.Now().Add(writeGrace))
	})
	_, err = p.stdin.Write(line)
	if !stop() {
		<-expired
		_ = p.stdin.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		p.retire(errors.New("the worker does not read its requests"))
		return context.Cause(ctx)
	}
	p.retire(fmt.Errorf("send to the worker: %w", err))
	return p.reason()
}

func (p *process) end() error {
	err := p.proc.Stop(0)
	// Nothing holds the pipe now, unless a descendant left the group.
	_ = p.stdout.SetReadDeadline(time.Now().Add(exitNotice))
	p.tasks.Wait()
	p.stdin.Close()
	p.stdout.Close()
	return err
}
