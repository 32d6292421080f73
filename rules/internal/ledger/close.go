package ledger

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"assay/rules/internal/aiperf"
)

// order puts the requests in the order of the ledger: by phase, then the client's
// start, then id.
func (b *builder) order() {
	slices.SortFunc(b.rows, func(x, y row) int {
		if x.phase == y.phase && x.start != y.start {
			return cmp.Compare(x.start, y.start)
		}
		return cmp.Or(cmp.Compare(x.phase, y.phase), b.byStart(&x, &y))
	})
}

func (b *builder) byStart(x, y *row) int {
	if c := cmp.Compare(x.start, y.start); c != 0 {
		return c
	}
	var xs, ys [64]byte
	return cmp.Or(bytes.Compare(b.ids.append(xs[:0], x.id), b.ids.append(ys[:0], y.id)), cmp.Compare(x.at, y.at))
}

// clockStep compares the client's two clocks between the first and the last third
// of a run. Medians, since a process may be interrupted between the two stamps.
func (b *builder) clockStep() {
	var stamped []*row
	for i := range b.rows {
		if b.rows[i].stepped {
			stamped = append(roomy(stamped), &b.rows[i])
		}
	}
	third := len(stamped) / 3
	if third < 3 {
		return
	}
	if !slices.IsSortedFunc(stamped, b.byStart) { // phases may overlap
		slices.SortFunc(stamped, b.byStart)
	}
	median := func(part []*row) int64 {
		steps := make([]int64, len(part))
		for i, r := range part {
			steps[i] = r.step
		}
		slices.Sort(steps)
		return steps[len(steps)/2]
	}
	moved := median(stamped[len(stamped)-third:]) - median(stamped[:third])
	if max(moved, -moved) > int64(time.Millisecond) {
		b.found.add(ClockStep, Warning, "", "by %s between the first and the last third of the run", ms(moved))
	}
}

// close hands out the entries and checks the sums.
func (b *builder) close() (Summary, error) {
	lost := b.lost()
	b.firstWith = make([]*row, len(b.prompts.at))
	if b.prompted > len(b.prompts.at) {
		b.gains.ttft = make([]int64, len(b.prompts.at))
	}
	rest := b.rows
	for i, phase := range Phases {
		n := 0
		for n < len(rest) && int(rest[n].phase) == i {
			n++
		}
		if err := b.closePhase(phase, rest[:n], lost[phase]); err != nil {
			return Summary{}, err
		}
		rest = rest[n:]
	}
	b.checkAIPerf()
	b.judgeRun()
	if b.in.Inspector != nil {
		b.in.Inspector.End(b.found.add)
	}
	s := b.tally.summary()
	s.Plan = b.in.Plan
	s.ServerOutcomes = b.outcomes
	s.ServerRecords = b.serverRecords()
	s.Findings = b.found.list()
	return s, s.check()
}

// closePhase hands out the requests of a phase: first those that the client has, then
// those that are lost, then those that were never sent. What is beyond the plan is
// marked.
func (b *builder) closePhase(phase Phase, rows []row, lost []lost) error {
	plan := b.in.Plan.of(phase)
	sentTo := visits{}
	n := 0
	for judged := range inOrder((len(rows)+batchSize-1)/batchSize, func() func(int) batch { return b.judges(rows) }) {
		b.found.merge(judged.found)
		for i := range judged.drafts {
			d := &judged.drafts[i]
			b.repeated(d, &rows[n])
			b.detect(d)
			if b.in.Plan.Places[phase] != nil {
				sentTo.add(d.Place)
			}
			if err := b.emit(&d.Entry, n >= plan); err != nil {
				return err
			}
			n++
		}
	}
	for i, l := range lost {
		if err := b.emit(b.incomplete(phase, l), len(rows)+i >= plan); err != nil {
			return err
		}
	}
	sent := len(rows) + len(lost)
	if sent < plan {
		b.found.add(PlanMismatch, Blocking, "", "%d of %d %s requests were dispatched", sent, plan, phase)
	}
	for _, place := range b.unsent(phase, plan-sent, &sentTo) {
		e := &Entry{Phase: phase, Class: NotSent, Place: place, Identity: Identity{Unknown, Unknown, Unknown}}
		if err := b.emit(e, false); err != nil {
			return err
		}
	}
	return nil
}

