package worker

import (
	"context"
	"errors"
	"fmt"
)

// Lease is the use of one lane for one request.
type Lease struct {
	Lane   int
	Worker int // counts the lane's workers, from 1

	pool  *Pool
	lane  *lane
	w     *worker
	id    string
	ended bool
}

// Can is what the lane's worker can do.
func (s *Lease) Can() Capabilities { return s.w.hello.Capabilities }

// Generate sends the request. An error means that the worker is retired or that
// ctx ended.
func (s *Lease) Generate(ctx context.Context, g *Generate) error {
	err := s.w.request(ctx, g)
	if err == nil {
		s.id = g.ID
	}
	return err
}

// ErrNoTokenizer: the worker does not offer its engine's tokenizer.
var ErrNoTokenizer = errors.New("the worker does not tokenize")

// Tokenize sends the request; its reply, from Next, is *Tokens or *Error. An
// error is as that of Generate, or ErrNoTokenizer.
func (s *Lease) Tokenize(ctx context.Context, t *Tokenize) error {
	if !s.w.hello.Capabilities.Tokenize {
		return ErrNoTokenizer
	}
	err := s.w.request(ctx, t)
	if err == nil {
		s.id = t.ID
	}
	return err
}

// Next returns the next reply to the request: *Delta, or *Done, *Tokens or *Error
// as the last. When the last one is returned, the lane is free for another request
// already: a client that has its answer can send the next one. An error is the
// cause of ctx's end, or says why the worker is retired.
func (s *Lease) Next(ctx context.Context) (Reply, error) {
	r, err := s.w.link.next(ctx)
	if err != nil {
		return nil, err
	}
	if _, more := r.(*Delta); !more {
		s.free()
	}
	return r, nil
}

// More says that Next has a reply at once.
func (s *Lease) More() bool { return s.w.link.more() }

func (s *Lease) free() {
	s.ended = true
	s.w.link.rest()
	s.pool.update(s.lane, func() {
		// Not if the lane has a new worker, or is about to.
		if s.lane.w == s.w {
			s.lane.state = Idle
		}
	})
}

// Close ends the lease. If the request has not ended, it is cancelled, where the
// worker can do that; if it does not end within the grace, the worker is retired.
// Close returns the request's last reply if it came only now, otherwise nil.
func (s *Lease) Close() Reply {
	if s.ended {
		return nil
	}
	s.ended = true
	if s.id == "" { // nothing was sent
		s.free()
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.pool.opt.CancelGrace)
	defer cancel()
	can := s.w.hello.Capabilities.Cancel
	if s.w.usable() && (!can || s.w.link.write(ctx, &Cancel{ID: s.id}) == nil) {
		for {
			r, err := s.w.link.next(ctx)
			if err != nil {
				break
			}
			if _, more := r.(*Delta); !more {
				s.free()
				return r
			}
		}
	}
	s.w.retire(fmt.Errorf("request %s did not end within %s of its cancel", s.id, s.pool.opt.CancelGrace))
	return nil
}
