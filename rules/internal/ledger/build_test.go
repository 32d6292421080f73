package ledger_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/record"
)

func TestCorruptLineStops(t *testing.T) {
	for _, bad := range []string{`{"metadata":{"x_req{"metadata":{}}`, `{"metadata":{"a":1,"a":2}}`, `{"metadata":{"turn_index":NaN}}`, `{}`} {
		_, err := closeBooks(ledger.Input{Client: aiperf.ReadRaw(strings.NewReader(raw("a")+bad+"\n"+raw("b")), "raw.jsonl", 0)})
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
	_, err := closeBooks(ledger.Input{Plan: ledger.Plan{Measured: 2, Warmup: -1, Places: map[ledger.Phase][]ledger.Place{ledger.Measured: {{}}}}})
	if err == nil || !strings.Contains(err.Error(), "1 places for 2") || !strings.Contains(err.Error(), "-1 warmup") {
		t.Errorf("not all faults of the plan are named: %v", err)
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
	row := rowOf(l)
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
	row := rowOf(l, l)
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
	row := rowOf(l)
	if row.WindowS != nil || row.RequestsPerS != nil || row.LatencyMS.Mean != nil || row.Counts[ledger.NotSent] != 3 {
		t.Errorf("%+v", row)
	}
}
