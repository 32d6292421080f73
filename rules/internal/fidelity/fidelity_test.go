package fidelity

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/rules/internal/ledger"
	"assay/rules/internal/trace"
)

const msec = int64(1_000_000)

var limits = Limits{MedianLagMS: 10, P99LagMS: 100, Rate: 0.01}

// punctual are n requests, due every 100 ms and sent 1 ms late, done after 20 ms.
func punctual(n int) (entries []*ledger.Entry) {
	for i := range int64(n) {
		entries = append(entries, &ledger.Entry{
			Phase: ledger.Measured, Class: ledger.Completed, Place: ledger.Place{Conversation: string(rune('a' + i))},
			Client: &ledger.Client{TTFTNS: ptr(10 * msec), LatencyNS: ptr(20 * msec)}, Tokens: ledger.Tokens{Prompt: ptr(int64(7))},
			Schedule: &ledger.Scheduled{DueNS: i * 100 * msec, LagNS: ptr(msec), ResponseNS: ptr(21 * msec)},
		})
	}
	return entries
}

func ptr[T any](v T) *T { return &v }

func report(entries []*ledger.Entry, expected map[string]Expected) *Report {
	b := Builder{Limits: limits, Expected: expected}
	for _, e := range entries {
		b.Add(e)
	}
	return b.Report(trace.Facts{}, &ledger.Summary{Schedule: &ledger.Schedule{Zero: ledger.ZeroReported}}, Conditions{ConnectionWaits: new(int)})
}

func TestAPunctualReplayMeetsEveryGate(t *testing.T) {
	r := report(punctual(101), nil)
	if unmet := r.Unmet(); unmet != nil {
		t.Errorf("%q", unmet)
	}
	if r.Planned != 101 || r.Sent != 101 || *r.OfferedPerS != 10 || *r.SentPerS != 10 || *r.CompletedPerS != 10 || *r.LagMS.P50.Value != 1 || r.LagMS.P99.Value != nil {
		t.Errorf("%+v", r)
	}
	if d := r.Drift; d.MSPerS != 0 || d.Low != 0 || d.High != 0 || d.Stamps != 101 {
		t.Errorf("%+v", d)
	}
	if len(r.Windows) != Windows || r.Windows[0].Planned != 10 || r.Windows[9].Planned != 11 || r.Windows[9].ToS != 10 || *r.Windows[3].TTFTMS.P50.Value != 10 {
		t.Errorf("%+v", r.Windows)
	}
}

