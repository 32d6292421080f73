package ledger

import (
	"iter"
	"slices"
	"strings"
)

// lost is a request that was sent and has no end in the client's records.
type lost struct {
	id     symbol
	phase  string // as AIPerf writes it, "" if not known
	record int32  // the server's, -1 for none
}

// lost finds the requests that were sent and have no known end, as far as the plan
// has room for them; the rest are findings. Those of a phase are in the order of
// their ids.
func (b *builder) lost() map[Phase][]lost {
	missing := map[Phase]int{Warmup: b.in.Plan.Warmup, Measured: b.in.Plan.Measured}
	var measuredFrom int64 // wall clock; 0 if nothing was measured
	for i := range b.rows {
		phase := Phases[b.rows[i].phase]
		if missing[phase]--; phase == Measured && measuredFrom == 0 {
			measuredFrom = b.rows[i].start
		}
	}
	// A hole in the export, or an early end, explains a record that only the
	// server has; otherwise the client has lost one.
	explained := len(b.gaps) > 0 || b.in.Exit.Signal != "" || b.in.Summary != nil && b.in.Summary.WasCancelled
	found := map[Phase][]lost{}
	j := judge{builder: b}
	for _, l := range b.lostRequests() {
		var r unpacked
		if l.record >= 0 {
			j.unpackRecord(l.record, &r)
		}
		phase := phaseOf(l.phase)
		early := l.record >= 0 && (measuredFrom == 0 || r.ReceivedWallNS < measuredFrom)
		if l.phase == "" && missing[Warmup] > 0 && (early || missing[Measured] <= 0) {
			phase = Warmup
		}
		if l.record >= 0 {
			severity := Blocking
			if explained && missing[phase] > 0 {
				severity = Warning
			}
			b.found.add(ServerOnlyRequest, severity, b.ids.text(l.id), "status %d, outcome %s", r.Status, r.Outcome)
			if missing[phase] <= 0 {
				continue
			}
		}
		missing[phase]--
		found[phase] = append(found[phase], l)
	}
	for i := range b.strangers() {
		var r unpacked
		if j.unpackRecord(i, &r); r.IDSource == "server" {
			b.found.add(ServerOnlyRequest, Blocking, b.ids.text(b.records[i].id), "the id was made by the server: the request is not of this load generator")
		}
	}
	for _, all := range found {
		slices.SortStableFunc(all, func(x, y lost) int { return strings.Compare(b.ids.text(x.id), b.ids.text(y.id)) })
	}
	return found
}

// incomplete is the entry of a request that is lost.
func (b *builder) incomplete(phase Phase, l lost) *Entry {
	d := &draft{kept: &kept{}}
	d.Phase, d.Class, d.RequestID, d.Identity = phase, Incomplete, b.ids.text(l.id), Identity{Unknown, Unknown, Unknown}
	if l.record >= 0 {
		var r unpacked
		j := judge{builder: b, found: b.found}
		j.unpackRecord(l.record, &r)
		d.Join, d.record = ServerOnly, &r.Record
		j.attach(d)
		d.Tokens = j.tokens(d, l.id)
	} else if b.in.Server != nil {
		d.Join = ClientOnly
	}
	return &d.Entry
}

// strangers yields the records whose id no client record has: id by id, in the order
// in which the ids come first.
func (b *builder) strangers() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i := range b.records {
			p := b.parties[b.records[i].id]
			if p.sent > 0 || int(p.first) != i {
				continue
			}
			for n := p.first; n >= 0; n = b.records[n].next {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// lostRequests brings together the gaps of the export and the records that
// only the server has. A gap without an id is taken to be one of the latter,
// so that no request counts twice. What the server named itself did not come
// from the load generator.
func (b *builder) lostRequests() []lost {
	var all []lost
	at := map[symbol]int{}
	j := judge{builder: b}
	for i := range b.strangers() {
		id := b.records[i].id
		if _, again := at[id]; again {
			continue
		}
		var r unpacked
		if j.unpackRecord(i, &r); r.IDSource != "server" {
			at[id] = len(all)
			all = append(all, lost{id: id, record: i})
		}
	}
	unnamed := len(all)
	nameless := 0
	for _, g := range b.gaps {
		if g.ID == "" {
			nameless++
			continue
		}
		id := b.idOf(g.ID)
		if b.parties[id].sent > 0 {
			continue // its writer tried again, and the whole record is there
		}
		if i, ok := at[id]; ok {
			all[i].phase = g.Phase
			unnamed--
		} else {
			all = append(all, lost{id: id, phase: g.Phase, record: -1})
		}
	}
	for range max(0, nameless-unnamed) {
		all = append(all, lost{id: b.idOf(""), record: -1})
	}
	return all
}
