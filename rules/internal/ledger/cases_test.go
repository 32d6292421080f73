package ledger_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/record"
)

// Cases from public bug reports of other tools; the classes are the ledger's.

const msec = int64(time.Millisecond)

func ptr[T any](v T) *T { return &v }

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// sent is a request of which nothing has come back, dispatched at the given
// time in ms of the run.
func sent(id string, at int64) *aiperf.Request {
	return &aiperf.Request{
		ID: id, ConversationID: "c-" + id, Phase: aiperf.Profiling,
		StartWallNS: 1_796_000_000_000_000_000 + at*msec, StartPerfNS: ptr(1_000_000_000 + at*msec),
		Payload: aiperf.Payload{Model: "m", Stream: true, PromptSHA256: digest("prompt " + id)},
	}
}

// streamed answers r with n one-token chunks, the first after ttft, then every
// gap ms.
func streamed(r *aiperf.Request, ttft, gap int64, n int) *aiperf.Request {
	a := &r.Response
	*a = aiperf.Response{Stream: true, Bodies: n + 2, Choice: true, Done: true, FinishReason: "stop", Text: strings.Repeat("x", n)}
	for i := range n {
		a.Chunks = append(a.Chunks, aiperf.Chunk{PerfNS: *r.StartPerfNS + (ttft+int64(i)*gap)*msec, TextSize: 1})
	}
	a.SHA256 = digest(a.Text)
	a.Usage = aiperf.Usage{Prompt: ptr(int64(20)), Completion: ptr(int64(n))}
	end := *r.StartPerfNS + (ttft+int64(n-1)*gap)*msec
	a.FirstPerfNS, a.LastPerfNS = ptr(end), ptr(end)
	r.Status = ptr(int64(200))
	return r
}

func refused(r *aiperf.Request, status int64, message string) *aiperf.Request {
	r.Status = ptr(status)
	r.Error = &aiperf.Error{Code: ptr(status), Type: "refused", Message: message}
	return r
}

// served is the record of a server that answered as streamed does.
func served(id string, tokens int, wall int64) *record.Record {
	return &record.Record{
		Schema: 1, RequestID: id, IDSource: "client", Status: 200, Outcome: record.Completed, TotalNS: (wall + 1) * msec,
		Task: &record.Task{
			Scope: record.ScopeStream, WallNS: wall * msec, FirstIncrementNS: ptr(msec),
			CompletionTokens: ptr(int64(tokens)), FinishReason: "stop", TextSHA256: digest(strings.Repeat("x", tokens)),
		},
	}
}

func answered(id string, status int, outcome record.Outcome) *record.Record {
	return &record.Record{Schema: 1, RequestID: id, IDSource: "client", Status: status, Outcome: outcome, TotalNS: msec}
}

func TestEmptyStreamIsNoSuccess(t *testing.T) { // O1
	empty := streamed(sent("empty", 20), 0, 0, 0)
	empty.Response.RoleChunks = 1
	hollow := sent("hollow", 30)
	hollow.Status = ptr(int64(200))
	hollow.Error = &aiperf.Error{Type: "InvalidInferenceResultError"}
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Measured: 4},
		Client: seq(streamed(sent("a", 0), 100, 5, 10), streamed(sent("b", 10), 120, 5, 10), empty, hollow),
	})
	if d := cmp.Diff([]string{"completed", "completed", "empty", "failed/broken_stream"}, ends(l, ledger.Measured)); d != "" {
		t.Error(d)
	}
	row := metrics.Compute(l)
	if row.TTFTMS.N != 2 || *row.TTFTMS.Mean != 110 || metrics.Interpolate([]float64{*row.TTFTMS.Min, *row.TTFTMS.Max}, .5) != 110 {
		t.Errorf("TTFT %+v, want the mean and median of 100 and 120", row.TTFTMS)
	}
	if row.TTFTMS.P50.Value != nil {
		t.Error("a median of two values is below the sample floor")
	}
	if f := finding(t, l, ledger.EmptyAnswers); f.Severity != ledger.Blocking || f.Count != 1 {
		t.Errorf("%+v", f)
	}
}

