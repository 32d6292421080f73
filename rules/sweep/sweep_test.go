package sweep

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/engine/action"
	"assay/rules/aiperfrun"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/join"
)

// joined is a run of a closed loop with these figures; latency in ms.
func joined(concurrency int64, completed, rejected int, perSecond, latency float64) *join.Joined {
	j := &join.Joined{Version: 1, Samples: []join.Sample{{}}}
	j.Samples[0].Facts.Workload = aiperfrun.Workload{Concurrency: concurrency}
	n := completed + rejected
	j.Row = metrics.Row{
		Samples: 1, Measured: n, Counts: map[ledger.Class]int{ledger.Completed: completed, ledger.Rejected: rejected},
		Rejected: metrics.Proportion(rejected, n), NotCompleted: metrics.Proportion(rejected, n),
	}
	if completed > 0 {
		j.Row.RequestsPerS, j.Row.LatencyMS.Mean = &perSecond, &latency
	}
	return j
}

func TestStopRule(t *testing.T) {
	usual := limits{gain: .1, errors: .05}
	for _, test := range []struct {
		name         string
		cell, before *join.Joined
		limits       limits
		stop         bool
		reason       string
	}{
		{"the first cell", joined(1, 20, 0, 5, 200), nil, usual, false, ""},
		{"as fast as the load", joined(2, 20, 0, 10, 200), joined(1, 20, 0, 5, 200), usual, false, ""},
		{"no faster", joined(2, 20, 0, 5.1, 392), joined(1, 20, 0, 5, 200), usual, true, "saturated at c=2 (throughput +2.0 % for +100 % load, mean latency +96.0 %)"},
		{"slower", joined(8, 20, 0, 4, 2000), joined(4, 20, 0, 5, 800), usual, true, "saturated at c=8 (throughput -20.0 % for +100 % load, mean latency +150.0 %)"},
		{"a small step gains little", joined(11, 20, 0, 5.04, 2184), joined(10, 20, 0, 5, 2000), usual, true, "saturated at c=11 (throughput +0.8 % for +10 % load, mean latency +9.2 %)"},
		{"no faster and no later either: the load was not there", joined(2, 20, 0, 5, 200), joined(1, 20, 0, 5, 200), usual, false, ""},
		{"half refused", joined(2, 10, 10, 5, 200), joined(1, 20, 0, 5, 200), usual, true, "too many errors at c=2 (10 of 20 requests did not complete: 10 rejected)"},
		{"all refused, in the first cell", joined(1, 0, 20, 0, 0), nil, usual, true, "too many errors at c=1 (20 of 20 requests did not complete: 20 rejected)"},
		{"one of twenty may be chance", joined(2, 19, 1, 10, 200), joined(1, 20, 0, 5, 200), usual, false, ""},
		{"errors do not matter", joined(2, 10, 10, 10, 200), joined(1, 20, 0, 5, 200), limits{.1, 1}, false, ""},
		{"saturation does not matter", joined(2, 20, 0, 5, 400), joined(1, 20, 0, 5, 200), limits{0, .05}, false, ""},
		{"too few to judge", joined(2, 5, 0, 5, 400), joined(1, 20, 0, 5, 200), usual, false, "saturation cannot be judged: 5 completed requests are too few (needs 6) at c=2"},
		{"too few before", joined(2, 20, 0, 5, 400), joined(1, 3, 0, 5, 200), usual, false, "saturation cannot be judged: 3 completed requests are too few (needs 6) at c=1"},
	} {
		if d := decide(test.cell, test.before, test.limits); d.Stop != test.stop || d.Reason != test.reason {
			t.Errorf("%s: stop %v, %q\nwant %v, %q", test.name, d.Stop, d.Reason, test.stop, test.reason)
		}
	}
}

// A lower limit of the gain never stops a series earlier, nor does a higher limit of
// errors, and a stop always has a reason.
func TestLooserLimitsStopLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, concurrency int64) *join.Joined {
			return joined(concurrency, rapid.IntRange(0, 40).Draw(t, name+" completed"), rapid.IntRange(0, 40).Draw(t, name+" rejected"),
				rapid.Float64Range(.1, 100).Draw(t, name+" rate"), rapid.Float64Range(1, 1e4).Draw(t, name+" latency"))
		}
		before, cell := draw("before", 2), draw("cell", 2+rapid.Int64Range(1, 30).Draw(t, "more"))
		tight := limits{rapid.Float64Range(0, 1).Draw(t, "gain"), rapid.Float64Range(0, 1).Draw(t, "errors")}
		loose := limits{tight.gain * rapid.Float64Range(0, 1).Draw(t, "less"), tight.errors + (1-tight.errors)*rapid.Float64Range(0, 1).Draw(t, "more errors")}
		a, b := decide(cell, before, tight), decide(cell, before, loose)
		if b.Stop && !a.Stop {
			t.Fatalf("%+v stops, %+v does not", b, a)
		}
		if a.Stop && a.Reason == "" {
			t.Fatal("stops without a reason")
		}
	})
}

// Every cell has a state; one that was not measured has a reason, and no number.
func TestCellsWithoutFigures(t *testing.T) {
	in := t.TempDir()
	if err := jsonfile.Write(in+"/measured", joined(4, 0, 20, 0, 0)); err != nil {
		t.Fatal(err)
	}
	run := action.NewRun(func(role string) string { return in + "/" + role }, "", "", nil)
	run.Absent = map[string]action.Absence{
		"skipped": {Skipped: true, By: "//:stop", Reason: "saturated at c=2"},
		"failed":  {By: "//:cell", Reason: "sample rejected: too bad"},
		"joined":  {By: "//:cell_joined", Reason: "failed"},
		"not_run": {By: "//:other", Reason: "failed"},
	}
	s := Series{Workload: closed}
	for i, want := range []struct {
		role   string
		state  State
		reason string
	}{
		{"measured", Measured, ""}, {"skipped", Skipped, "saturated at c=2"}, {"failed", Failed, "sample rejected: too bad"},
		{"joined", Failed, "failed"}, {"not_run", NotRun, "//:other: failed"},
	} {
		c, err := read(run, want.role, place{join: "//:cell_joined", run: "//:cell", name: "cell", load: float64(5 - i)})
		if err != nil {
			t.Fatal(err)
		}
		if c.State != want.state || c.Reason != want.reason || (c.Figures != nil) != (c.State == Measured) {
			t.Errorf("%s: %+v", want.role, c)
		}
		s.Cells = append(s.Cells, c)
	}
	s.finish(.05)
	last := s.Cells[4] // in the order of the load
	if last.State != Measured || last.Power != nil || last.Reason != "20 of 20 requests did not complete: 20 rejected" {
		t.Errorf("%+v", last)
	}
	if !strings.HasPrefix(s.Knee.Absent, "cannot tell: too many errors from the lowest load on, c=5") {
		t.Errorf("%+v", s.Knee)
	}
}

// Series that differ only in the most requests in flight have names of their own.
func TestOpenLoopIsNamed(t *testing.T) {
	w := Workload{Endpoint: "chat", Mode: "streamed", InputTokens: 32, OutputTokens: 16, Axis: RequestRate, Arrival: "poisson", MostInFlight: 8}
	if got := w.String(); got != "chat, streamed, 32 → 16 tokens, poisson arrivals, at most 8 in flight" {
		t.Error(got)
	}
}
