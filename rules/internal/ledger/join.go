package ledger

import (
	"fmt"
	"slices"
	"strings"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/record"
)

// join attaches server records to client records by request id. What is left
// over on the server's side are strangers.
func (b *builder) join() {
	if b.in.Server == nil {
		b.found.add(ClientOnlyRequest, Warning, "", "no server records were given")
		return
	}
	for i := range b.drafts {
		d := &b.drafts[i]
		sharing, records := len(b.byID[d.RequestID]), b.server[d.RequestID]
		switch {
		case sharing > 1:
			d.Join = Ambiguous
			b.found.add(AmbiguousID, Blocking, d.RequestID, "%d client and %d server records", sharing, len(records))
		case d.RequestID == "" || len(records) == 0:
			d.Join = ClientOnly
		default:
			d.Join = Matched
			d.record = answering(records, d.Client.Status)
			d.HiddenRetries = len(records) - 1
			b.retries(d, records)
		}
	}
	for _, id := range b.serverIDs {
		if len(b.byID[id]) == 0 {
			b.strangers = append(b.strangers, b.server[id]...)
		}
	}
}

func (b *builder) retries(d *draft, records []*record.Record) {
	if len(records) > 1 {
		var statuses []string
		for _, r := range records {
			statuses = append(statuses, fmt.Sprint(r.Status))
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
func answering(records []*record.Record, status *int64) *record.Record {
	for _, r := range slices.Backward(records) {
		if status != nil && int64(r.Status) == *status {
			return r
		}
	}
	return records[len(records)-1]
}

// judge gives a request its class, times and comparisons.
func (b *builder) judge(d *draft) {
	d.Tokens = b.tokens(d)
	d.facts.prompt = promptSize{sent: value(d.Tokens.ClientPromptEstimate), worked: value(d.Tokens.Prompt), window: b.in.ContextWindow, reserved: d.facts.prompt.reserved}
	d.Class, d.Reason = d.facts.class()
	if d.Client.TTFTNS != nil {
		d.Client.ITLNS = itl(d.stream, d.Tokens.Completion)
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
	if d.Class != Rejected {
		d.Reject = nil
	} else if d.Reject == nil && d.Server != nil && d.Server.TotalNS != nil {
		d.Reject = &Reject{NS: *d.Server.TotalNS, Source: "server"}
	}
	d.Client.Disagrees = d.Phase != Probe && d.Client.AIPerfSuccess != (d.Class == Completed)
	b.report(d)
	b.detect(d)
}

// attach takes over the server's record and returns the time that the engine
// spent after its first increment, if known.
func (b *builder) attach(d *draft) (decode *int64) {
	rec := d.record
	d.Server = &Server{Outcome: rec.Outcome, Reason: rec.Reason, Status: rec.Status}
	if t := rec.Task; t != nil {
		d.Server.Scope, d.Server.TextSHA256, d.Server.FinishReason = t.Scope, t.TextSHA256, t.FinishReason
	}
	var span *int64
	if d.perf.start != nil && d.perf.end != nil && endedWell(d.Class) {
		wait := *d.perf.end - *d.perf.start
		span = &wait
	}
	if fault := serverTimes(d.Server, rec, span, b.in.Tolerance); fault != "" {
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

func (b *builder) tokens(d *draft) Tokens {
	t := Tokens{Prompt: d.usage.Prompt, Completion: d.usage.Completion, Cached: d.usage.Cached, Reasoning: d.usage.Reasoning}
	if d.record != nil && d.record.Task != nil {
		task := d.record.Task
		t.Completion = first(t.Completion, task.CompletionTokens)
		t.Cached = first(t.Cached, task.CachedTokens)
		if t.Prompt == nil && value(task.PromptTokens) != 0 {
			t.Prompt = task.PromptTokens
		}
	}
	if f, ok := b.estimates[d.RequestID]; ok && d.RequestID != "" {
		t.ClientPromptEstimate, t.ClientCompletionEstimate = f.InputTokens, f.OutputTokens
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
		id.Text = verdict(strings.EqualFold(t.TextSHA256, textDigest(d.Client)))
	}
	if t.CompletionTokens != nil && d.usage.Completion != nil {
		id.Tokens = verdict(*t.CompletionTokens == *d.usage.Completion)
	}
	if t.FinishReason != "" && d.finish != "" {
		id.Finish = verdict(t.FinishReason == d.finish)
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
func (b *builder) report(d *draft) {
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

func first(a, b *int64) *int64 {
	if a != nil {
		return a
	}
	return b
}

// lost is a request that was sent and has no end in the client's records.
type lost struct {
	id     string
	phase  string // as AIPerf writes it, "" if not known
	record *record.Record
}

// lostRequests brings together the gaps of the export and the records that
// only the server has. A gap without an id is taken to be one of the latter,
// so that no request counts twice. What the server named itself did not come
// from the load generator.
func (b *builder) lostRequests() []lost {
	var all []lost
	at := map[string]int{}
	for _, r := range b.strangers {
		if _, again := at[r.RequestID]; r.IDSource != "server" && !again {
			at[r.RequestID] = len(all)
			all = append(all, lost{id: r.RequestID, record: r})
		}
	}
	unnamed := len(all)
	var named, nameless []*aiperf.Gap
	for _, g := range b.gaps {
		if g.ID != "" {
			named = append(named, g)
		} else {
			nameless = append(nameless, g)
		}
	}
	for _, g := range named {
		if i, ok := at[g.ID]; ok {
			all[i].phase = g.Phase
			unnamed--
		} else {
			all = append(all, lost{id: g.ID, phase: g.Phase})
		}
	}
	for range max(0, len(nameless)-unnamed) {
		all = append(all, lost{})
	}
	return all
}
