package ledger_test

import (
	"testing"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/ledger"
)

// scheduled is a clean run whose measured requests were due every 200 ms from a
// zero that AIPerf reports, let go 3 ms late each and sent 2 ms after that.
func scheduled() (r *run, zero int64) {
	r = clean()
	r.in.Due = ledger.Due{}
	for i, c := range r.clients[warmups:] {
		r.in.Due[c.ConversationID] = int64(i) * 200 * msec
	}
	zero = r.clients[warmups].StartWallNS - 5*msec
	r.in.Summary.StartWallNS = &zero
	return r, zero
}

func TestResponseTimeCountsFromThePlan(t *testing.T) {
	r, zero := scheduled()
	l := r.build(t)
	if s := l.Summary.Schedule; s == nil || *s != (ledger.Schedule{ZeroWallNS: zero, Zero: ledger.ZeroReported, LeastLateNS: 3 * msec}) {
		t.Fatalf("%+v", s)
	}
	for i, e := range l.Entries {
		if e.Phase == ledger.Warmup {
			if e.Schedule != nil {
				t.Errorf("a warm-up is due: %+v", e.Schedule)
			}
			continue
		}
		s := e.Schedule
		if s.DueNS != int64(i-warmups)*200*msec || *s.LagNS != 5*msec || *s.ResponseNS != 110*msec || *e.Client.LatencyNS != 105*msec {
			t.Errorf("%d: %+v, %d, %d", i, s, *s.LagNS, *s.ResponseNS)
		}
	}
}

// A start that does not fit what was let go is not AIPerf's start of this schedule.
func TestZeroOfASchedule(t *testing.T) {
	for name, c := range map[string]struct {
		zero     *int64 // of the summary, relative to the true one
		reported bool
	}{
		"none":                       {nil, false},
		"as it was":                  {ptr(int64(0)), true},
		"timers may be early":        {ptr(4 * msec), true},
		"behind the first":           {ptr(6 * msec), false},
		"an hour away, another zone": {ptr(-3_600_000 * msec), false},
	} {
		r, zero := scheduled()
		r.in.Summary.StartWallNS = nil
		if c.zero != nil {
			r.in.Summary.StartWallNS = ptr(zero + *c.zero)
		}
		s := r.build(t).Summary.Schedule
		want := ledger.Schedule{ZeroWallNS: zero + 3*msec, Zero: ledger.ZeroLeastLate}
		if c.reported {
			want = ledger.Schedule{ZeroWallNS: zero + *c.zero, Zero: ledger.ZeroReported, LeastLateNS: 3*msec - *c.zero}
		}
		if *s != want {
			t.Errorf("%s: %+v, want %+v", name, *s, want)
		}
	}
}

func TestWhatWasNotSentWasDueAllTheSame(t *testing.T) {
	r, _ := scheduled()
	for _, c := range r.clients[warmups:] {
		if r.in.Plan.Places == nil {
			r.in.Plan.Places = map[ledger.Phase][]ledger.Place{}
		}
		r.in.Plan.Places[ledger.Measured] = append(r.in.Plan.Places[ledger.Measured], ledger.Place{Conversation: c.ConversationID})
	}
	last := len(r.clients) - 1
	lost := r.clients[last].ConversationID
	r.clients, r.records = r.clients[:last], r.records[:last]
	entries := r.build(t).Entries
	e := entries[len(entries)-1]
	if e.Class != ledger.NotSent || e.Place.Conversation != lost || e.Schedule == nil || e.Schedule.DueNS != 19*200*msec || e.Schedule.LagNS != nil {
		t.Errorf("%+v, %+v", e, e.Schedule)
	}
	// Without any stamp there is no zero, and without a zero no lag.
	r, _ = scheduled()
	for _, c := range r.clients {
		c.CreditWallNS = nil
	}
	l := r.build(t)
	if e := l.Entries[warmups]; l.Summary.Schedule != nil || e.Schedule == nil || e.Schedule.LagNS != nil {
		t.Errorf("%+v, %+v", l.Summary.Schedule, e.Schedule)
	}
}

func TestACancelledRequestHasNoLag(t *testing.T) {
	r, _ := scheduled()
	c := r.clients[warmups]
	c.Cancelled, c.Response = true, aiperf.Response{}
	c.StartWallNS += 50 * msec // it is stamped again
	for _, e := range r.build(t).Entries {
		if e.Class == ledger.Cancelled && (e.Schedule == nil || e.Schedule.LagNS != nil) {
			t.Errorf("%+v", e.Schedule)
		}
	}
}
