package worker

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
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

// States lists all of them.
var States = []State{Loading, Idle, Busy, Replacing, Out}

// LaneStatus is what one lane is doing.
type LaneStatus struct {
	Lane   int    `json:"lane"`
	State  State  `json:"state"`
	Worker int    `json:"worker"` // counts the lane's workers, from 1
	Reason string `json:"reason,omitempty"`
}

// Options are the limits of a pool.
type Options struct {
	StartupTimeout time.Duration // from a worker's start to its ready frame
	CancelGrace    time.Duration // from a cancel to the request's end
	// Queue is how many requests may wait for a lane, and QueueWait for how long.
	Queue     int
	QueueWait time.Duration
	Log       *slog.Logger
}

// Pool is a set of lanes. Each lane has one worker at a time, and a worker
// serves one request at a time. Without a queue nothing waits; in the queue the
// order is that of arrival.
type Pool struct {
	opt Options

	mu      sync.Mutex
	lanes   []*lane
	next    int           // where the search for an idle lane begins
	changed chan struct{} // closed and replaced when a lane changes
	waiting list.List     // of chan *Lease, the oldest first
	hello   *Hello        // of the first worker that was ready
}

type lane struct {
	index  int
	spec   Spec
	state  State
	starts int
	served int // requests given to the present worker, or to the engine that it shares with others
	reason error
	w      *worker
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
		if err == nil {
			if err = p.admit(w.hello); err != nil {
				err = errors.Join(err, w.link.end())
			}
		}
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
		if err := w.link.end(); err != nil {
			p.opt.Log.Error("worker not ended", "lane", l.index, "worker", l.starts, "error", err)
		}
		if useless {
			// Starting it again would be a loop without a request in it.
			p.out(l, fmt.Errorf("a replacement ended before it served a request: %w", w.reason()))
			return nil
		}
	}
}

// admit takes a worker's word for what all of them can do, and no other word after
// it: which lane a request gets must not decide how it is answered.
func (p *Pool) admit(h *Hello) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hello == nil {
		p.hello = h
	}
	if !reflect.DeepEqual(h.Capabilities, p.hello.Capabilities) || h.Engine != p.hello.Engine {
		return fmt.Errorf("the worker differs from the first one: it is %s, and the first is %s", h.describe(), p.hello.describe())
	}
	return nil
}

// Hello is what the first ready worker said of itself and its engine, nil before.
func (p *Pool) Hello() *Hello {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hello
}

func (p *Pool) out(l *lane, reason error) {
	p.opt.Log.Error("lane out of service", "lane", l.index, "worker", l.starts, "reason", reason)
	p.update(l, func() { l.state, l.reason = Out, reason })
}

// update changes a lane and tells those who wait for it.
func (p *Pool) update(l *lane, change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
	p.serveQueue()
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
