package ledger

import (
	"time"

	"assay/rules/internal/aiperf"
)

// Due says when the measured requests of a recorded schedule are to be sent, by
// conversation, in ns from the start of the schedule. Later turns of a conversation
// wait for the turn before, so only first turns are due at a time.
type Due map[string]int64

// Schedule places a schedule in time.
type Schedule struct {
	// ZeroWallNS is the start of the schedule by the client's wall clock.
	ZeroWallNS int64 `json:"zero_wall_ns"`
	// Zero says how that is known: [ZeroReported] or [ZeroLeastLate].
	Zero string `json:"zero"`
	// LeastLateNS is how late the scheduler let go the request that was let go least
	// late: a delay that all requests share. It may be negative by a millisecond or so.
	LeastLateNS int64 `json:"least_late_ns"`
}

const (
	// ZeroReported is AIPerf's own start of its profiling phase, from which it counts.
	ZeroReported = "reported"
	// ZeroLeastLate takes the request that was let go least late for punctual, since
	// AIPerf reported no start that fits: a delay that all requests share is not seen.
	ZeroLeastLate = "least_late"
)

// Scheduled is what a schedule makes of a request. Response time counts from the
// planned time, where latency counts from the dispatch: what the load generator was
// late is the difference.
type Scheduled struct {
	// DueNS is the planned time, from the start of the schedule.
	DueNS int64 `json:"due_ns"`
	// LagNS is the dispatch minus the planned time, by the client's wall clock; absent
	// if it was never dispatched.
	LagNS *int64 `json:"lag_ns,omitempty"`
	// ResponseNS is the planned time to the last content.
	ResponseNS *int64 `json:"response_ns,omitempty"`
}

// earliest keeps the least late of the requests that the scheduler let go.
func (b *builder) earliest(r *aiperf.Request, phase Phase) {
	due, ok := b.due(Place{Conversation: r.ConversationID, Turn: r.Turn}, phase)
	if !ok || r.CreditWallNS == nil {
		return
	}
	if zero := *r.CreditWallNS - due; b.leastLate == nil || zero < *b.leastLate {
		b.leastLate = &zero
	}
}

func (b *builder) due(p Place, phase Phase) (due int64, ok bool) {
	if phase != Measured || p.Turn != 0 {
		return 0, false
	}
	due, ok = b.in.Due[p.Conversation]
	return due, ok
}

// schedule finds the zero, nil if nothing tells it. What AIPerf reports as its start
// has no zone, so it has to fit what was let go: not earlier than mostEarly, not all
// of it later than mostLate.
func (b *builder) schedule() *Schedule {
	if b.leastLate == nil {
		return nil
	}
	if s := b.in.Summary; s != nil && s.StartWallNS != nil {
		if late := *b.leastLate - *s.StartWallNS; late >= -int64(mostEarly) && late <= int64(mostLate) {
			return &Schedule{*s.StartWallNS, ZeroReported, late}
		}
	}
	return &Schedule{*b.leastLate, ZeroLeastLate, 0}
}

const (
	mostEarly = 2 * time.Millisecond // timers of AIPerf's event loop count in milliseconds, and may be early by one
	mostLate  = 10 * time.Second
)

// onSchedule sets the entry beside its plan.
func (b *builder) onSchedule(e *Entry) {
	due, ok := b.due(e.Place, e.Phase)
	if !ok {
		return
	}
	e.Schedule = &Scheduled{DueNS: due}
	// A cancelled request has its start stamped again.
	if c := e.Client; c != nil && b.tally.schedule != nil && e.Class != Cancelled {
		lag := c.StartWallNS - b.tally.schedule.ZeroWallNS - due
		e.Schedule.LagNS = &lag
		if c.LatencyNS != nil {
			response := lag + *c.LatencyNS
			e.Schedule.ResponseNS = &response
		}
	}
}
