package ledger

import (
	"cmp"
	"slices"
)

// fillGaps enters requests that were sent and have no known end as incomplete,
// as far as the plan has room for them; the rest are findings.
func (b *builder) fillGaps() {
	missing := map[Phase]int{Warmup: b.in.Plan.Warmup, Measured: b.in.Plan.Measured}
	var measuredFrom int64 // wall clock; 0 if nothing was measured
	for _, d := range b.drafts {
		missing[d.Phase]--
		if d.Phase == Measured && (measuredFrom == 0 || d.Client.StartWallNS < measuredFrom) {
			measuredFrom = d.Client.StartWallNS
		}
	}
	// A hole in the export, or an early end, explains a record that only the
	// server has; otherwise the client has lost one.
	explained := len(b.gaps) > 0 || b.in.Exit.Signal != "" || b.in.Summary != nil && b.in.Summary.WasCancelled
	for _, l := range b.lostRequests() {
		phase := phaseOf(l.phase)
		early := l.record != nil && (measuredFrom == 0 || l.record.ReceivedWallNS < measuredFrom)
		if l.phase == "" && missing[Warmup] > 0 && (early || missing[Measured] <= 0) {
			phase = Warmup
		}
		if l.record != nil {
			severity := Blocking
			if explained && missing[phase] > 0 {
				severity = Warning
			}
			b.found.add(ServerOnlyRequest, severity, l.id, "status %d, outcome %s", l.record.Status, l.record.Outcome)
			if missing[phase] <= 0 {
				continue
			}
		}
		missing[phase]--
		d := draft{Entry: Entry{Phase: phase, Class: Incomplete, RequestID: l.id, Identity: Identity{Unknown, Unknown, Unknown}}}
		if l.record != nil {
			d.Join, d.record = ServerOnly, l.record
			b.attach(&d)
			d.Tokens = b.tokens(&d)
		} else if b.in.Server != nil {
			d.Join = ClientOnly
		}
		b.drafts = append(b.drafts, d)
	}
	for _, r := range b.strangers {
		if r.IDSource == "server" {
			b.found.add(ServerOnlyRequest, Blocking, r.RequestID, "the id was made by the server: the request is not of this load generator")
		}
	}
}

// fillPlan enters what was never sent and marks what is beyond the plan.
func (b *builder) fillPlan() {
	slices.SortStableFunc(b.drafts, func(x, y draft) int { return inOrder(&x.Entry, &y.Entry) })
	for _, phase := range Phases {
		planned, sent := b.in.Plan.of(phase), 0
		for i := range b.drafts {
			d := &b.drafts[i]
			if d.Phase != phase {
				continue
			}
			if sent++; sent > planned {
				d.Unplanned = true
				b.found.add(PlanMismatch, Blocking, d.RequestID, "%s request beyond the %d that were planned", phase, planned)
			}
		}
		if sent < planned {
			b.found.add(PlanMismatch, Blocking, "", "%d of %d %s requests were dispatched", sent, planned, phase)
		}
		for _, place := range b.unsent(phase, planned-sent) {
			b.drafts = append(b.drafts, draft{Entry: Entry{Phase: phase, Class: NotSent, Place: place, Identity: Identity{Unknown, Unknown, Unknown}}})
		}
	}
}