func TestGates(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func([]*ledger.Entry)
		want  string // the gate that is not met, "" for none
	}{
		"half late":           {func(e []*ledger.Entry) { late(e[:51], 12) }, "median lag"},
		"less than half late": {func(e []*ledger.Entry) { late(e[:50], 12); late(e[51:], 1) }, ""},
		"one in a hundred":    {func(e []*ledger.Entry) { late(e[50:51], 150) }, ""},
		"two in a hundred":    {func(e []*ledger.Entry) { late(e[50:52], 150) }, "p99 lag"},
		"slower":              {func(e []*ledger.Entry) { late(e[100:], 150) }, "send rate against offered rate"},
		"never sent": {func(e []*ledger.Entry) {
			e[50].Class, e[50].Client, e[50].Schedule.LagNS, e[50].Schedule.ResponseNS = ledger.NotSent, nil, nil, nil
		}, "every request was sent and has an end"},
		"no known end":       {func(e []*ledger.Entry) { e[50].Class = ledger.Incomplete }, "every request was sent and has an end"},
		"refused as busy":    {func(e []*ledger.Entry) { e[50].Class = ledger.Rejected }, ""},
		"refused as invalid": {func(e []*ledger.Entry) { e[50].Class = ledger.Invalid }, "refused as invalid are the rows beyond the context, and no other"},
		"drift": {func(e []*ledger.Entry) {
			for i := range e {
				late(e[i:i+1], int64(1+i/20))
			}
		}, "no drift"},
		"catching up": {func(e []*ledger.Entry) {
			for i := range e {
				late(e[i:i+1], int64(6-i/20))
			}
		}, ""},
	} {
		entries := punctual(101)
		c.spoil(entries)
		var unmet []string
		for _, g := range report(entries, nil).Gates {
			if !g.Met {
				unmet = append(unmet, g.Name)
			}
		}
		if got := strings.Join(unmet, ", "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// late sends requests so many ms after their time.
func late(entries []*ledger.Entry, ms int64) {
	for _, e := range entries {
		e.Schedule.LagNS, e.Schedule.ResponseNS = ptr(ms*msec), ptr((ms+20)*msec)
	}
}

func TestRowsBeyondTheContextAreToBeRefused(t *testing.T) {
	entries := punctual(20)
	entries[3].Class = ledger.Invalid
	expected := map[string]Expected{"d": {TooLong: true}}
	if unmet := report(entries, expected).Unmet(); unmet != nil {
		t.Errorf("%q", unmet)
	}
	entries[3].Class = ledger.Rejected // all lanes were busy
	if unmet := report(entries, expected).Unmet(); unmet != nil {
		t.Errorf("%q", unmet)
	}
	entries[3].Class = ledger.Completed // an engine that cut it
	if unmet := report(entries, expected).Unmet(); len(unmet) != 1 || !strings.Contains(unmet[0], "1 of 20 planned requests are refused though they fit, or not refused though they do not") {
		t.Errorf("%q", unmet)
	}
}

func TestPromptsHaveThePlannedLength(t *testing.T) {
	entries := punctual(20)
	expected := map[string]Expected{"a": {PromptTokens: ptr(int64(7))}, "b": {PromptTokens: ptr(int64(8))}, "c": {PromptTokens: ptr(int64(7))}}
	entries[2].Tokens.Prompt = nil
	if unmet := report(entries, expected).Unmet(); len(unmet) != 1 || !strings.HasPrefix(unmet[0], "prompts have the planned length: 2 of 20") {
		t.Errorf("%q", unmet)
	}
}

// Without a zero a lag that all requests share cannot be seen, so nothing is said of it.
func TestAZeroThatIsGuessedDecidesNothing(t *testing.T) {
	b := Builder{Limits: limits}
	for _, e := range punctual(20) {
		b.Add(e)
	}
	r := b.Report(trace.Facts{}, &ledger.Summary{Schedule: &ledger.Schedule{Zero: ledger.ZeroLeastLate}}, Conditions{Saturated: true})
	if unmet := r.Unmet(); len(unmet) != 2 || !strings.HasPrefix(unmet[0], "median lag: AIPerf reported no start") || r.NotOpen.ClientSaturated != 20 || r.NotOpen.ConnectionWaits != nil {
		t.Errorf("%q, %+v", unmet, r.NotOpen)
	}
	r = (&Builder{Limits: limits}).Report(trace.Facts{}, &ledger.Summary{}, Conditions{})
	if len(r.Unmet()) != 2 || r.Windows != nil || r.OfferedPerS != nil {
		t.Errorf("of nothing: %+v", r)
	}
}

// A request that only the server has cannot be told from the others of the plan.
func TestARequestWithoutAPlaceIsAccountedFor(t *testing.T) {
	entries := append(punctual(20), &ledger.Entry{Phase: ledger.Measured, Class: ledger.Incomplete})
	r := report(entries, nil)
	if r.Planned != 21 || r.Counts[ledger.Incomplete] != 1 || len(r.Unmet()) != 1 || !strings.HasPrefix(r.Unmet()[0], "every request was sent and has an end: 1 of 21") {
		t.Errorf("%+v, %q", r, r.Unmet())
	}
}

func TestTurnsThatWaitAreCounted(t *testing.T) {
	b := Builder{}
	b.Add(&ledger.Entry{Phase: ledger.Measured, Place: ledger.Place{Conversation: "a", Turn: 1}})
	b.Add(&ledger.Entry{Phase: ledger.Warmup, Place: ledger.Place{Conversation: "a", Turn: 1}})
	if r := b.Report(trace.Facts{}, &ledger.Summary{}, Conditions{}); r.NotOpen.TurnDependent != 1 {
		t.Errorf("%+v", r.NotOpen)
	}
}

// The slope of y = 3 + 2x with residuals 1, -1, -1, 1 at x = 0..3 is 2 with the
// standard error sqrt(4/2/5), and t(0.975, 2) = 4.302653.
func TestDriftInClosedForm(t *testing.T) {
	var requests []request
	for i, lag := range []int64{4, 4, 6, 10} {
		// Two requests of one time count as their mean.
		requests = append(requests, request{due: int64(i) * 1000 * msec, lag: ptr((lag - 1) * msec)}, request{due: int64(i) * 1000 * msec, lag: ptr((lag + 1) * msec)})
	}
	d := drift(requests)
	half := 4.302652729911275 * math.Sqrt(4./2/5)
	if d.Stamps != 4 || math.Abs(d.MSPerS-2) > 1e-12 || math.Abs(d.Low-(2-half)) > 1e-6 || math.Abs(d.High-(2+half)) > 1e-6 {
		t.Errorf("%+v, want 2 ± %g", d, half)
	}
	if drift(requests[:4]) != nil {
		t.Error("two times have a slope")
	}
}

func TestOvertaken(t *testing.T) {
	at := func(due, sent int64) request { return request{due: due * msec, lag: ptr((sent - due) * msec)} }
	for _, c := range []struct {
		requests []request
		n        int
		longest  float64
	}{
		{[]request{at(0, 1), at(10, 11), at(20, 21)}, 0, 0},
		{[]request{at(0, 15), at(10, 11), at(20, 21)}, 1, 4},
		{[]request{at(0, 30), at(10, 29), at(20, 21)}, 2, 9},
		{[]request{at(0, 3), at(0, 2), at(0, 1)}, 0, 0}, // no order among those of one time
		{[]request{at(0, 12), at(0, 2), at(10, 11), {due: 5}}, 1, 1},
	} {
		for range 2 {
			if n, longest := overtaken(c.requests); n != c.n || longest != c.longest {
				t.Errorf("%v: %d by %g, want %d by %g", c.requests, n, longest, c.n, c.longest)
			}
			slices.Reverse(c.requests)
		}
	}
}

// Every planned request is in one window and one column, and the order in which
// entries come does not matter.
func TestWindowsAccountForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []*ledger.Entry
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			e := &ledger.Entry{Phase: ledger.Measured, Class: rapid.SampledFrom(ledger.Classes).Draw(t, "class"), Client: &ledger.Client{},
				Schedule: &ledger.Scheduled{DueNS: rapid.Int64Range(0, 50).Draw(t, "due") * 97 * msec}}
			if e.Class != ledger.NotSent {
				e.Schedule.LagNS = ptr(rapid.Int64Range(-1, 200).Draw(t, "lag") * msec)
			}
			entries = append(entries, e)
		}
		r := report(entries, nil)
		var planned, ended, sent int
		for _, w := range r.Windows {
			planned, sent, ended = planned+w.Planned, sent+w.Sent, ended+w.Completed+w.Rejected+w.Other
		}
		if planned != len(entries) || ended != planned || sent != r.Sent || r.Planned != planned {
			t.Fatalf("%d planned, %d ended, %d sent of %d; %+v", planned, ended, sent, len(entries), r.Windows)
		}
		slices.Reverse(entries)
		again := report(entries, nil)
		if again.Overtaken != r.Overtaken || !slices.Equal(again.Unmet(), r.Unmet()) {
			t.Fatalf("%+v\n%+v", again, r)
		}
	})
}
