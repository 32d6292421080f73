package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// regime is a pattern of load.
type regime string

const (
	// paced streams have a fixed gap between pieces: latency without a queue.
	paced regime = "paced"
	// unpaced streams go as fast as all that share the machine let them.
	unpaced regime = "unpaced"
	// buffered requests are answered at once and as a whole, at a fixed rate.
	buffered regime = "buffered"
)

var regimes = []regime{paced, unpaced, buffered}

// job is what each stream asks for. The rates leave two CPUs some room: 12,800
// pieces a second in all at 64 streams, and 6,400 at more, as each native worker is a
// process to be woken.
func (r regime) job(streams int) job {
	switch {
	case r == buffered:
		return job{Pieces: 1}
	case r == unpaced:
		return job{Stream: true, Pieces: 256}
	case streams <= 64:
		return job{Stream: true, Pieces: 64, GapUS: 5_000}
	}
	return job{Stream: true, Pieces: 16, GapUS: 10_000 * int64(streams) / 64}
}

// period is the time between two buffered requests of a connection: 5 ms, and at
// most 800 requests a second in all.
func period(streams int) time.Duration {
	return max(5*time.Millisecond, time.Duration(streams)*time.Second/800)
}

// cell is one system under one load, over all rounds.
type cell struct {
	Regime  regime `json:"regime"`
	Streams int    `json:"streams"`
	System  string `json:"system"`
	// NotRun says why there are no figures.
	NotRun string `json:"not_run,omitempty"`

	Requests int    `json:"requests"`
	Chunks   int    `json:"chunks"`
	Errors   int    `json:"errors"`
	Error    string `json:"error,omitempty"` // the first one

	// Percentiles in µs. Chunk: from emission to parsed. Request: from the first
	// byte sent to the first piece of a stream, or to a whole answer parsed. End:
	// from the last piece's emission to the end of the body. Late: emission after
	// its due time, which is the stand-in's doing.
	Chunk   quantiles `json:"chunk_us"`
	Request quantiles `json:"request_us"`
	End     quantiles `json:"end_us"`
	Late    quantiles `json:"late_us"`
	// ChunkRounds and RequestRounds are the percentiles of each round by itself.
	ChunkRounds   []quantiles `json:"chunk_us_by_round"`
	RequestRounds []quantiles `json:"request_us_by_round"`

	// ChunksPerSecond is the median over the rounds; a buffered answer counts as
	// one chunk.
	ChunksPerSecond float64   `json:"chunks_per_s"`
	RateRounds      []float64 `json:"chunks_per_s_by_round"`

	// CPU in µs a chunk: of the relay, and of engine, relay and client together.
	RelayCPU float64 `json:"relay_cpu_us_per_chunk"`
	TotalCPU float64 `json:"total_cpu_us_per_chunk"`

	all        samples
	rates      []float64
	relay, sum time.Duration
}

// samples are durations in ns.
type samples struct {
	chunk, request, end, late []int64
	inWindow                  int // chunks seen before the round's time was over
	errors                    []error
}

func (s *samples) add(o *samples) {
	s.chunk = append(s.chunk, o.chunk...)
	s.request = append(s.request, o.request...)
	s.end = append(s.end, o.end...)
	s.late = append(s.late, o.late...)
	s.errors = append(s.errors, o.errors...)
	s.inWindow += o.inWindow
}

// plan is what to measure.
type plan struct {
	systems []string
	streams []int
	rounds  int
	window  time.Duration
}

// measure runs the plan. At each number of streams all systems run side by side,
// idle unless it is their turn. It returns the cells in the order of the tables,
// and the CPU time of everything it started.
func (p plan) measure(ctx context.Context, l *lab, say func(format string, args ...any)) (cells []*cell, tasks []accuracy, ours time.Duration, err error) {
	for _, streams := range p.streams {
		some, task, used, err := p.measureAt(ctx, l, streams, say)
		cells, tasks, ours = append(cells, some...), append(tasks, task...), ours+used
		if err != nil {
			return cells, tasks, ours, err
		}
	}
	return cells, tasks, ours, nil
}

func (p plan) measureAt(ctx context.Context, l *lab, streams int, say func(string, ...any)) (cells []*cell, tasks []accuracy, ours time.Duration, err error) {
	process, engine, err := l.spawn(ctx, "engine", []string{l.self, "engine"}, "")
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { err = errors.Join(err, process.Stop(0)) }()
	var running []*system
	defer func() {
		for _, s := range running {
			err = errors.Join(err, s.stop())
		}
	}()
	table := map[regime]map[string]*cell{}
	for _, r := range regimes {
		table[r] = map[string]*cell{}
		for _, name := range p.systems {
			c := &cell{Regime: r, Streams: streams, System: name}
			table[r][name] = c
			cells = append(cells, c)
		}
	}
	for _, name := range p.systems {
		s := l.start(ctx, name, engine, streams)
		if ctx.Err() != nil {
			return nil, nil, 0, errors.Join(context.Cause(ctx), s.stop())
		}
		if s.missing == "" {
			running = append(running, s)
			continue
		}
		say("%d streams, %s not run: %s", streams, name, s.missing)
		for _, r := range regimes {
			table[r][name].NotRun = s.missing
		}
	}

	for round := -1; round < p.rounds; round++ { // round -1 warms up and does not count
		window := p.window
		if round < 0 {
			window /= 4
		}
		for _, r := range regimes {
			for _, s := range turn(running, round) {
				c := table[r][s.name]
				if round < 0 {
					c = &cell{Regime: r, Streams: streams, System: s.name}
				}
				if err := c.run(ctx, s, process.Pid(), window); err != nil {
					return nil, nil, 0, err
				}
			}
		}
		say("%d streams, round %d of %d", streams, round+1, p.rounds)
	}
	ours = cpuOf([]int{process.Pid()})
	for _, s := range running {
		if s.process != nil {
			ours += cpuOf(tree(s.process.Pid()))
		}
	}
	for _, c := range cells {
		c.close()
	}
	for _, s := range running {
		if s.native {
			if tasks, err = readAccuracy(s.records, streams); err != nil {
				return nil, nil, 0, err
			}
		}
	}
	return cells, tasks, ours, nil
}

