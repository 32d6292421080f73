package ledger

import (
	"fmt"
	"strings"

	"assay/rules/internal/jsonl"
	"assay/rules/internal/record"
)

// judge looks at requests, one by one, of which the builder has everything. There is
// one for each goroutine.
type judge struct {
	*builder
	found   findings
	matched []unpacked // of one id
	texts   jsonl.Texts
	free    []kept
	buf     []byte
}

// room returns memory for an entry. Several are allocated at once: one each would
// take as long as the rest, and more would stay with one that is kept.
func (b *judge) room() *kept {
	if len(b.free) == 0 {
		b.free = make([]kept, 16)
	}
	k := &b.free[0]
	b.free = b.free[1:]
	return k
}

// match attaches a server record to a client record by request id.
func (b *judge) match(d *draft, id symbol) {
	p := b.parties[id]
	if p.sent > 1 {
		b.found.add(AmbiguousID, Blocking, d.RequestID, "%d client and %d server records", p.sent, len(b.recordsOf(p)))
	}
	switch {
	case b.in.Server == nil:
	case p.sent > 1:
		d.Join = Ambiguous
	case d.RequestID == "" || p.first < 0:
		d.Join = ClientOnly
	default:
		records := b.recordsOf(p)
		d.Join = Matched
		d.record = answering(records, d.client.Status)
		d.HiddenRetries, d.received = len(records)-1, d.record.ReceivedWallNS
		b.retries(d, records)
	}
}

// recordsOf unpacks the server's records with one id. They are valid until the next
// call.
func (b *judge) recordsOf(p party) []unpacked {
	b.matched = b.matched[:0]
	for i := p.first; i >= 0; i = b.records[i].next {
		b.matched = append(b.matched, unpacked{})
	}
	for i, n := p.first, 0; i >= 0; i, n = b.records[i].next, n+1 {
		b.unpackRecord(i, &b.matched[n])
	}
	return b.matched
}

func (b *judge) unpackRecord(i int32, r *unpacked) {
	c := codec{b: b.store.at(b.records[i].at), unpacking: true, names: &b.names, texts: &b.texts, numbers: r.numbers[:0]}
	c.record(&r.Record, &r.task)
}

func (b *judge) retries(d *draft, records []unpacked) {
	if len(records) > 1 {
		var statuses []string
		for i := range records {
			statuses = append(statuses, fmt.Sprint(records[i].Status))
		}
		b.found.add(HiddenRetry, Blocking, d.RequestID, "attempts %d > sent 1 (status %s)", len(records), strings.Join(statuses, ", "))
		return
	}
	if records[0].Repeated {
		b.found.add(HiddenRetry, Blocking, d.RequestID, "the server saw this id before, in records that are not here")
	}
}

// answering picks the attempt that the client saw the end of: the last one
// with its status.
func answering(records []unpacked, status *int64) *record.Record {
	for i := len(records) - 1; i >= 0; i-- {
		if status != nil && int64(records[i].Status) == *status {
			return &records[i].Record
		}
	}
	return &records[len(records)-1].Record
}

// judge gives a request its class, times and comparisons.
func (b *judge) judge(d *draft, id symbol) {
	d.Tokens = b.tokens(d, id)
	d.facts.prompt = promptSize{sent: value(d.Tokens.ClientPromptEstimate), worked: value(d.Tokens.Prompt), window: b.in.ContextWindow, reserved: d.facts.prompt.reserved}
	d.Class, d.Reason = d.facts.class()
	if mean, ok := itl(d.stream, d.Tokens.Completion); ok && d.Client.TTFTNS != nil {
		d.itl = mean
		d.Client.ITLNS = &d.itl
	}
	var decode *int64
	if d.record != nil {
		decode = b.attach(d)
	}
	if d.facts.streamed && endedWell(d.Class) && d.Class != Empty {
		d.stream.decode = value(decode)
		d.Client.Incremental = d.stream.incremental(decode)
	}
	d.Identity = identity(d)
	if d.Class == Rejected {
		d.timeToRefusal()
	}
	d.Client.Disagrees = d.Phase != Probe && d.Client.AIPerfSuccess != (d.Class == Completed)
	b.report(d)
}

// timeToRefusal is the client's, or else the server's.
func (d *draft) timeToRefusal() {
	switch {
	case d.refusedAfter != nil:
		d.reject = Reject{NS: *d.refusedAfter, Source: "client"}
	case d.Server != nil && d.Server.TotalNS != nil:
		d.reject = Reject{NS: *d.Server.TotalNS, Source: "server"}
	default:
		return
	}
	d.Reject = &d.reject
}

// attach takes over the server's record and returns the time that the engine
// spent after its first increment, if known.
func (b *judge) attach(d *draft) (decode *int64) {
	rec := d.record
	d.server = Server{Outcome: rec.Outcome, Reason: rec.Reason, Status: rec.Status, PromptSHA256: rec.PromptSHA256}
	d.Server = &d.server
	if t := rec.Task; t != nil {
		d.Server.Scope, d.Server.TextSHA256, d.Server.FinishReason = t.Scope, t.TextSHA256, t.FinishReason
	}
	var span *int64
	if d.perf.start != nil && d.perf.end != nil && endedWell(d.Class) {
		wait := *d.perf.end - *d.perf.start
		span = &wait
	}
	if fault := d.serverTimes(rec, span, b.in.Tolerance); fault != "" {
		d.Server.Withheld = "clock mismatch: " + fault
		b.found.add(ClockMismatch, Warning, d.RequestID, "%s", fault)
		return nil
	}
	if t := rec.Task; t != nil && t.FirstIncrementNS != nil {
		rest := t.WallNS - *t.FirstIncrementNS
		return &rest
	}
	return nil
}

