// Package engine turns a graph of actions into results: it plans each action,
// runs what must run as soon as its inputs are there, and reports. It knows
// digests; it knows neither Starlark nor rules.
package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/semaphore"

	"assay/cache/ac"
	"assay/cache/cas"
	"assay/engine/action"
	"assay/engine/event"
	"assay/engine/exec"
	"assay/engine/history"
	"assay/engine/journal"
	"assay/engine/layout"
	"assay/engine/lock"
	"assay/engine/plan"
	"assay/engine/source"
	"assay/engine/supervise"
)

// Engine builds the actions of one workspace on one cache directory.
type Engine struct {
	cache    layout.Dir
	checkout string
	blobs    *cas.Store
	results  *ac.Store
	history  *history.Store
	sources  *source.Digester
	replay   bool
	// machineLock keeps what must run alone from all else on the machine.
	machineLock string
}

// Options configure an Engine.
type Options struct {
	// Cache is the cache directory, Workspace the absolute workspace directory.
	Cache, Workspace string
	// Replay takes recorded samples wherever they were made and never measures.
	Replay bool
	// MachineLock replaces the lock file that all builds on the machine share, for
	// containers that do not share /tmp; tests have one of their own.
	MachineLock string
}

// machineLock has a fixed place: builds with another TMPDIR use the same CPUs.
const machineLock = "/tmp/assay-machine.lock"

// Open prepares the cache directory.
func Open(o Options) (*Engine, error) {
	dir, checkout := layout.Dir(o.Cache), layout.Checkout(o.Workspace)
	blobs, err := cas.Open(dir.Content())
	if err != nil {
		return nil, err
	}
	return &Engine{
		cache: dir, checkout: checkout,
		blobs:   blobs,
		results: ac.Open(dir.Records()),
		history: history.Open(filepath.Join(dir.History(), checkout)),
		sources: source.Open(filepath.Join(dir.History(), checkout, "files.json")),
		replay:  o.Replay,

		machineLock: cmp.Or(o.MachineLock, machineLock),
	}, nil
}

// Blobs is the content store.
func (e *Engine) Blobs() *cas.Store { return e.blobs }

// History is the memory of this workspace.
func (e *Engine) History() *history.Store { return e.history }

func (e *Engine) planner() *plan.Planner {
	return &plan.Planner{Blobs: e.blobs, Results: e.results, History: e.history, Digest: e.sources.Digest, Replay: e.replay}
}

// Plan says what Build would do with actions, which are in dependency order.
func (e *Engine) Plan(ctx context.Context, actions []*action.Action) ([]plan.Verdict, error) {
	release, err := e.use(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer release()
	verdicts, err := e.planner().All(ctx, actions)
	return verdicts, errors.Join(err, e.sources.Save())
}

// Outcome is how one action ended.
type Outcome struct {
	Action  *action.Action
	Status  event.Status
	Why     history.Why // of a run
	Key     digest.Digest
	Output  cas.Ref // unset if the action failed, was blocked, skipped or interrupted
	Samples int     // new samples
	Elapsed time.Duration
	Err     error
	// Absent says why there is no output if the action failed or did not run; Stop is
	// the decision of a stop rule, why what waits for it is skipped.
	Absent *action.Absence
	Stop   string
}

// Report is what a build did, one outcome an action in the order given.
type Report struct {
	Invocation string
	Outcomes   []Outcome
	Elapsed    time.Duration
}

// Err joins the errors of all actions that failed and of all gates that did not
// pass; nil if there are none. The latter are *action.GateError.
func (r *Report) Err() error {
	var errs []error
	for _, o := range r.Outcomes {
		if o.Status == event.Failed || o.Status == event.GateFailed {
			errs = append(errs, o.Err)
		}
	}
	return errors.Join(errs...)
}

// Failed reports whether an action failed, as opposed to a gate.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Outcomes, func(o Outcome) bool { return o.Status == event.Failed })
}

