package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
)

func (b *builder) checkPlan() error {
	var errs []error
	for _, phase := range Phases {
		n, places := b.in.Plan.of(phase), b.in.Plan.Places[phase]
		if n < 0 {
			errs = append(errs, fmt.Errorf("plan: %d %s requests", n, phase))
		}
		if places != nil && len(places) != n {
			errs = append(errs, fmt.Errorf("plan: %d places for %d %s requests", len(places), n, phase))
		}
	}
	return errors.Join(errs...)
}

func (b *builder) readFigures() error {
	if b.in.Figures == nil {
		return nil
	}
	for f, err := range b.in.Figures {
		switch {
		case errors.As(err, new(*aiperf.Gap)):
			b.found.add(TornExport, Warning, "", "%v; the client's token estimates of this request are missing", err)
		case err != nil:
			return err
		case f.ID != "":
			id := b.idOf(f.ID)
			for int(id) >= len(b.estimates) {
				b.estimates = append(b.estimates, estimate{})
			}
			b.estimates[id] = estimate{f.InputTokens, f.OutputTokens}
		}
	}
	return nil
}

// idOf returns the symbol of a request id.
func (b *builder) idOf(id string) symbol {
	x := symbolOf(&b.ids, id)
	for int(x) >= len(b.parties) {
		b.parties = append(roomy(b.parties), party{first: -1, last: -1})
	}
	return x
}

// readClient reads requests; an empty phase means that of each record.
func (b *builder) readClient(requests iter.Seq2[*aiperf.Request, error], phase Phase) error {
	if requests == nil {
		return nil
	}
	for r, err := range requests {
		var gap *aiperf.Gap
		switch {
		case errors.As(err, &gap):
			b.found.add(TornExport, Blocking, gap.ID, "%v", err)
			b.gaps = append(b.gaps, &aiperf.Gap{ID: gap.ID, Phase: gap.Phase}) // its error holds a part of the line
			continue
		case err != nil:
			return err
		}
		b.request(r, cmp.Or(phase, phaseOf(r.Phase)))
		b.earliest(r, cmp.Or(phase, phaseOf(r.Phase)))
	}
	return nil
}

func phaseOf(benchmarkPhase string) Phase {
	if benchmarkPhase == aiperf.Warmup {
		return Warmup
	}
	return Measured
}

func (b *builder) request(r *aiperf.Request, phase Phase) {
	a := &r.Response
	d := draft{kept: &b.piece, facts: factsOf(r), stream: shape(a.Chunks), usage: a.Usage, body: r.Payload.SHA256, seen: seenIn(r)}
	b.piece = kept{}
	d.CorrelationID, d.Place = r.CorrelationID, Place{Conversation: r.ConversationID, Turn: r.Turn}
	c := &d.client
	*c = Client{
		Status: r.Status, StartWallNS: r.StartWallNS,
		Stream: a.Stream || r.Payload.Stream, FinishReason: a.FinishReason,
		AIPerfSuccess: r.Error == nil && !r.Cancelled,
	}
	if r.Error != nil {
		c.ErrorType = r.Error.Type
	}
	if len(a.Chunks) > 0 {
		d.text = a.SHA256
	}
	d.perf.start, d.perf.end = r.StartPerfNS, a.LastPerfNS
	for _, chunk := range a.Chunks {
		d.tools = d.tools || chunk.ToolSize > 0
	}
	if fault := clientTimes(c, r); fault != "" {
		b.found.add(NegativeDuration, Blocking, r.ID, "%s", fault)
	}
	if phase == Measured {
		if c.AIPerfSuccess {
			b.aiperf.successes++
		} else {
			b.aiperf.errors++
		}
	}
	if d.facts.code > 0 || d.facts.failure {
		d.refusedAfter = refusedAfter(r)
	}
	if r.Payload.PromptSHA256 != (aiperf.Digest{}) {
		b.prompted++
		d.prompt = symbolOf(&b.prompts, r.Payload.PromptSHA256[:]) + 1
	}
	row := row{start: r.StartWallNS, id: b.idOf(r.ID), phase: int8(slices.Index(Phases, phase))}
	if r.ID != "" {
		b.parties[row.id].sent++
	}
	// Probes are sent by another process, so their monotonic stamps have another zero.
	if start := r.StartPerfNS; phase != Probe && start != nil {
		b.zero = min(b.zero, *start)
		// A cancelled request has its wall stamp taken again.
		row.step, row.stepped = r.StartWallNS-*start, !d.facts.cancelled
	}
	c2 := codec{b: b.scratch, names: &b.names}
	c2.draft(&d)
	row.at, b.scratch = b.store.put(c2.packed()), c2.b
	b.rows = append(roomy(b.rows), row)
}