// turn is the order of a round, a row of a Williams square: over as many rounds as
// there are systems each is first once, and if they are even in number each comes
// once right after each other one.
func turn(all []*system, round int) []*system {
	order := make([]*system, len(all))
	for i := range order {
		step := (i + 1) / 2 // 0, 1, -1, 2, -2, …
		if i%2 == 0 {
			step = -step
		}
		order[i] = all[(step+round+2*len(all))%len(all)]
	}
	return order
}

var requests atomic.Int64 // numbers the requests of this process

func nextID(kind string) string { return fmt.Sprintf("%s-%08d", kind, requests.Add(1)) }

// run adds one round of a system.
func (c *cell) run(ctx context.Context, s *system, engine int, window time.Duration) error {
	clients := make([]*client, c.Streams)
	defer func() {
		for _, k := range clients {
			if k != nil {
				k.close()
			}
		}
	}()
	for i := range clients {
		k, err := dial(ctx, s.addr)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		clients[i] = k
		// One request that does not count: it opens the relay's own connection.
		if _, err := k.whole(nextID("connect")); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	everyone := []int{engine}
	if s.process != nil {
		everyone = append(everyone, tree(s.process.Pid())...)
	}
	relay, all := cpuOf(s.relay()), cpuOf(everyone)+ownCPU()

	var mu sync.Mutex
	var round samples
	var wg sync.WaitGroup
	began := time.Now()
	for i, k := range clients {
		wg.Go(func() {
			one := c.stream(ctx, k, i, began, window)
			mu.Lock()
			defer mu.Unlock()
			round.add(&one)
		})
	}
	wg.Wait()
	c.relay += cpuOf(s.relay()) - relay
	c.sum += cpuOf(everyone) + ownCPU() - all
	c.ChunkRounds = append(c.ChunkRounds, quantilesOf(round.chunk))
	c.RequestRounds = append(c.RequestRounds, quantilesOf(round.request))
	c.rates = append(c.rates, float64(round.inWindow)/window.Seconds())
	c.all.add(&round)
	return context.Cause(ctx)
}

// stream is one connection's part in a round. The connections begin evenly spread
// over the length of a stream, so that requests come at an even rate, and within a gap,
// so that pieces do.
func (c *cell) stream(ctx context.Context, k *client, index int, began time.Time, window time.Duration) (all samples) {
	j := c.Regime.job(c.Streams)
	gap := time.Duration(j.GapUS) * time.Microsecond
	spread := gap * time.Duration(j.Pieces+1)
	if c.Regime == buffered {
		gap = period(c.Streams)
		spread = gap
	}
	due := began.Add(spread * time.Duration(index) / time.Duration(c.Streams))
	until := began.Add(window)
	last := now() + time.Until(until).Nanoseconds()
	var s streamed
	// failed notes an error, and dials anew: the connection's state is unknown.
	failed := func(err error) bool {
		all.errors = append(all.errors, err)
		if err = k.redial(ctx); err != nil {
			all.errors = append(all.errors, err)
		}
		return err == nil
	}
	for ; time.Now().Before(until) && ctx.Err() == nil; due = due.Add(gap) {
		time.Sleep(time.Until(due))
		if c.Regime == buffered {
			took, err := k.whole(nextID(string(c.Regime)))
			if err != nil {
				if !failed(err) {
					return all
				}
				continue
			}
			all.request = append(all.request, took)
			if now() <= last {
				all.inWindow++
			}
			continue
		}
		if err := k.stream(nextID(string(c.Regime)), j, 0, &s); err != nil {
			if !failed(err) {
				return all
			}
			continue
		}
		for i, seen := range s.seen {
			all.chunk = append(all.chunk, seen-s.emitted[i])
			if seen <= last {
				all.inWindow++
			}
			if j.GapUS > 0 {
				all.late = append(all.late, s.emitted[i]-s.emitted[0]-int64(i)*j.GapUS*1000)
			}
		}
		all.request = append(all.request, s.seen[0]-s.sent)
		all.end = append(all.end, s.end-s.emitted[len(s.emitted)-1])
	}
	return all
}

// close sums the rounds up.
func (c *cell) close() {
	c.Requests, c.Errors = len(c.all.request)+len(c.all.errors), len(c.all.errors)
	if c.Errors > 0 {
		c.Error = c.all.errors[0].Error()
	}
	c.Chunks = len(c.all.chunk)
	if c.Regime == buffered {
		c.Chunks = len(c.all.request)
	}
	c.Chunk, c.Request = quantilesOf(c.all.chunk), quantilesOf(c.all.request)
	c.End, c.Late = quantilesOf(c.all.end), quantilesOf(c.all.late)
	c.RateRounds = slices.Clone(c.rates)
	slices.Sort(c.rates)
	c.ChunksPerSecond = percentile(c.rates, 0.5)
	if c.Chunks > 0 {
		c.RelayCPU = microseconds(c.relay) / float64(c.Chunks)
		c.TotalCPU = microseconds(c.sum) / float64(c.Chunks)
	}
	c.all = samples{}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// ownCPU is the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
