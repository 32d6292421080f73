package worker

import (
	"context"
	"errors"
	"fmt"
)

// queued bounds the replies between a handler and the client. When it is full the
// handler waits for the client.
const queued = 64

// local is a worker inside this process.
type local struct {
	*worker
	box     *inbox
	replies chan Reply // closed when the handler has ended
	cancel  context.CancelFunc
	done    chan struct{}
}

// run starts a handler as a worker.
func run(w *worker, h Handler) *local {
	ctx, cancel := context.WithCancel(context.Background())
	l := &local{worker: w, box: newInbox(ctx), replies: make(chan Reply, queued), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer close(l.replies)
		err := h(ctx, l.box.calls, l.say)
		if err == nil {
			err = errors.New("the worker ended")
		}
		w.retire(err)
	}()
	return l
}

func (l *local) say(r Reply) error {
	err := r.check()
	if err == nil {
		err = l.accept(r)
	}
	if err != nil {
		l.retire(fmt.Errorf("protocol violation: %w", err))
		return err
	}
	select {
	case l.replies <- r:
		return nil
	case <-l.retired:
		return l.reason()
	}
}

func (l *local) next(ctx context.Context) (Reply, error) {
	select {
	case r, ok := <-l.replies:
		if !ok {
			return nil, l.reason()
		}
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *local) more() bool { return len(l.replies) > 0 }

func (l *local) rest() {}

func (l *local) ended() <-chan struct{} { return l.done }

// write passes a frame on. A handler takes the next call as soon as it has
// answered the last one.
func (l *local) write(ctx context.Context, frame Request) error {
	err := l.box.put(ctx, frame)
	switch {
	case errors.Is(err, errLeave):
		l.cancel()
		return l.reason()
	case err != nil && ctx.Err() != nil:
		l.retire(errors.New("the worker does not take its requests"))
		return context.Cause(ctx)
	}
	return err
}

func (l *local) end() error {
	l.cancel()
	<-l.done
	return nil
}
