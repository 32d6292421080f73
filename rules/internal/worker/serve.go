package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Call is a request on the worker's side.
type Call struct {
	*Generate
	// Context ends when the gateway cancels the call.
	Context context.Context
	cancel  context.CancelFunc
}

// errLeave is the cause of an orderly end.
var errLeave = errors.New("told to leave")

// Serve is the worker's side of the protocol, for workers in Go that do not
// tokenize: it reads the gateway's frames, also while a call is served, so that a
// cancel is seen, and serve answers the calls one after the other. Its context
// ends when the frames do, which means that the gateway is gone, at a shutdown
// frame, and at a frame that is out of place; the last is Serve's error.
func Serve(ctx context.Context, stdin io.Reader, serve func(ctx context.Context, calls <-chan Call) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	calls := make(chan Call)
	go func() { cancel(receive(ctx, stdin, calls)) }()
	err := serve(ctx, calls)
	if cause := context.Cause(ctx); errors.Is(cause, errLeave) {
		return nil
	} else if cause != nil {
		return cause
	}
	return err
}

// receive passes calls on until the frames end, and says why they did.
func receive(ctx context.Context, stdin io.Reader, calls chan<- Call) error {
	lines := Lines(stdin, MaxRequest)
	current := Call{Generate: new(Generate), cancel: func() {}}
	defer func() { current.cancel() }()
	for lines.Scan() {
		frame, err := DecodeRequest(lines.Bytes())
		if err != nil {
			return fmt.Errorf("from the gateway: %w", err)
		}
		switch f := frame.(type) {
		case *Generate:
			current.cancel() // the last one has ended
			current.Generate = f
			current.Context, current.cancel = context.WithCancel(ctx)
			select {
			case calls <- current:
			case <-ctx.Done():
				return errLeave
			}
		case *Cancel:
			if f.ID == current.ID { // it may be late, and then it is for no call
				current.cancel()
			}
		case *Shutdown:
			return errLeave
		default:
			return fmt.Errorf("from the gateway: %T was not offered", frame)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("from the gateway: %w", err)
	}
	return errLeave
}