// unsent returns the places of the n requests of a phase that were not sent.
func (b *builder) unsent(phase Phase, n int) []Place {
	if n <= 0 {
		return nil
	}
	plan := b.in.Plan.Places[phase]
	if plan == nil {
		places := make([]Place, n)
		for i := range places {
			ordinal := int64(b.in.Plan.of(phase) - n + i)
			places[i].Ordinal = &ordinal
		}
		return places
	}
	type key struct {
		conversation string
		turn         int64
	}
	sent := map[key]int{}
	for _, d := range b.drafts {
		if d.Phase == phase && d.Client != nil {
			sent[key{d.Place.Conversation, d.Place.Turn}]++
		}
	}
	var open []Place
	for _, p := range plan {
		k := key{p.Conversation, p.Turn}
		if sent[k] > 0 {
			sent[k]--
			continue
		}
		open = append(open, p)
	}
	for _, d := range b.drafts {
		k := key{d.Place.Conversation, d.Place.Turn}
		if extra := sent[k]; extra > 0 && d.Phase == phase {
			b.found.add(PlanMismatch, Blocking, "", "%s: conversation %q, turn %d was sent %d times more than planned", phase, k.conversation, k.turn, extra)
			delete(sent, k)
		}
	}
	// Requests without a known place took the first that are open.
	return open[len(open)-min(n, len(open)):]
}

// inOrder sorts by phase, then the client's start, then id. Behind those with a
// start come the ones that only the server knows, then those never sent.
func inOrder(x, y *Entry) int {
	rank := func(e *Entry) (kind int, start int64) {
		switch {
		case e.Client != nil:
			return 0, e.Client.StartWallNS
		case e.Class != NotSent:
			return 1, 0
		}
		return 2, value(e.Place.Ordinal)
	}
	xKind, xStart := rank(x)
	yKind, yStart := rank(y)
	return cmp.Or(
		cmp.Compare(slices.Index(Phases, x.Phase), slices.Index(Phases, y.Phase)),
		cmp.Compare(xKind, yKind),
		cmp.Compare(xStart, yStart),
		cmp.Compare(x.RequestID, y.RequestID),
	)
}

// close sorts, counts and checks the sums.
func (b *builder) close(each func(*Entry) error) (Summary, error) {
	// Stable: what was not sent stays in the order of the plan.
	slices.SortStableFunc(b.drafts, func(x, y draft) int { return inOrder(&x.Entry, &y.Entry) })
	entries := make([]Entry, len(b.drafts))
	for i := range b.drafts {
		entries[i] = b.drafts[i].Entry
		if err := each(&entries[i]); err != nil {
			return Summary{}, err
		}
	}
	b.repeatedPrompts(entries)
	b.checkAIPerf()
	b.judgeRun()
	s := summarize(entries)
	s.Plan = b.in.Plan
	s.ServerOutcomes = b.outcomes
	s.ServerRecords = b.serverRecords()
	s.Findings = b.found.list()
	return s, s.check()
}

func (b *builder) checkAIPerf() {
	if x := b.in.Exit; x.Signal != "" {
		b.found.add(AIPerfExit, Blocking, "", "ended by signal %s", x.Signal)
	} else if x.Code != 0 {
		b.found.add(AIPerfExit, Blocking, "", "exit status %d", x.Code)
	}
	s := b.in.Summary
	if s == nil {
		return
	}
	if s.WasCancelled || s.IsComplete != nil && !*s.IsComplete {
		b.found.add(AIPerfExit, Blocking, "", "its summary says cancelled %v, complete %v", s.WasCancelled, s.IsComplete == nil || *s.IsComplete)
	}
	if n := value(s.Successes); n != b.aiperf.successes {
		b.found.add(SummaryMismatch, Warning, "", "%d successes in the summary, %d in the records", n, b.aiperf.successes)
	}
	if n := value(s.Errors); n != b.aiperf.errors {
		b.found.add(SummaryMismatch, Warning, "", "%d errors in the summary, %d in the records", n, b.aiperf.errors)
	}
}

// serverRecords says where each record of the server went.
func (b *builder) serverRecords() ServerRecords {
	var n ServerRecords
	for _, d := range b.drafts {
		if d.Join == Matched {
			n.Matched++
			n.Retries += d.HiddenRetries
		}
	}
	for id, shared := range b.byID {
		if len(shared) > 1 {
			n.Ambiguous += len(b.server[id])
		}
	}
	n.ServerOnly = len(b.strangers)
	return n
}