func (b *judge) tokens(d *draft, id symbol) Tokens {
	t := Tokens{Prompt: d.usage.Prompt, Completion: d.usage.Completion, Cached: d.usage.Cached, Reasoning: d.usage.Reasoning}
	if d.record != nil && d.record.Task != nil {
		task := d.record.Task
		if t.Completion == nil {
			t.Completion = d.copy(task.CompletionTokens)
		}
		if t.Cached == nil {
			t.Cached = d.copy(task.CachedTokens)
		}
		if t.Prompt == nil && value(task.PromptTokens) != 0 {
			t.Prompt = d.copy(task.PromptTokens)
		}
	}
	if int(id) < len(b.estimates) && d.RequestID != "" {
		t.ClientPromptEstimate, t.ClientCompletionEstimate = d.copy(b.estimates[id].prompt), d.copy(b.estimates[id].completion)
	}
	return t
}

func identity(d *draft) Identity {
	id := Identity{Unknown, Unknown, Unknown}
	if !endedWell(d.Class) || d.record == nil || d.record.Task == nil {
		return id
	}
	t := d.record.Task
	// The digest covers text; the arguments of a tool call are not in it.
	if t.TextSHA256 != "" && !d.tools {
		id.Text = verdict(t.TextSHA256 == textDigest(d.Client) || strings.EqualFold(t.TextSHA256, textDigest(d.Client)))
	}
	if t.CompletionTokens != nil && d.usage.Completion != nil {
		id.Tokens = verdict(*t.CompletionTokens == *d.usage.Completion)
	}
	if t.FinishReason != "" && d.client.FinishReason != "" {
		id.Finish = verdict(t.FinishReason == d.client.FinishReason)
	}
	return id
}

// noText is the SHA-256 of nothing.
const noText = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func textDigest(c *Client) string {
	if c.TextSHA256 == "" {
		return noText
	}
	return c.TextSHA256
}

func verdict(equal bool) Verdict {
	if equal {
		return Equal
	}
	return Different
}

func endedWell(c Class) bool { return c == Completed || c == Empty || c == PromptTruncated }

// report turns what is remarkable about a judged request into findings.
func (b *judge) report(d *draft) {
	id, add := d.RequestID, b.found.add
	if d.Join == ClientOnly {
		severity := Blocking
		if d.Client.Status == nil {
			severity = Info // it may never have reached the server
		}
		add(ClientOnlyRequest, severity, id, "%s request, %s", d.Phase, describe(&d.Entry))
	}
	if i := d.Identity; i.Text == Different || i.Tokens == Different || i.Finish == Different {
		add(IdentityMismatch, Blocking, id, "text %s, tokens %s, finish reason %s", i.Text, i.Tokens, i.Finish)
	}
	if n := value(d.Tokens.Cached); n > 0 {
		severity := Blocking
		if b.in.PromptCache {
			severity = Info // it was declared
		}
		add(CachedTokens, severity, id, "%d of %d prompt tokens", n, value(d.Tokens.Prompt))
	}
	switch {
	case d.Class == Empty:
		add(EmptyAnswers, Blocking, id, "%s request", d.Phase)
	case d.Class == PromptTruncated:
		add(TruncatedPrompt, Blocking, id, "the client sent about %d tokens, the server worked on %d (window %d)", d.facts.prompt.sent, d.facts.prompt.worked, d.facts.prompt.window)
	case d.Class == Completed && d.facts.prompt.short():
		add(PromptTokensLow, Warning, id, "the client sent about %d tokens, the server counts %d", d.facts.prompt.sent, d.facts.prompt.worked)
	}
	if ours, theirs := value(d.Tokens.ClientCompletionEstimate), value(d.Tokens.Completion); d.Class == Completed && ours > 0 && theirs > 0 && max(ours-theirs, theirs-ours)*10 > theirs {
		add(TokenCountsDiffer, Info, id, "completion: %d by the server, %d by the client's own tokenizer", theirs, ours)
	}
	if d.Client.Incremental == Buffered {
		add(StreamNotIncremental, Warning, id, "%d chunks within %s, generated in %s", d.stream.chunks, ms(d.stream.spread), ms(d.stream.decode))
	}
	if d.Client.Disagrees {
		said := "an error"
		if d.Client.AIPerfSuccess {
			said = "success"
		}
		add(DisagreesWithAIPerf, Warning, id, "AIPerf says %s, the ledger %s", said, describe(&d.Entry))
	}
	if d.Server != nil && !agree(d.Server.Outcome, d.Class) {
		severity := Warning
		if d.Class == Completed {
			severity = Blocking
		}
		add(OutcomeMismatch, severity, id, "the server says %s (%d), the client's record %s", d.Server.Outcome, d.Server.Status, describe(&d.Entry))
	}
}

// agree says whether a server's outcome and a class can both be true. The
// server cannot see what is lost on the way back, so it may believe in an
// answer that the client gave up on; it cannot have failed or refused what
// the client got whole.
func agree(o record.Outcome, c Class) bool {
	switch o {
	case record.Completed:
		return endedWell(c) || c == Cancelled
	case record.Rejected:
		return c == Rejected
	case record.Invalid:
		return c == Invalid
	case record.Cancelled:
		return c == Cancelled || c == Failed
	case record.Failed:
		return c == Failed || c == Cancelled
	}
	return false
}

func describe(e *Entry) string {
	if e.Reason != "" {
		return string(e.Class) + " (" + string(e.Reason) + ")"
	}
	return string(e.Class)
}

func value(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}