// batch is some requests in order, with what was found out about them.
type batch struct {
	drafts []draft
	found  findings
}

const batchSize = 256

// judges returns a function that judges the batches of rows that it is given.
func (b *builder) judges(rows []row) func(int) batch {
	j := judge{builder: b}
	return func(i int) batch {
		rows := rows[i*batchSize : min((i+1)*batchSize, len(rows))]
		judged := batch{make([]draft, len(rows)), findings{}}
		j.found = judged.found
		for i := range rows {
			d := &judged.drafts[i]
			j.unpack(&rows[i], d)
			j.match(d, rows[i].id)
			j.judge(d, rows[i].id)
		}
		return judged
	}
}

func (b *builder) emit(e *Entry, unplanned bool) error {
	if unplanned {
		e.Unplanned = true
		b.found.add(PlanMismatch, Blocking, e.RequestID, "%s request beyond the %d that were planned", e.Phase, b.in.Plan.of(e.Phase))
	}
	b.onSchedule(e)
	if b.in.Inspector != nil {
		b.in.Inspector.Look(e, b.found.add)
	}
	b.tally.add(e)
	return b.each(e)
}

// unpack fills in a request of the client, as far as its record tells.
func (b *judge) unpack(row *row, d *draft) {
	d.kept = b.room()
	c := codec{b: b.store.at(row.at), unpacking: true, names: &b.names, texts: &b.texts, numbers: d.numbers[:0]}
	c.draft(d)
	d.used = len(c.numbers)
	d.Phase, d.Client = Phases[row.phase], &d.client
	d.client.Chunks = d.stream.chunks
	b.buf = b.ids.append(b.buf[:0], row.id)
	d.RequestID = b.texts.String(b.buf)
	d.client.TextSHA256, d.client.BodySHA256 = inHex(&b.texts, d.text), inHex(&b.texts, d.body)
	if d.prompt > 0 {
		b.buf = b.prompts.append(b.buf[:0], d.prompt-1)
		d.client.PromptSHA256 = inHex(&b.texts, aiperf.Digest(b.buf))
	}
	if d.Phase != Probe {
		d.client.StartNS, d.client.EndNS = b.offset(d, d.perf.start), b.offset(d, d.perf.end)
	}
}

// offset counts a monotonic stamp of the client from the first dispatch.
func (b *builder) offset(d *draft, perf *int64) *int64 {
	if perf == nil || b.zero == math.MaxInt64 {
		return nil
	}
	return d.number(*perf - b.zero)
}

// visits counts the requests of a phase by place, for plans that name places.
type visits struct {
	count map[visit]int
	order []visit // in which they came first
}

type visit struct {
	conversation string
	turn         int64
}

func (v *visits) add(p Place) {
	if v.count == nil {
		v.count = map[visit]int{}
	}
	k := visit{p.Conversation, p.Turn}
	if v.count[k] == 0 {
		v.order = append(v.order, k)
	}
	v.count[k]++
}

// unsent returns the places of the n requests of a phase that were not sent.
func (b *builder) unsent(phase Phase, n int, sent *visits) []Place {
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
	var open []Place
	for _, p := range plan {
		if k := (visit{p.Conversation, p.Turn}); sent.count[k] > 0 {
			sent.count[k]--
			continue
		}
		open = append(open, p)
	}
	for _, k := range sent.order {
		if extra := sent.count[k]; extra > 0 {
			b.found.add(PlanMismatch, Blocking, "", "%s: conversation %q, turn %d was sent %d times more than planned", phase, k.conversation, k.turn, extra)
		}
	}
	// Requests without a known place took the first that are open.
	return open[len(open)-min(n, len(open)):]
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
	n := ServerRecords{Matched: b.tally.matched, Retries: b.tally.retries}
	for i := range b.records {
		switch sent := b.parties[b.records[i].id].sent; {
		case sent == 0:
			n.ServerOnly++
		case sent > 1:
			n.Ambiguous++
		}
	}
	return n
}
