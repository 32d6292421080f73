package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of Acquire.
var (
	// ErrBusy: every lane in service is serving a request, and the queue is full.
	ErrBusy = errors.New("all lanes are busy")
	// ErrWaited: no lane became free within the time that a request may wait.
	ErrWaited = errors.New("no lane became free in time")
	// ErrNotReady: no lane is in service.
	ErrNotReady = errors.New("no worker is ready")
)

// Ticket tells how a request came to its lane, or did not.
type Ticket struct {
	Queued bool          // it had to wait
	Depth  int           // how many waited when it arrived
	Wait   time.Duration // how long it waited
}

// Acquire takes an idle lane. If there is none it waits in the queue, as long as
// the queue has room, or not at all. The error is ErrBusy, ErrWaited, ErrNotReady
// or the cause of ctx's end.
func (p *Pool) Acquire(ctx context.Context) (*Lease, Ticket, error) {
	p.mu.Lock()
	t := Ticket{Depth: p.waiting.Len()}
	if t.Depth == 0 {
		lease, err := p.take()
		if lease != nil || p.opt.Queue == 0 || errors.Is(err, errNone) {
			p.mu.Unlock()
			return lease, t, err
		}
	} else if t.Depth >= p.opt.Queue {
		p.mu.Unlock()
		return nil, t, ErrBusy
	}
	turn := make(chan *Lease, 1)
	place := p.waiting.PushBack(turn)
	p.mu.Unlock()

	t.Queued = true
	began := time.Now()
	patience := time.NewTimer(p.opt.QueueWait)
	defer patience.Stop()
	var lease *Lease
	var err error
	select {
	case lease = <-turn:
		if lease == nil {
			err = errNone
		}
	case <-patience.C:
		err = ErrWaited
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.Wait = time.Since(began)
	if err != nil && !errors.Is(err, errNone) {
		p.mu.Lock()
		p.waiting.Remove(place)
		p.mu.Unlock()
		select {
		case late := <-turn: // it came in the same moment
			if late != nil {
				late.Close()
			}
		default:
		}
	}
	return lease, t, err
}

// errNone is ErrNotReady when it will stay so.
var errNone = fmt.Errorf("%w, and none will be", ErrNotReady)

// take takes an idle lane if there is one.
func (p *Pool) take() (*Lease, error) {
	err := errNone
	for i := range p.lanes {
		l := p.lanes[(p.next+i)%len(p.lanes)]
		switch {
		case l.state == Out:
			continue
		case l.w == nil || !l.w.usable():
			if !errors.Is(err, ErrBusy) {
				err = ErrNotReady
			}
			continue
		case l.state == Busy:
			err = ErrBusy
			continue
		}
		p.next = l.index + 1
		l.state = Busy
		for _, other := range p.lanes {
			if other == l || l.spec.Handler != nil { // handlers of a pool share their engine
				other.served++
			}
		}
		return &Lease{Lane: l.index, Worker: l.starts, pool: p, lane: l, w: l.w}, nil
	}
	return nil, err
}

// Waiting is how many requests wait for a lane.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting.Len()
}

// serveQueue gives free lanes to the oldest that wait, and ends the wait of all when
// there is nothing left to wait for.
func (p *Pool) serveQueue() {
	for p.waiting.Len() > 0 {
		lease, err := p.take()
		if lease == nil && !errors.Is(err, errNone) {
			return
		}
		// Each has room for one, and is here only once.
		p.waiting.Remove(p.waiting.Front()).(chan *Lease) <- lease
	}
}