func TestMissingStampIsNoNegativeTime(t *testing.T) { // O2
	missing := sent("missing", 0)
	missing.Status, missing.EndWallNS = ptr(int64(200)), ptr(missing.StartWallNS+msec)
	early := streamed(sent("early", 10), -5, 5, 10)
	l := build(t, ledger.Input{Plan: ledger.Plan{Measured: 2}, Client: seq(missing, early)})
	if row := metrics.Compute(l); row.TTFTMS.N != 0 || row.TTFTMS.Mean != nil {
		t.Errorf("TTFT %+v", row.TTFTMS)
	}
	if f := finding(t, l, ledger.NegativeDuration); f.Count != 1 || f.Evidence[0].RequestID != "early" || !strings.Contains(f.Evidence[0].Detail, "5.000 ms before the start") {
		t.Errorf("%+v", f)
	}
}

func TestTokensComeFromUsage(t *testing.T) { // O5, O9
	r := streamed(sent("a", 0), 100, 20, 7)
	r.Payload.MaxTokens = ptr(int64(512))
	l := build(t, ledger.Input{
		Plan: ledger.Plan{Measured: 1}, Client: seq(r),
		Figures: seq(aiperf.Figures{ID: "a", OutputTokens: ptr(int64(9))}),
	})
	e := l.Entries[0]
	if *e.Tokens.Completion != 7 || *e.Tokens.ClientCompletionEstimate != 9 || *e.Client.ITLNS != float64(20*msec) {
		t.Errorf("tokens %d, ITL %v ns; want 7 and 20 ms", *e.Tokens.Completion, *e.Client.ITLNS)
	}
	if f := finding(t, l, ledger.TokenCountsDiffer); f.Severity != ledger.Info {
		t.Errorf("%+v", f)
	}
}

func TestRefusalsDoNotFlatter(t *testing.T) { // O6
	slow, picky := make([]*aiperf.Request, 100), make([]*aiperf.Request, 100)
	for i := range 100 {
		id, at := fmt.Sprint("r", i), int64(i)*20
		slow[i] = streamed(sent(id, at), 10_000, 0, 1)
		picky[i] = streamed(sent(id, at), 2_000, 0, 1)
		if i%2 == 1 {
			picky[i] = refused(sent(id, at), 503, "server busy: the queue is full")
			picky[i].Response.LastPerfNS = ptr(*picky[i].StartPerfNS + 5*msec)
		}
	}
	a := build(t, ledger.Input{Plan: ledger.Plan{Measured: 100}, Client: seq(slow...)})
	b := build(t, ledger.Input{Plan: ledger.Plan{Measured: 100}, Client: seq(picky...)})
	if g := metrics.Goodput(5_000, a); g.Count != 0 || g.Of != 100 {
		t.Errorf("A: %+v", g)
	}
	if g := metrics.Goodput(5_000, b); g.Count != 50 || g.Of != 100 {
		t.Errorf("B: %+v", g)
	}
	row := metrics.Compute(b)
	if !row.AcceptedOnly || row.Rejected.Count != 50 || *row.Rejected.Value != .5 || *row.RejectMS.Mean != 5 || row.RejectSources["client"] != 50 {
		t.Errorf("B: %+v, time to reject %+v", row.Rejected, row.RejectMS)
	}
	if metrics.Compute(a).AcceptedOnly {
		t.Error("A refused nothing")
	}
}

func TestHiddenRetriesShow(t *testing.T) { // O7
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Measured: 1},
		Client: seq(streamed(sent("a", 0), 19_000, 40, 11)),
		Server: seq(answered("a", 503, record.Rejected), answered("a", 503, record.Rejected), served("a", 11, 1_200)),
	})
	e := l.Entries[0]
	if e.Class != ledger.Completed || e.HiddenRetries != 2 || *e.Server.TaskCallNS != 1_200*msec {
		t.Errorf("%s, %d hidden retries, server %+v", e.Class, e.HiddenRetries, e.Server)
	}
	if f := finding(t, l, ledger.HiddenRetry); f.Severity != ledger.Blocking || !strings.Contains(f.Evidence[0].Detail, "attempts 3 > sent 1") {
		t.Errorf("%+v", f)
	}
	if q := l.Summary.Quality; q.OneToOne != 0 || q.Retried != 1 {
		t.Errorf("%+v", q)
	}
}

