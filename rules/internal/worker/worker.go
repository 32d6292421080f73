package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// writeGrace is what a frame that is being written gets when its context ends.
// Workers read at once; only a stuck one needs longer.
const writeGrace = time.Second

// Spec says how to start a worker: a command, or a handler in this process.
type Spec struct {
	Command []string
	Env     []string // nil means the gateway's
	CPUs    []int    // empty means no limit
	Handler Handler
	// Endpoints are those it must be capable of.
	Endpoints []string
}

// worker is one running worker, in a process of its own or not.
type worker struct {
	hello *Hello
	link  link

	mu  sync.Mutex
	seq Sequence
	err error // why it was retired

	retired chan struct{} // closed when err is set
}

// link is the way to a worker. Its replies are read where they are needed, one
// goroutine at a time: a client that does not read stops the reading, and then the
// engine waits.
type link interface {
	// write sends a frame. A frame that was not taken whole retires the worker.
	write(ctx context.Context, frame Request) error
	// next returns the next reply in its place. The error is the cause of ctx's end,
	// or says why the worker is retired.
	next(ctx context.Context) (Reply, error)
	// more says that next has a reply at once.
	more() bool
	// rest says that no reply is expected until the next request.
	rest()
	// ended is closed when the worker has ended.
	ended() <-chan struct{}
	// end ends the worker and returns when nothing of it is left; the error says
	// what is.
	end() error
}

// start starts a worker and waits until it is ready.
func start(ctx context.Context, spec Spec, timeout time.Duration) (*worker, error) {
	w := &worker{retired: make(chan struct{})}
	if spec.Handler != nil {
		w.link = run(w, spec.Handler)
	} else {
		process, err := spawn(w, spec)
		if err != nil {
			return nil, err
		}
		w.link = process
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the worker was not ready within %s", timeout))
	defer cancel()
	if err := w.handshake(ctx, spec); err != nil {
		w.retire(err)
		return nil, errors.Join(err, w.link.end())
	}
	w.link.rest()
	return w, nil
}

func (w *worker) handshake(ctx context.Context, spec Spec) error {
	for {
		r, err := w.link.next(ctx)
		if err != nil {
			return err
		}
		switch r := r.(type) {
		case *Hello:
			w.hello = r
			if r.Protocol == BufferedVersion {
				r.Capabilities.Buffered, r.Capabilities.Cancel, r.Capabilities.Tokenize = true, false, false
			}
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

// accept checks that a reply is in its place.
func (w *worker) accept(r Reply) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return w.seq.Reply(r)
}

// request sends a *Generate or a *Tokenize.
func (w *worker) request(ctx context.Context, r Request) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.mu.Lock()
	err := w.seq.Request(r)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.link.write(ctx, r)
}

// retire marks the worker as unusable; the first reason stays.
func (w *worker) retire(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = reason
		close(w.retired)
	}
}

func (w *worker) reason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *worker) usable() bool { return w.reason() == nil }

// shutdown asks an idle worker to end, and ends it if it does not within grace.
func (w *worker) shutdown(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = w.link.write(ctx, new(Shutdown))
	select {
	case <-w.link.ended():
	case <-ctx.Done():
	}
	w.retire(errors.New("shut down"))
	return w.link.end()
}