// refusedAfter is the time to a refusal by the client's stamps, nil if they are
// one and the same.
func refusedAfter(r *aiperf.Request) *int64 {
	if r.StartPerfNS != nil && r.Response.LastPerfNS != nil && *r.Response.LastPerfNS > *r.StartPerfNS {
		ns := *r.Response.LastPerfNS - *r.StartPerfNS
		return &ns
	}
	return nil
}

func factsOf(r *aiperf.Request) facts {
	a := &r.Response
	f := facts{
		cancelled: r.Cancelled,
		failure:   a.Failure != nil, after: a.AfterContent,
		streamed:  a.Stream || r.Payload.Stream && a.Bodies == 0,
		malformed: a.Malformed != "",
		content:   len(a.Chunks) > 0,
		ended:     r.Status != nil || r.Error != nil || r.Cancelled || a.Bodies > 0,
	}
	f.finished = a.FinishReason != "" || a.Done
	if !f.streamed {
		f.finished = a.Choice
	}
	if r.Status != nil {
		f.status = *r.Status
	}
	if r.Payload.MaxTokens != nil {
		f.prompt.reserved = *r.Payload.MaxTokens
	}
	var words []string
	if e := r.Error; e != nil {
		words = append(words, e.Type, e.Message)
		// With a code it is the server's answer in AIPerf's words; so is the
		// complaint about missing content, which the packets show better.
		if e.Code == nil && e.Type != "InvalidInferenceResultError" {
			f.clientError = cmp.Or(e.Type, "unknown")
		}
	}
	if e := a.Failure; e != nil {
		words = append(words, e.Code, e.Type, e.Message)
	}
	if words != nil {
		said := strings.ToLower(strings.Join(words, "\n"))
		f.overload, f.refusal = speaksOf(said, overloadWords), speaksOf(said, refusalWords)
		f.closed = speaksOf(said, closingWords)
	}
	switch {
	case f.status >= 400:
		f.code = f.status
	case f.failure && a.Failure.Status != nil && !f.after:
		f.code = *a.Failure.Status
	case r.Error != nil && r.Error.Code != nil && !f.content && !f.failure:
		f.code = *r.Error.Code
	}
	return f
}

func (b *builder) readServer() error {
	if b.in.Server == nil {
		return nil
	}
	for rec, err := range b.in.Server {
		switch {
		case errors.As(err, new(*jsonl.TornError)), errors.As(err, new(*jsonl.TooLongError)), errors.As(err, new(*aiperf.Gap)):
			b.found.add(TornExport, Blocking, "", "%v", err)
			continue
		case err != nil:
			return err
		}
		b.outcomes[rec.Outcome]++
		b.ours(rec)
		c := codec{b: b.scratch, names: &b.names}
		c.record(rec, nil)
		packed := packedRecord{at: b.store.put(c.packed()), id: b.idOf(rec.RequestID), next: -1}
		b.scratch = c.b
		p, n := &b.parties[packed.id], int32(len(b.records))
		if p.first < 0 {
			p.first = n
		} else {
			b.records[p.last].next = n
		}
		p.last = n
		b.records = append(roomy(b.records), packed)
	}
	return nil
}

// roomy doubles a list that is full: append grows long ones by a quarter, and copies
// each item five times.
func roomy[T any](list []T) []T {
	if len(list) == cap(list) {
		list = slices.Grow(list, max(64, len(list)))
	}
	return list
}