// Build makes the results of actions, which are in dependency order. What does
// not depend on a failed action is built all the same. The error tells of
// trouble with the build itself; failures of actions are in the report.
func (e *Engine) Build(ctx context.Context, actions []*action.Action, sink event.Sink) (*Report, error) {
	started := time.Now()
	release, err := e.use(ctx, sink)
	if err != nil {
		return nil, err
	}
	defer release()
	invocation := newInvocation(started)
	logDir := filepath.Join(e.cache.Logs(), invocation)
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, err
	}
	logFile, err := os.Create(filepath.Join(logDir, journal.File))
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	log := event.NewLog(logFile)

	executor, err := exec.New(e.cache.Work(), logDir, invocation, e.blobs, e.results)
	if err != nil {
		return nil, err
	}
	b := &build{
		Engine: e, planner: e.planner(), executor: executor, invocation: invocation,
		sink: event.Tee(log, sink), slots: semaphore.NewWeighted(int64(runtime.NumCPU())),
		nodes: map[string]*node{},
	}
	b.note(event.Event{Kind: event.Begin, Schema: event.Schema, Invocation: invocation, Checkout: e.checkout, Total: len(actions)})
	for _, what := range executor.Recovered {
		b.note(event.Event{Kind: event.Note, What: what})
	}
	for _, a := range actions {
		b.nodes[a.ID] = &node{done: make(chan struct{})}
	}
	var wg sync.WaitGroup
	for _, a := range actions {
		wg.Go(func() { b.one(ctx, a) })
	}
	wg.Wait()

	report := &Report{Invocation: invocation, Elapsed: time.Since(started)}
	for _, a := range actions {
		report.Outcomes = append(report.Outcomes, b.nodes[a.ID].outcome)
	}
	return report, errors.Join(executor.Close(), e.sources.Save(), log.Err(), errors.Join(b.troubles...))
}

// use keeps the stores from being cleaned until release is called.
func (e *Engine) use(ctx context.Context, sink event.Sink) (release func(), err error) {
	return lock.AcquireMode(ctx, e.cache.InUse(), lock.Shared, "", func(holder string) {
		if sink != nil {
			sink.Handle(event.Event{Time: time.Now().UTC(), Kind: event.Note, What: "waiting for the cache: " + holder})
		}
	})
}

// newInvocation names a build: by its start, so that names are in its order, and
// unique among those of that moment.
func newInvocation(t time.Time) string {
	var b [3]byte
	rand.Read(b[:])
	return t.UTC().Format("20060102T150405.000Z") + "-" + hex.EncodeToString(b[:])
}

// build is one call of Build.
type build struct {
	*Engine
	planner    *plan.Planner
	executor   *exec.Executor
	invocation string
	sink       event.Sink
	slots      *semaphore.Weighted
	nodes      map[string]*node

	mu       sync.Mutex
	troubles []error // of the build itself
}

func (b *build) trouble(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, err)
}

// node is the place where an action's outcome appears; done is closed when it has.
type node struct {
	done    chan struct{}
	outcome Outcome
}

// note tells of something that belongs to no action.
func (b *build) note(e event.Event) {
	e.Time = time.Now().UTC()
	b.sink.Handle(e)
}

func (b *build) emit(a *action.Action, e event.Event) {
	e.Time, e.Action, e.Rule = time.Now().UTC(), a.ID, a.Rule
	b.sink.Handle(e)
}

// one waits for the inputs of a, plans it and runs it if needed.
func (b *build) one(ctx context.Context, a *action.Action) {
	n := b.nodes[a.ID]
	defer close(n.done)
	n.outcome = b.outcome(ctx, a)
	o := &n.outcome
	o.Action = a
	if o.Absent == nil && (o.Status == event.Failed || o.Status == event.GateFailed && o.Output.Digest == "") {
		o.Absent = &action.Absence{By: a.ID, Reason: brief(o.Err)}
	}
	e := event.Event{
		Kind: event.Finished, Status: o.Status, Reason: o.Why.Reason, Seconds: o.Elapsed.Seconds(),
		Key: o.Key, Needs: needs(a),
	}
	if o.Err != nil {
		e.Error = o.Err.Error()
	}
	b.emit(a, e)
}