func TestSharedIDIsAmbiguous(t *testing.T) { // O8
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Measured: 3},
		Client: seq(streamed(sent("A", 0), 10, 5, 9), streamed(sent("A", 100), 10, 5, 9), streamed(sent("B", 200), 10, 5, 9)),
		Server: seq(served("A", 9, 40), served("B", 9, 40)),
	})
	q, r := l.Summary.Quality, l.Summary.ServerRecords
	if q.OneToOne != 1 || q.Ambiguous != 2 || q.ServerOnly != 0 || len(l.Entries) != 3 || r.Matched != 1 || r.Ambiguous != 1 || r.ServerOnly != 0 {
		t.Errorf("%+v %+v", q, r)
	}
	for _, e := range l.Entries {
		if e.RequestID == "A" && e.Server != nil {
			t.Error("a server record is attached to an ambiguous request")
		}
	}
	finding(t, l, ledger.AmbiguousID)
}

func TestMixedClocksAreWithheld(t *testing.T) { // O10
	s := served("a", 9, 0)
	s.Task.WallNS = int64(12_346.9e9) - int64(1_775_500_000e9)
	long := served("b", 9, 5_000)
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Measured: 2},
		Client: seq(streamed(sent("a", 0), 1_000, 50, 9), streamed(sent("b", 2_000), 1_000, 50, 9)),
		Server: seq(s, long),
	})
	for _, e := range l.Entries {
		if e.Join != ledger.Matched || e.Server.TaskCallNS != nil || !strings.HasPrefix(e.Server.Withheld, "clock mismatch") {
			t.Errorf("%s: %s, %+v", e.RequestID, e.Join, e.Server)
		}
		if *e.Client.LatencyNS != 1_400*msec {
			t.Errorf("%s: the client's latency is gone", e.RequestID)
		}
	}
	if f := finding(t, l, ledger.ClockMismatch); f.Count != 2 {
		t.Errorf("%+v", f)
	}
}

const rawLine = `{"metadata":{"x_request_id":"%s","benchmark_phase":"profiling","request_start_ns":%d},"start_perf_ns":0,"status":200,"responses":[{"perf_ns":5,"text":"{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}"}],"payload":{"prompt":"%s"}}` + "\n"

func TestTornExportLeavesIncomplete(t *testing.T) { // O12, O13
	for name, c := range map[string]struct {
		export   string
		planned  int
		finished int
		finding  ledger.Code
	}{
		"torn tail":            {raw("a", "b", "c") + `{"metadata":{"x_request_id":"d","x_corr`, 4, 3, ledger.TornExport},
		"then appended to":     {raw("a", "b", "c") + `{"metadata":{"x_req` + "\n" + raw("e"), 5, 4, ledger.TornExport},
		"then an empty line":   {raw("a", "b", "c") + `{"metadata":{"x_req` + "\n\n", 4, 3, ledger.TornExport},
		"cut in a character":   {raw("a", "b", "c") + `{"metadata":{"conversation_id":"` + "\xe4\xb8", 4, 3, ledger.TornExport},
		"a line above the cap": {raw("a") + fmt.Sprintf(rawLine, "b", 2, strings.Repeat("A", 4096)) + raw("c"), 3, 2, ledger.TornExport},
	} {
		t.Run(name, func(t *testing.T) {
			l := build(t, ledger.Input{
				Plan:   ledger.Plan{Measured: c.planned},
				Client: aiperf.ReadRaw(strings.NewReader(c.export), "raw.jsonl", 2048),
			})
			n := l.Summary.Counts[ledger.Measured]
			if n[ledger.Completed] != c.finished || n[ledger.Incomplete] != 1 || n[ledger.NotSent] != 0 {
				t.Errorf("%v", n)
			}
			if f := finding(t, l, c.finding); f.Count != 1 || !strings.Contains(f.Evidence[0].Detail, "raw.jsonl:") {
				t.Errorf("%+v", f)
			}
		})
	}
}

