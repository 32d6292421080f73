package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// State says what a lane is doing.
type State string

// The states of a lane.
const (
	Loading   State = "loading"   // its first worker is starting
	Idle      State = "idle"      // ready for a request
	Busy      State = "busy"      // serving one
	Replacing State = "replacing" // its worker was retired, a new one is starting
	Out       State = "out"       // out of service for good; the reason says why
)

// LaneStatus is what one lane is doing.
type LaneStatus struct {
	Lane   int    `json:"lane"`
	State  State  `json:"state"`
	Worker int    `json:"worker"` // counts the lane's workers, from 1
	Reason string `json:"reason,omitempty"`
}

// Errors of Acquire.
var (
	// ErrBusy: every lane in service is serving a request.
	ErrBusy = errors.New("all lanes are busy")
	// ErrNotReady: no lane is in service.
	ErrNotReady = errors.New("no worker is ready")
)

// Options are the time limits of a pool.
type Options struct {
	StartupTimeout time.Duration // from a worker's start to its ready frame
	CancelGrace    time.Duration // from a cancel to the request's end
	Log            *slog.Logger
}

// Pool is a set of lanes. Each lane has one worker at a time, and a worker
// serves one request at a time. There is no queue.
type Pool struct {
	opt Options

	mu      sync.Mutex
	lanes   []*lane
	next    int           // where the search for an idle lane begins
	changed chan struct{} // closed and replaced when a lane changes
}

type lane struct {
	index  int
	spec   Spec
	state  State
	starts int
	served int // requests given to the present worker
	reason error
	w      *process
}

// NewPool makes a pool with one lane for each spec. Run starts the workers.
func NewPool(specs []Spec, opt Options) *Pool {
	p := &Pool{opt: opt, changed: make(chan struct{})}
	for i, spec := range specs {
		p.lanes = append(p.lanes, &lane{index: i, spec: spec, state: Loading})
	}
	return p
}

// Run keeps the lanes in service until ctx ends and then shuts all workers
// down. Nothing of them is left when it returns; the error names what did not
// go in order. End all leases before ctx.
func (p *Pool) Run(ctx context.Context) error {
	errs := make([]error, len(p.lanes))
	var wg sync.WaitGroup
	for i, l := range p.lanes {
		wg.Go(func() { errs[i] = p.keep(ctx, l) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// keep runs one worker after the other in a lane.
func (p *Pool) keep(ctx context.Context, l *lane) error {
	for {
		p.update(l, func() { l.starts++; l.served = 0 })
		began := time.Now()
		w, err := start(ctx, l.spec, p.opt.StartupTimeout)
		if err != nil {
			if ctx.Err() == nil {
				p.out(l, err)
			}
			return nil
		}
		p.opt.Log.Info("worker ready", "lane", l.index, "worker", l.starts, "name", w.hello.Worker,
			"engine", w.hello.Engine.Name, "version", w.hello.Engine.Version, "after", time.Since(began).Round(time.Millisecond))
		p.update(l, func() { l.w, l.state, l.reason = w, Idle, nil })

		select {
		case <-ctx.Done():
			return w.shutdown(p.opt.CancelGrace)
		case <-w.retired:
		}
		var useless bool
		p.update(l, func() {
			l.state, l.w, l.reason = Replacing, nil, w.reason()
			useless = l.starts > 1 && l.served == 0
		})
		p.opt.Log.Warn("worker retired", "lane", l.index, "worker", l.starts, "reason", l.reason)
		if err := w.end(); err != nil {
			p.opt.Log.Error("worker not ended", "lane", l.index, "worker", l.starts, "error", err)
		}
		if useless {
			// Starting it again would be a loop without a request in it.
			p.out(l, fmt.Errorf("a replacement ended before it served a request: %w", w.reason()))
			return nil
		}
	}
}

func (p *Pool) out(l *lane, reason error) {
	p.opt.Log.Error("lane out of service", "lane", l.index, "worker", l.starts, "reason", reason)
	p.update(l, func() { l.state, l.reason = Out, reason })
}

func (p *Pool) update(l *lane, change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// WaitReady returns when a lane is in service, or with the reasons when all are
// out.
func (p *Pool) WaitReady(ctx context.Context) error {
	for {
		p.mu.Lock()
		changed, out := p.changed, 0
		var reasons []error
		for _, l := range p.lanes {
			switch l.state {
			case Idle, Busy:
				p.mu.Unlock()
				return nil
			case Out:
				out++
				reasons = append(reasons, fmt.Errorf("lane %d: %w", l.index, l.reason))
			}
		}
		p.mu.Unlock()
		if out == len(p.lanes) {
			return fmt.Errorf("no worker could be started: %w", errors.Join(reasons...))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Lanes says what each lane is doing.
func (p *Pool) Lanes() []LaneStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]LaneStatus, len(p.lanes))
	for i, l := range p.lanes {
		all[i] = LaneStatus{Lane: l.index, State: l.state, Worker: l.starts}
		if l.reason != nil {
			all[i].Reason = l.reason.Error()
		}
	}
	return all
}

// Acquire takes an idle lane, at once or not at all.
func (p *Pool) Acquire() (*Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := ErrNotReady
	for i := range p.lanes {
		l := p.lanes[(p.next+i)%len(p.lanes)]
		if l.w == nil || !l.w.usable() {
			continue
		}
		if l.state == Busy {
			err = ErrBusy
			continue
		}
		p.next = l.index + 1
		l.state = Busy
		l.served++
		return &Lease{Lane: l.index, Worker: l.starts, pool: p, lane: l, w: l.w}, nil
	}
	return nil, err
}

// Lease is the use of one lane for one request.
type Lease struct {
	Lane   int
	Worker int // counts the lane's workers, from 1

	pool  *Pool
	lane  *lane
	w     *process
	id    string
	ended bool
}

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
	r, err := s.w.next(ctx)
	if err != nil {
		return nil, err
	}
	if _, more := r.(*Delta); !more {
		s.free()
	}
	return r, nil
}

func (s *Lease) free() {
	s.ended = true
	s.pool.update(s.lane, func() {
		// Not if the lane has a new worker, or is about to.
		if s.lane.w == s.w {
			s.lane.state = Idle
		}
	})
}

// Close ends the lease. If the request has not ended, it is cancelled; if that
// does not end it within the grace, the worker is retired. Close returns the
// request's last reply if it came only now, otherwise nil.
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
	if s.w.usable() && s.w.write(ctx, &Cancel{ID: s.id}) == nil {
		for {
			r, err := s.w.next(ctx)
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
