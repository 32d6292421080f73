package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/engine/event"
	"assay/engine/plan"
)

// measurement gives a new number at every run.
func (l *lab) measurement(samples int, env map[string]string, fail func(n int64) error, n *atomic.Int64) *action.Action {
	return &action.Action{
		ID: "m", Where: "m:1:1", Rule: "measure", Version: 1, Class: action.Measurement, Samples: samples,
		Environment: func() (map[string]string, error) { return env, nil },
		Run: func(ctx context.Context, run *action.Run) error {
			i := n.Add(1)
			if err := os.WriteFile(filepath.Join(run.Out, "x"), fmt.Append(nil, i), 0o644); err != nil {
				return err
			}
			return fail(i)
		},
	}
}

func fine(int64) error { return nil }

func TestSamplesAreKeptAndAddedTo(t *testing.T) {
	l := newLab(t)
	var n atomic.Int64
	here := map[string]string{"cpu_model": "A"}
	r := l.build(l.measurement(2, here, fine, &n))
	want(t, statuses(r), "m=ran")
	if r.Outcomes[0].Samples != 2 {
		t.Fatalf("%d new samples", r.Outcomes[0].Samples)
	}
	want(t, statuses(l.build(l.measurement(2, here, fine, &n))), "m=cached")
	r = l.build(l.measurement(3, here, fine, &n))
	if r.Outcomes[0].Samples != 1 || n.Load() != 3 {
		t.Fatalf("%d new samples, %d runs", r.Outcomes[0].Samples, n.Load())
	}
	want(t, r.Outcomes[0].Why.Reason, "2 of 3 samples")

	// On another machine nothing is pooled, and the reason names the component.
	r = l.build(l.measurement(3, map[string]string{"cpu_model": "B"}, fine, &n))
	if n.Load() != 6 || !strings.Contains(r.Outcomes[0].Why.Reason, `cpu_model: "A" there, "B" here`) {
		t.Fatalf("%d runs, why %q", n.Load(), r.Outcomes[0].Why.Reason)
	}
}

func TestReplayNeverMeasures(t *testing.T) {
	l := newLab(t)
	var n atomic.Int64
	replay := func(samples int) *Report {
		e, err := Open(Options{Cache: l.cache, Workspace: l.workspace, Replay: true, MachineLock: filepath.Join(l.cache, "machine")})
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Build(t.Context(), []*action.Action{l.measurement(samples, map[string]string{"cpu_model": "B"}, fine, &n)}, event.SinkFunc(func(event.Event) {}))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := replay(1); !strings.Contains(r.Err().Error(), "--replay never measures") {
		t.Fatal(r.Err())
	}
	l.build(l.measurement(1, map[string]string{"cpu_model": "A"}, fine, &n))
	want(t, statuses(replay(1)), "m=cached")
	if n.Load() != 1 {
		t.Fatalf("%d runs", n.Load())
	}
}

func TestRejectedSampleIsKeptAndNotUsed(t *testing.T) {
	l := newLab(t)
	var n atomic.Int64
	reject := func(i int64) error {
		if i == 1 {
			return &action.RejectedError{Reason: "the server died"}
		}
		return nil
	}
	r := l.build(l.measurement(1, nil, reject, &n))
	want(t, statuses(r), "m=gate failed")
	series, err := l.open().results.Samples(keyOf(t, l, l.measurement(1, nil, reject, &n)))
	if err != nil || len(series) != 1 || !strings.Contains(series[0].Rejected, "the server died") {
		t.Fatalf("series %+v, %v", series, err)
	}
	if err := l.open().Blobs().Complete(series[0].Output); err != nil {
		t.Fatalf("what was measured is lost: %v", err)
	}
	r = l.build(l.measurement(1, nil, reject, &n))
	want(t, statuses(r), "m=ran")
	want(t, r.Outcomes[0].Why.Reason, "0 of 1 samples, 1 rejected")
}

func keyOf(t *testing.T, l *lab, a *action.Action) digest.Digest {
	t.Helper()
	v, err := l.open().Plan(t.Context(), []*action.Action{a})
	if err != nil {
		t.Fatal(err)
	}
	return v[0].Key
}

// Without measuring, samples of other machines are taken, but never mixed.
func TestReplayTakesTheSamplesOfOneEnvironment(t *testing.T) {
	l := newLab(t)
	var n atomic.Int64
	on := func(model string, samples int) *action.Action {
		return l.measurement(samples, map[string]string{"cpu_model": model}, fine, &n)
	}
	l.build(on("A", 2))
	l.build(on("B", 1))
	replay := func(samples int) plan.Verdict {
		e, err := Open(Options{Cache: l.cache, Workspace: l.workspace, Replay: true, MachineLock: filepath.Join(l.cache, "machine")})
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Plan(t.Context(), []*action.Action{on("C", samples)})
		if err != nil {
			t.Fatal(err)
		}
		return v[0]
	}
	if v := replay(2); v.State != plan.Cached || v.Samples[0].Environment["cpu_model"] != "A" || v.Samples[1].Environment["cpu_model"] != "A" {
		t.Fatalf("%s: %+v", v.State, v.Samples)
	}
	if v := replay(3); v.State != plan.Run || !strings.Contains(v.Why.Reason, "1 from another environment") {
		t.Fatalf("%s: %q", v.State, v.Why.Reason)
	}
}

// More samples than wanted change nothing for who wants fewer.
func TestChosenSamplesAreStable(t *testing.T) {
	l := newLab(t)
	var n atomic.Int64
	here := map[string]string{"cpu_model": "A"}
	first := l.build(l.measurement(1, here, fine, &n)).Outcomes[0].Output
	l.build(l.measurement(3, here, fine, &n))
	if again := l.build(l.measurement(1, here, fine, &n)).Outcomes[0].Output; again != first {
		t.Fatalf("the output was %v and is %v", first, again)
	}
}

func TestInterruptedMeasurementLeavesNoSample(t *testing.T) {
	l := newLab(t)
	var n atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	m := l.measurement(1, nil, func(int64) error {
		cancel()
		return &action.RejectedError{Reason: "the client was stopped", Err: context.Canceled}
	}, &n)
	key := keyOf(t, l, m)
	r, err := l.open().Build(ctx, []*action.Action{m}, event.SinkFunc(func(event.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	want(t, statuses(r), "m=interrupted")
	if series, err := l.open().results.Samples(key); err != nil || len(series) > 0 {
		t.Fatalf("series %+v, %v", series, err)
	}
}