// brief is the part of an error that is the same each time: the rest names files,
// and shows logs. An error may have a method that says it.
func brief(err error) string {
	if rejected, ok := errors.AsType[*action.RejectedError](err); ok {
		return "sample rejected: " + rejected.Reason
	}
	if short, ok := errors.AsType[interface {
		error
		Brief() string
	}](err); ok {
		return short.Brief()
	}
	return "failed"
}

// needs lists the actions that a waits for, each once.
func needs(a *action.Action) []string {
	var ids []string
	for _, d := range a.Deps {
		if !slices.Contains(ids, d.ID) {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func (b *build) outcome(ctx context.Context, a *action.Action) Outcome {
	for _, d := range a.Deps {
		<-b.nodes[d.ID].done
	}
	for _, d := range a.Deps {
		of := &b.nodes[d.ID].outcome
		switch {
		case of.Status == event.Interrupted:
			return Outcome{Status: event.Interrupted}
		case d.Optional:
		case of.Status == event.Failed, of.Status == event.Blocked:
			return Outcome{Status: event.Blocked, Absent: of.Absent, Err: fmt.Errorf("%s needs %s, which failed", a.ID, d.ID)}
		case of.Status == event.GateFailed && (d.Gate || of.Output.Digest == ""):
			absent := of.Absent
			if absent == nil {
				absent = &action.Absence{By: d.ID, Reason: "did not pass"}
			}
			return Outcome{Status: event.Blocked, Absent: absent, Err: fmt.Errorf("%s needs %s to pass, and it did not", a.ID, d.ID)}
		}
	}
	// Planning reads files, so it takes a place too: nothing runs beside a
	// measurement.
	if b.slots.Acquire(ctx, 1) != nil {
		return Outcome{Status: event.Interrupted}
	}
	v, err := b.plan(ctx, a)
	b.slots.Release(1)
	switch {
	case ctx.Err() != nil:
		return Outcome{Status: event.Interrupted}
	case err != nil:
		return Outcome{Status: event.Failed, Err: err}
	case v.State == plan.Skipped:
		return Outcome{Status: event.Skipped, Why: v.Why, Absent: v.Skip}
	case v.State == plan.Run && b.replay && a.Class == action.Measurement:
		return Outcome{Status: event.Failed, Why: v.Why,
			Err: fmt.Errorf("%s: %s: --replay never measures, and there are no recorded samples: %s", a.Where, a.ID, v.Why.Reason)}
	case v.State == plan.Run:
		return b.run(ctx, v)
	}
	return b.remember(v, Outcome{Status: event.Cached, Key: v.Key, Output: v.Output})
}

func (b *build) plan(ctx context.Context, a *action.Action) (plan.Verdict, error) {
	return b.planner.One(ctx, a, func(id string) plan.Dependency {
		o := &b.nodes[id].outcome
		return plan.Dependency{Output: o.Output, Absent: o.Absent, Stop: o.Stop}
	})
}

// run executes v once the machine has room: actions side by side, a measurement
// or another exclusive one alone, here and on the whole machine.
func (b *build) run(ctx context.Context, v plan.Verdict) Outcome {
	a := v.Action
	stopped := func(err error) Outcome {
		if ctx.Err() != nil {
			return Outcome{Status: event.Interrupted}
		}
		return Outcome{Status: event.Failed, Err: fmt.Errorf("%s: %s: %w", a.Where, a.ID, err)}
	}
	all := int64(runtime.NumCPU())
	weight, alone := min(max(1, int64(a.CPUs)), all), a.Exclusive || a.Class == action.Measurement
	if alone {
		weight = all
	}
	if err := b.slots.Acquire(ctx, weight); err != nil {
		return stopped(err)
	}
	defer b.slots.Release(weight)
	progress := func(done, total int, what string) {
		b.emit(a, event.Event{Kind: event.Progress, Done: done, Total: total, What: what})
	}
	waiting := func(holder string) { progress(0, 0, "waiting for "+holder) }

	// Whoever else builds this key on this cache makes the result for both.
	unlock, err := lock.Acquire(ctx, filepath.Join(b.cache.Locks(), v.Key.Encoded()), a.ID, waiting)
	if err != nil {
		return stopped(err)
	}
	defer unlock()
	if v, err = b.plan(ctx, a); err != nil {
		return Outcome{Status: event.Failed, Err: err}
	}
	if v.State == plan.Cached {
		return b.remember(v, Outcome{Status: event.Cached, Key: v.Key, Output: v.Output})
	}
	// Between processes: an exclusive action excludes all others on the machine.
	mode := lock.Shared
	if alone {
		mode = lock.Exclusive
	}
	unlockMachine, err := lock.AcquireMode(ctx, b.machineLock, mode, a.ID, waiting)
	if err != nil {
		return stopped(err)
	}
	defer unlockMachine()
	before, hadBefore := b.history.Last(a.ID)
	b.emit(a, event.Event{Kind: event.Started, Reason: v.Why.Reason})
	started := time.Now()
	output, made, err := b.executor.Run(ctx, v, progress)
	if alone {
		// What got away from its process group would run beside the next one.
		if n := supervise.KillDescendants(); n > 0 {
			progress(0, 0, fmt.Sprintf("killed %d processes that it left behind", n))
		}
	}
	o := Outcome{Status: event.Ran, Why: v.Why, Key: v.Key, Output: output, Samples: made, Elapsed: time.Since(started)}
	switch {
	case ctx.Err() != nil:
		o.Status = event.Interrupted
		return o
	case err != nil:
		o.Status, o.Err = event.Failed, fmt.Errorf("%s: %s failed: %w", a.Where, a.ID, err)
		var rejected *action.RejectedError
		if errors.As(err, &rejected) && rejected.Err == nil {
			o.Status = event.GateFailed // it ran, and did not qualify
		}
		return o
	case hadBefore && before.Output == output && a.Class == action.Pure:
		o.Status = event.Reproduced
	}
	return b.remember(v, o)
}

// remember notes the outcome for a later "why". No result rests on it, so trouble
// with it is the build's and not the action's.
func (b *build) remember(v plan.Verdict, o Outcome) Outcome {
	preimage, err := b.blobs.PutBytes(v.Preimage)
	if err == nil {
		entry := history.Entry{ID: v.Action.ID, Key: v.Key, Preimage: preimage, Output: o.Output}
		if last, ok := b.history.Last(v.Action.ID); ok {
			entry.LastRun = last.LastRun
		}
		if o.Status != event.Cached {
			entry.LastRun = &history.Ran{Time: time.Now().UTC(), Invocation: b.invocation, Key: v.Key, Why: o.Why}
		}
		err = b.history.Record(entry)
	}
	if err != nil {
		b.trouble(fmt.Errorf("remember %s for why: %w", v.Action.ID, err))
	}
	return b.judge(v.Action, o)
}

// judge asks a gate for its verdict, and a stop rule for its decision.
func (b *build) judge(a *action.Action, o Outcome) Outcome {
	var err error
	switch {
	case a.Verdict != nil:
		err = a.Verdict(o.Output, b.blobs)
	case a.Stop != nil:
		o.Stop, err = a.Stop(o.Output, b.blobs)
	}
	var gate *action.GateError
	switch {
	case errors.As(err, &gate):
		o.Status, o.Err = event.GateFailed, fmt.Errorf("%s: %s did not pass: %w", a.Where, a.ID, err)
	case err != nil:
		o.Status, o.Err = event.Failed, fmt.Errorf("%s: %s: read the verdict: %w", a.Where, a.ID, err)
	}
	return o
}