func raw(ids ...string) (s string) {
	for _, id := range ids {
		s += fmt.Sprintf(rawLine, id, int(id[0]), id)
	}
	return s
}

func TestCorruptLineStops(t *testing.T) {
	for _, bad := range []string{`{"metadata":{"x_req{"metadata":{}}`, `{"metadata":{"a":1,"a":2}}`, `{"metadata":{"turn_index":NaN}}`, `{}`} {
		_, err := ledger.Build(ledger.Input{Client: aiperf.ReadRaw(strings.NewReader(raw("a")+bad+"\n"+raw("b")), "raw.jsonl", 0)})
		var c *jsonl.CorruptError
		if !errors.As(err, &c) || c.Line != 2 || !strings.HasPrefix(err.Error(), "raw.jsonl:2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A kill leaves the client with less than the server saw.
func TestKilledRunIsAccountedFor(t *testing.T) {
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Warmup: 1, Measured: 5},
		Client: seq(warm(streamed(sent("w", 0), 10, 5, 9)), streamed(sent("a", 100), 10, 5, 9), streamed(sent("b", 200), 10, 5, 9)),
		Server: seq(served("w", 9, 40), served("a", 9, 40), served("b", 9, 40), late(answered("c", 499, record.Cancelled), 300)),
		Exit:   ledger.Exit{Code: -1, Signal: "SIGKILL"},
	})
	if d := cmp.Diff([]string{"completed", "completed", "incomplete", "not_sent", "not_sent"}, ends(l, ledger.Measured)); d != "" {
		t.Error(d)
	}
	if e := l.Entries[3]; e.RequestID != "c" || e.Join != ledger.ServerOnly || e.Server.Status != 499 {
		t.Errorf("%+v", e)
	}
	if e := l.Entries[5]; *e.Place.Ordinal != 4 {
		t.Errorf("%+v", e.Place)
	}
	if f := finding(t, l, ledger.ServerOnlyRequest); f.Severity != ledger.Warning {
		t.Errorf("%+v", f)
	}
}

func warm(r *aiperf.Request) *aiperf.Request { r.Phase = aiperf.Warmup; return r }

func late(r *record.Record, at int64) *record.Record {
	r.ReceivedWallNS = 1_796_000_000_000_000_000 + at*msec
	return r
}

func TestNotSentIsNamedByItsPlace(t *testing.T) {
	plan := ledger.Plan{Measured: 4, Places: map[ledger.Phase][]ledger.Place{
		ledger.Measured: {{Conversation: "s1", Turn: 0}, {Conversation: "s1", Turn: 1}, {Conversation: "s2", Turn: 0}, {Conversation: "s2", Turn: 1}},
	}}
	turn := func(id, conversation string, n int64) *aiperf.Request {
		r := streamed(sent(id, n), 10, 5, 9)
		r.ConversationID, r.Turn = conversation, n
		return r
	}
	l := build(t, ledger.Input{Plan: plan, Client: seq(turn("a", "s1", 0), turn("b", "s2", 0), turn("c", "s2", 1))})
	want := ledger.Place{Conversation: "s1", Turn: 1}
	if e := l.Entries[3]; e.Class != ledger.NotSent || e.Place != want {
		t.Errorf("%+v", e)
	}
}

func TestPlaces(t *testing.T) {
	_, err := ledger.Build(ledger.Input{Plan: ledger.Plan{Measured: 2, Warmup: -1, Places: map[ledger.Phase][]ledger.Place{ledger.Measured: {{}}}}})
	if err == nil || !strings.Contains(err.Error(), "1 places for 2") || !strings.Contains(err.Error(), "-1 warmup") {
		t.Errorf("not all faults of the plan are named: %v", err)
	}
}

