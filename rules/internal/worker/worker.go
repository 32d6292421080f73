package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"assay/engine/supervise"
)

const (
	// queued bounds the replies between a worker's pipe and the client. When it
	// is full the pipe is not read, and the engine waits for the client.
	queued = 64
	// exitNotice is how long the end of a worker's output may precede the end of
	// its process, when both are one event.
	exitNotice = time.Second
	// writeGrace is what a frame that is being written gets when its context
	// ends. Workers read at once; only a stuck one needs longer.
	writeGrace = time.Second
)

// Spec says how to start a worker.
type Spec struct {
	Command []string
	Env     []string // nil means the gateway's
	CPUs    []int    // empty means no limit
	// Endpoints are those it must be capable of.
	Endpoints []string
}

// process is one running worker.
type process struct {
	proc    *supervise.Process
	hello   *Hello
	stdin   *os.File
	stdout  *os.File
	replies chan Reply // closed at the end of the output

	send sync.Mutex // one frame at a time

	mu  sync.Mutex
	seq Sequence
	err error // why it was retired

	retired chan struct{} // closed when err is set
	tasks   sync.WaitGroup
}

// start starts a worker and waits until it is ready.
func start(ctx context.Context, spec Spec, timeout time.Duration) (*process, error) {
	w, err := spawn(spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the worker was not ready within %s", timeout))
	defer cancel()
	if err := w.handshake(ctx, spec); err != nil {
		w.retire(err)
		return nil, errors.Join(err, w.end())
	}
	return w, nil
}

func spawn(spec Spec) (*process, error) {
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
	w := &process{proc: proc, stdin: in, stdout: out, replies: make(chan Reply, queued), retired: make(chan struct{})}
	w.tasks.Go(w.read)
	w.tasks.Go(func() {
		// Children of a dead worker may hold its output open: end them too.
		<-proc.Done()
		if err := proc.Stop(0); err != nil {
			w.retire(err)
		}
	})
	return w, nil
}

func (w *process) handshake(ctx context.Context, spec Spec) error {
	for {
		r, err := w.next(ctx)
		if err != nil {
			return err
		}
		switch r := r.(type) {
		case *Hello:
			w.hello = r
			for _, endpoint := range spec.Endpoints {
				if !slices.Contains(r.Capabilities.Endpoints, endpoint) {
					return fmt.Errorf("the worker %s cannot do %q, only %q", r.Worker, endpoint, r.Capabilities.Endpoints)
				}
			}
		case *Fatal:
			return fmt.Errorf("the worker could not load: %s", r.Message)
		case *Ready:
			return nil
		}
	}
}

// read passes on the worker's replies until its output ends or breaks the
// protocol.
func (w *process) read() {
	defer close(w.replies)
	lines := Lines(w.stdout, MaxReply)
	for lines.Scan() {
		r, err := DecodeReply(lines.Bytes())
		if err == nil {
			w.mu.Lock()
			err = w.seq.Reply(r)
			w.mu.Unlock()
		}
		if err != nil {
			w.retire(fmt.Errorf("protocol violation: %w", err))
			return
		}
		select {
		case w.replies <- r:
		case <-w.retired:
			return
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		w.retire(fmt.Errorf("protocol violation: a line of more than %d bytes", MaxReply))
	case errors.Is(err, errTorn):
		w.retire(fmt.Errorf("%w; %w", w.exit(), err))
	default:
		w.retire(w.exit())
	}
}

// exit says how the worker's process ended, after its output has.
func (w *process) exit() error {
	select {
	case <-w.proc.Done():
	case <-time.After(exitNotice):
		return errors.New("the worker closed its output and lives on")
	}
	if err := w.proc.Wait(); err != nil {
		return fmt.Errorf("the worker died: %w", err)
	}
	return errors.New("the worker ended: exit status 0")
}

// next returns the next reply. When the output has ended it says why.
func (w *process) next(ctx context.Context) (Reply, error) {
	select {
	case r, ok := <-w.replies:
		if !ok {
			return nil, w.reason()
		}
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// request sends a *Generate or a *Tokenize.
func (w *process) request(ctx context.Context, r Request) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.mu.Lock()
	err := w.seq.Request(r)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.write(ctx, r)
}

// write sends a frame. A frame that was not written whole retires the worker.
func (w *process) write(ctx context.Context, frame any) error {
	line, err := Encode(frame)
	if err != nil {
		return err
	}
	w.send.Lock()
	defer w.send.Unlock()
	// The pipe may be full and the worker may not read.
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = w.stdin.SetWriteDeadline(time.Now().Add(writeGrace))
	})
	_, err = w.stdin.Write(line)
	if !stop() {
		<-expired
		_ = w.stdin.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		w.retire(errors.New("the worker does not read its requests"))
		return context.Cause(ctx)
	}
	w.retire(fmt.Errorf("send to the worker: %w", err))
	return w.reason()
}

// retire marks the worker as unusable; the first reason stays.
func (w *process) retire(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = reason
		close(w.retired)
	}
}

func (w *process) reason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *process) usable() bool { return w.reason() == nil }

// end kills the process tree of a retired worker and returns when nothing of it
// is left; the error says what is.
func (w *process) end() error {
	err := w.proc.Stop(0)
	// Nothing holds the pipe now, unless a descendant left the group.
	_ = w.stdout.SetReadDeadline(time.Now().Add(exitNotice))
	w.tasks.Wait()
	w.stdin.Close()
	w.stdout.Close()
	return err
}

// shutdown asks an idle worker to end, and ends it if it does not within grace.
func (w *process) shutdown(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = w.write(ctx, new(Shutdown))
	select {
	case <-w.proc.Done():
	case <-ctx.Done():
		_ = w.proc.Stop(grace)
	}
	w.retire(errors.New("shut down"))
	return w.end()
}
