package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Call is a request on the worker's side: a *Generate, or a *Tokenize if the
// worker offered it.
type Call struct {
	Request Request
	// Context ends when the gateway cancels the call, or is done with it.
	Context context.Context
}

// Handler is a worker without its transport: it says hello and ready, answers
// the calls one after the other, and returns when ctx ends. say passes a frame
// on; its error means that nobody listens any more.
type Handler func(ctx context.Context, calls <-chan Call, say func(Reply) error) error

// errLeave is the cause of an orderly end.
var errLeave = errors.New("told to leave")

// inbox turns the gateway's frames into calls.
type inbox struct {
	ctx    context.Context // of all calls
	calls  chan Call
	id     string // of the last call
	cancel context.CancelFunc
}

func newInbox(ctx context.Context) *inbox {
	return &inbox{ctx: ctx, calls: make(chan Call), cancel: func() {}}
}

// put takes a frame in, until ctx ends. A frame that ends the worker gives errLeave.
func (b *inbox) put(ctx context.Context, frame Request) error {
	switch f := frame.(type) {
	case *Generate:
		return b.call(ctx, f.ID, f)
	case *Tokenize:
		return b.call(ctx, f.ID, f)
	case *Cancel:
		if f.ID == b.id { // it may be late, and then it is for no call
			b.cancel()
		}
		return nil
	case *Shutdown:
		return errLeave
	}
	return fmt.Errorf("unexpected %T", frame)
}

func (b *inbox) call(ctx context.Context, id string, r Request) error {
	b.cancel() // the last one has ended
	c := Call{Request: r}
	b.id = id
	c.Context, b.cancel = context.WithCancel(b.ctx)
	select {
	case b.calls <- c:
		return nil
	case <-b.ctx.Done():
		return errLeave
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Serve is the worker's side of the protocol for a worker process in Go: it
// reads the gateway's frames, also while a call is served, so that a cancel is
// seen, and serve answers the calls one after the other. Its context ends when
// the frames do, which means that the gateway is gone, at a shutdown frame, and
// at a frame that is out of place; the last is Serve's error.
func Serve(ctx context.Context, stdin io.Reader, serve func(ctx context.Context, calls <-chan Call) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	box := newInbox(ctx)
	go func() {
		cancel(receive(stdin, box))
	}()
	err := serve(ctx, box.calls)
	if cause := context.Cause(ctx); errors.Is(cause, errLeave) {
		return nil
	} else if cause != nil {
		return cause
	}
	return err
}

// receive passes frames on until they end, and says why they did.
func receive(stdin io.Reader, box *inbox) error {
	defer func() { box.cancel() }()
	lines := Lines(stdin, MaxRequest)
	for lines.Scan() {
		frame, err := DecodeRequest(lines.Bytes())
		if err == nil {
			err = box.put(box.ctx, frame)
		}
		if errors.Is(err, errLeave) {
			return err
		}
		if err != nil {
			return fmt.Errorf("from the gateway: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("from the gateway: %w", err)
	}
	return errLeave
}