func TestCutPromptIsNotCompleted(t *testing.T) { // O15
	for _, c := range []struct {
		name               string
		sent, used, window int64
		want               ledger.Class
	}{
		{"half the window", 7_900, 2_050, 4_096, ledger.PromptTruncated},
		{"the whole window", 7_900, 4_095, 4_096, ledger.PromptTruncated},
		{"near the client's count", 3_900, 3_870, 4_096, ledger.Completed},
		{"template on top", 64, 94, 4_096, ledger.Completed},
		{"another tokenizer", 1_000, 700, 4_096, ledger.Completed},
		{"no window known", 7_900, 2_050, 0, ledger.Completed},
	} {
		r := streamed(sent("a", 0), 10, 5, 9)
		r.Response.Usage.Prompt = &c.used
		l := build(t, ledger.Input{
			Plan: ledger.Plan{Measured: 1}, Client: seq(r), ContextWindow: c.window,
			Figures: seq(aiperf.Figures{ID: "a", InputTokens: &c.sent}),
		})
		if got := l.Entries[0].Class; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	l := build(t, ledger.Input{Plan: ledger.Plan{Measured: 1}, Client: seq(refused(sent("a", 0), 400,
		`{"error":{"code":400,"type":"exceed_context_size_error","n_prompt_tokens":13392,"n_ctx":8192}}`))})
	if got := l.Entries[0].Class; got != ledger.Invalid {
		t.Errorf("context exceeded: %s, want invalid", got)
	}
}

func TestClasses(t *testing.T) {
	event := func(code int64, kind string) *aiperf.Request {
		r := sent("a", 0)
		r.Status = ptr(int64(200))
		r.Response = aiperf.Response{Stream: true, Bodies: 1, Failure: &aiperf.Failure{Type: kind}}
		if code != 0 {
			r.Response.Failure.Status = &code
		}
		return r
	}
	broken := func(errorType string) *aiperf.Request {
		r := sent("a", 0)
		r.Error = &aiperf.Error{Type: errorType}
		return r
	}
	cancelled := sent("a", 0)
	cancelled.Cancelled = true
	for name, c := range map[string]struct {
		r    *aiperf.Request
		want string
	}{
		"429":                         {refused(sent("a", 0), 429, ""), "rejected"},
		"529":                         {refused(sent("a", 0), 529, ""), "rejected"},
		"503 with words":              {refused(sent("a", 0), 503, "The request queue is full."), "rejected"},
		"503 while loading":           {refused(sent("a", 0), 503, "Loading model"), "failed/server_error"},
		"504":                         {refused(sent("a", 0), 504, ""), "failed/timeout"},
		"401":                         {refused(sent("a", 0), 401, ""), "invalid"},
		"499":                         {refused(sent("a", 0), 499, ""), "cancelled"},
		"302":                         {refused(sent("a", 0), 302, ""), "failed/protocol"},
		"given up":                    {cancelled, "cancelled"},
		"event 503 overloaded":        {event(503, "overloaded_error"), "rejected"},
		"event overloaded, no status": {event(0, "overloaded_error"), "rejected"},
		"event 400":                   {event(400, "exceed_context_size_error"), "invalid"},
		"event 500":                   {event(500, "server_error"), "failed/server_error"},
		"client timeout":              {broken("TimeoutError"), "failed/timeout"},
		"connection closed":           {broken("ServerDisconnectedError"), "failed/transport"},
		"no end known":                {sent("a", 0), "incomplete"},
	} {
		l := build(t, ledger.Input{Plan: ledger.Plan{Measured: 1}, Client: seq(c.r)})
		if got := ends(l, ledger.Measured)[0]; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestIdentityMismatchBlocks(t *testing.T) {
	other := served("b", 9, 40)
	other.Task.TextSHA256 = digest("something else")
	count := served("c", 10, 40)
	count.Task.TextSHA256 = digest(strings.Repeat("x", 9))
	count.Task.FinishReason = "length"
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Warmup: 1, Measured: 2},
		Client: seq(streamed(sent("a", 0), 10, 5, 9), warm(streamed(sent("b", 100), 10, 5, 9)), streamed(sent("c", 200), 10, 5, 9)),
		Server: seq(served("a", 9, 40), other, count),
	})
	f := finding(t, l, ledger.IdentityMismatch)
	want := []ledger.Evidence{{RequestID: "b", Detail: "text different, tokens equal, finish reason equal"}, {RequestID: "c", Detail: "text equal, tokens different, finish reason different"}}
	if d := cmp.Diff(want, f.Evidence); d != "" || f.Severity != ledger.Blocking {
		t.Error(d)
	}
	if q := l.Summary.Quality; q.Compared != 3 || q.Identical != 1 {
		t.Errorf("%+v", q)
	}
}

func TestBufferingIsDetected(t *testing.T) {
	held := streamed(sent("a", 0), 1_000, 0, 10)
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Measured: 2},
		Client: seq(held, streamed(sent("b", 2_000), 100, 100, 10)),
		Server: seq(served("a", 10, 990), served("b", 10, 990)),
	})
	finding(t, l, ledger.StreamNotIncremental)
	row := metrics.Compute(l)
	if row.TTFTMS.Mean != nil || row.ITLMS.Mean != nil || row.TTFTMS.P99.Absent == "" {
		t.Errorf("TTFT %+v of a buffered stream", row.TTFTMS)
	}
	if row.LatencyMS.N != 2 || row.Streams != (metrics.Streams{Verified: 1, Buffered: 1}) {
		t.Errorf("%+v, streams %+v", row.LatencyMS, row.Streams)
	}
}

// A server that really is that fast is not called a buffer.
func TestFastStreamIsNoBuffer(t *testing.T) {
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Measured: 1},
		Client: seq(streamed(sent("a", 0), 10, 0, 10)),
		Server: seq(served("a", 10, 1)),
	})
	if got := l.Entries[0].Client.Incremental; got != ledger.Verified {
		t.Errorf("%s", got)
	}
}

func TestRepeatedPromptAndCache(t *testing.T) {
	w, m := warm(streamed(sent("w", 0), 10, 5, 9)), streamed(sent("m", 100), 10, 5, 9)
	m.Payload.PromptSHA256 = w.Payload.PromptSHA256
	m.Response.Usage.Cached = ptr(int64(19))
	l := build(t, ledger.Input{Plan: ledger.Plan{Warmup: 1, Measured: 1}, Client: seq(w, m)})
	if f := finding(t, l, ledger.RepeatedPrompt); f.Evidence[0] != (ledger.Evidence{RequestID: "m", Detail: "measured request with the prompt of w (warmup)"}) {
		t.Errorf("%+v", f)
	}
	if f := finding(t, l, ledger.CachedTokens); f.Severity != ledger.Blocking {
		t.Errorf("tokens from a cache that was declared off: %s", f.Severity)
	}
	l = build(t, ledger.Input{Plan: ledger.Plan{Warmup: 1, Measured: 1}, Client: seq(w, m), PromptCache: true})
	if f := finding(t, l, ledger.CachedTokens); f.Severity != ledger.Info {
		t.Errorf("tokens from a declared cache: %s", f.Severity)
	}
}

func TestThroughputOverTheWindow(t *testing.T) {
	reqs := []*aiperf.Request{warm(streamed(sent("w", 0), 10, 5, 9))}
	for i, id := range ids(10) {
		reqs = append(reqs, streamed(sent(id, 1_000+int64(i)*100), 10, 10, 10))
	}
	l := build(t, ledger.Input{Plan: ledger.Plan{Warmup: 1, Measured: 10}, Client: seq(reqs...)})
	row := metrics.Compute(l, l)
	// First dispatch to last chunk: 900 + 100 ms, twice.
	if *row.WindowS != 2 || *row.RequestsPerS != 10 || *row.OutputTokensPerS != 100 || row.Measured != 20 {
		t.Errorf("window %v s, %v requests/s, %v tokens/s", *row.WindowS, *row.RequestsPerS, *row.OutputTokensPerS)
	}
	if math.IsNaN(*row.LatencyMS.Mean) || *row.LatencyMS.Mean != 100 || row.LatencyMS.P50.Value == nil || row.LatencyMS.P90.Value != nil {
		t.Errorf("%+v", row.LatencyMS)
	}
}

func TestNothingServedHasNoFigures(t *testing.T) {
	l := build(t, ledger.Input{Plan: ledger.Plan{Measured: 3}, Client: seq[*aiperf.Request]()})
	row := metrics.Compute(l)
	if row.WindowS != nil || row.RequestsPerS != nil || row.LatencyMS.Mean != nil || row.Counts[ledger.NotSent] != 3 {
		t.Errorf("%+v", row)
	}
}
