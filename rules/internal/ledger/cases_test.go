package ledger_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

// Cases from public bug reports of other tools; the classes are the ledger's.
// O3 and O4 are in sse, O11 in trace, O14 in metrics.

// event is a packet of a stream, so many ms after the dispatch.
type event struct {
	at   int64
	data string
}

// exported is a record of AIPerf's raw export, of a stream; without events it is of
// a body of zero bytes.
func exported(id string, start int64, events ...event) string {
	var responses []string
	for _, e := range events {
		responses = append(responses, fmt.Sprintf(`{"perf_ns":%d,"packets":[{"name":"data","value":%q}]}`, (start+e.at)*msec, e.data))
	}
	wall := 1_750_878_498_066_000_000 + start*msec
	return fmt.Sprintf(`{"metadata":{"x_request_id":%q,"benchmark_phase":"profiling","request_start_ns":%d,"request_end_ns":%d},"start_perf_ns":%d,"status":200,"responses":[%s],"payload":{"stream":true,"max_tokens":512,"prompt":%q}}`+"\n",
		id, wall, wall+100*msec, start*msec, strings.Join(responses, ","), id)
}

// answer is a stream of n one-token chunks as a completions server sends it.
func answer(first, gap int64, n int, usage string) (events []event) {
	for i := range n {
		events = append(events, event{first + int64(i)*gap, `{"choices":[{"index":0,"text":"x","finish_reason":null}]}`})
	}
	end := first + int64(n-1)*gap
	return append(events, event{end + 1, `{"choices":[{"index":0,"text":"","finish_reason":"stop"}],"usage":` + usage + `}`}, event{end + 2, "[DONE]"})
}

func read(lines ...string) ledger.Input {
	return ledger.Input{
		Plan:   ledger.Plan{Measured: len(lines)},
		Client: aiperf.ReadRaw(strings.NewReader(strings.Join(lines, "")), "profile_export_raw.jsonl", 0),
	}
}

func TestO1EmptyStream(t *testing.T) {
	role := event{20, `{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`}
	finish := event{30, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`}
	usage, done := event{31, `{"choices":[],"usage":{"completion_tokens":0}}`}, event{32, "[DONE]"}
	l := build(t, read(
		exported("a", 0, answer(100, 5, 10, `{"completion_tokens":10}`)...),
		exported("b", 1000, answer(120, 5, 10, `{"completion_tokens":10}`)...),
		exported("empty", 2000, role, finish, usage, done),
		exported("hollow", 3000),
	))
	if d := cmp.Diff([]string{"completed", "completed", "empty", "failed/broken_stream"}, ends(l, ledger.Measured)); d != "" {
		t.Error(d)
	}
	row := rowOf(l)
	if row.TTFTMS.N != 2 || *row.TTFTMS.Mean != 110 || *row.TTFTMS.Min != 100 || *row.TTFTMS.Max != 120 || row.LatencyMS.N != 2 {
		t.Errorf("TTFT %+v, want the mean and median of 100 and 120", row.TTFTMS)
	}
	if f := finding(t, l, ledger.EmptyAnswers); f.Severity != ledger.Blocking || f.Count != 1 || f.Evidence[0].RequestID != "empty" {
		t.Errorf("%+v", f)
	}

	// Whatever has no content is no success.
	for name, c := range map[string]struct {
		events []event
		want   string
	}{
		"only [DONE]":                 {[]event{done}, "empty"},
		"role and [DONE]":             {[]event{role, done}, "empty"},
		"finish reason, no [DONE]":    {[]event{role, finish}, "empty"},
		"content of no length":        {[]event{{20, `{"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}`}, finish}, "empty"},
		"content of null":             {[]event{{20, `{"choices":[{"index":0,"delta":{"content":null},"finish_reason":"stop"}]}`}}, "empty"},
		"content of another choice":   {[]event{{20, `{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]}`}, done}, "empty"},
		"a role and no end":           {[]event{role}, "failed/broken_stream"},
		"usage and no end":            {[]event{usage}, "failed/broken_stream"},
		"an error before any content": {[]event{{20, `{"error":{"message":"boom"}}`}, done}, "failed/server_error"},
		"a space is content":          {[]event{{20, `{"choices":[{"index":0,"delta":{"content":" "},"finish_reason":"stop"}]}`}}, "completed"},
	} {
		l := build(t, read(exported("a", 0, c.events...)))
		if got := ends(l, ledger.Measured)[0]; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if row := rowOf(l); c.want != "completed" && (row.TTFTMS.N != 0 || row.LatencyMS.N != 0 || row.TTFTMS.Mean != nil) {
			t.Errorf("%s is in a figure: %+v", name, row.TTFTMS)
		}
	}
}

func TestO2NegativeTimeToFirstToken(t *testing.T) {
	early := answer(100, 5, 10, `{"completion_tokens":10}`)
	early[0].at = -5
	l := build(t, read(exported("missing", 0), exported("early", 1000, early...)))
	if row := rowOf(l); row.TTFTMS.N != 0 || row.TTFTMS.Mean != nil {
		t.Errorf("TTFT %+v", row.TTFTMS)
	}
	f := finding(t, l, ledger.NegativeDuration)
	want := []ledger.Evidence{{RequestID: "early", Detail: "content chunk 1 is 5.000 ms before the start"}}
	if d := cmp.Diff(want, f.Evidence); d != "" || f.Count != 1 {
		t.Error(d)
	}
	if c := l.Entries[0].Client; c.TTFTNS != nil || c.LatencyNS != nil {
		t.Errorf("a missing stamp gave a time: %+v", c)
	}
}

func TestO5UsageInAChunkWithoutText(t *testing.T) {
	const usage = `{"prompt_tokens":20,"completion_tokens":7}`
	chunks := answer(100, 20, 7, usage)
	content, finish, done := chunks[:7], chunks[7], chunks[8]
	bare := event{221, `{"choices":[{"index":0,"text":"","finish_reason":"stop"}]}`}
	for name, events := range map[string][]event{
		"with the finish reason":    chunks,
		"choices empty":             append(slices.Clip(content), bare, event{222, `{"choices":[],"usage":` + usage + `}`}, done),
		"choices null":              append(slices.Clip(content), bare, event{222, `{"choices":null,"usage":` + usage + `}`}, done),
		"without choices":           append(slices.Clip(content), bare, event{222, `{"usage":` + usage + `}`}, done),
		"null in every chunk after": append(slices.Clip(content), finish, event{222, `{"choices":[],"usage":null}`}, done),
	} {
		l := build(t, read(exported("a", 0, events...)))
		e := l.Entries[0]
		if e.Tokens.Completion == nil || *e.Tokens.Completion != 7 || *e.Client.ITLNS != float64(20*msec) || *e.Client.LatencyNS != 220*msec {
			t.Errorf("%s: tokens %+v, ITL %v ns, latency %d; want 7, 20 ms and 220 ms", name, e.Tokens, e.Client.ITLNS, *e.Client.LatencyNS)
		}
	}
	// No usage at all: nothing is taken from max_tokens.
	l := build(t, read(exported("a", 0, append(slices.Clip(content), bare, done)...)))
	if e := l.Entries[0]; e.Class != ledger.Completed || e.Tokens.Completion != nil || e.Client.ITLNS != nil {
		t.Errorf("tokens out of nothing: %+v, %v", e.Tokens, e.Client.ITLNS)
	}
}

func TestO6RefusalsDoNotFlatter(t *testing.T) {
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
	if g := rowWithin(ptr(5_000.0), a).Goodput; g.Count != 0 || g.Of != 100 {
		t.Errorf("A: %+v", g)
	}
	if g := rowWithin(ptr(5_000.0), b).Goodput; g.Count != 50 || g.Of != 100 {
		t.Errorf("B: %+v", g)
	}
	row := rowOf(b)
	if !row.AcceptedOnly || row.Rejected.Count != 50 || row.Rejected.Of != 100 || *row.Rejected.Value != .5 || *row.RejectMS.Mean != 5 || row.RejectSources["client"] != 50 {
		t.Errorf("B: %+v, time to reject %+v", row.Rejected, row.RejectMS)
	}
	if row.LatencyMS.N != 50 || *row.LatencyMS.Max != 2_000 {
		t.Errorf("B: latency %+v", row.LatencyMS)
	}
	if rowOf(a).AcceptedOnly {
		t.Error("A refused nothing")
	}
}

func TestO7HiddenRetries(t *testing.T) {
	client := func() *aiperf.Request { return streamed(sent("a", 0), 19_000, 40, 11) } // 19.4 s
	l := build(t, ledger.Input{
		Plan:   ledger.Plan{Measured: 1},
		Client: seq(client()),
		Server: seq(answered("a", 503, record.Rejected), answered("a", 503, record.Rejected), served("a", 11, 1_200)),
	})
	e := l.Entries[0]
	if e.Class != ledger.Completed || e.HiddenRetries != 2 || *e.Server.TaskCallNS != 1_200*msec || *e.Client.LatencyNS != 19_400*msec {
		t.Errorf("%s, %d hidden retries, server %+v", e.Class, e.HiddenRetries, e.Server)
	}
	if f := finding(t, l, ledger.HiddenRetry); f.Severity != ledger.Blocking || f.Evidence[0] != (ledger.Evidence{RequestID: "a", Detail: "attempts 3 > sent 1 (status 503, 503, 200)"}) {
		t.Errorf("%+v", f)
	}
	if q, r := l.Summary.Quality, l.Summary.ServerRecords; q.OneToOne != 0 || q.Retried != 1 || r.Matched != 1 || r.Retries != 2 {
		t.Errorf("%+v %+v", q, r)
	}
	// The attempts in any order, and one that the client's library gave up on.
	for _, attempts := range [][]*record.Record{
		{served("a", 11, 1_200), answered("a", 503, record.Rejected)},
		{answered("a", 499, record.Cancelled), served("a", 11, 1_200)},
	} {
		l := build(t, ledger.Input{Plan: ledger.Plan{Measured: 1}, Client: seq(client()), Server: seq(attempts...)})
		if e := l.Entries[0]; e.HiddenRetries != 1 || e.Server.Status != 200 {
			t.Errorf("%d hidden retries, server %+v", e.HiddenRetries, e.Server)
		}
	}
}

func TestO8SharedID(t *testing.T) {
	for name, records := range map[string][]*record.Record{
		"one record of two":  {served("A", 9, 40), served("B", 9, 40)},
		"a record for each":  {served("A", 9, 40), served("A", 9, 40), served("B", 9, 40)},
		"no record of these": {served("B", 9, 40)},
	} {
		l := build(t, ledger.Input{
			Plan:   ledger.Plan{Measured: 3},
			Client: seq(streamed(sent("A", 0), 10, 5, 9), streamed(sent("A", 100), 10, 5, 9), streamed(sent("B", 200), 10, 5, 9)),
			Server: seq(records...),
		})
		q, r := l.Summary.Quality, l.Summary.ServerRecords
		if q.OneToOne != 1 || q.Ambiguous != 2 || q.ServerOnly != 0 || len(l.Entries) != 3 || r.Matched != 1 || r.Ambiguous != len(records)-1 || r.ServerOnly != 0 {
			t.Errorf("%s: %+v %+v", name, q, r)
		}
		for _, e := range l.Entries {
			if e.RequestID == "A" && (e.Server != nil || e.Identity.Text != ledger.Unknown) {
				t.Errorf("%s: a server record is attached to an ambiguous request", name)
			}
		}
		if f := finding(t, l, ledger.AmbiguousID); f.Severity != ledger.Blocking || f.Count != 2 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestO9TokensAreNotChunks(t *testing.T) {
	piece := func(at int64, text string) event {
		return event{at, fmt.Sprintf(`{"choices":[{"index":0,"text":%q,"finish_reason":null}]}`, text)}
	}
	in := read(exported("a", 0, piece(100, "Hel"), piece(120, "lo"), piece(140, " world"),
		event{141, `{"choices":[{"index":0,"text":"","finish_reason":"stop"}],"usage":{"completion_tokens":2}}`}, event{142, "[DONE]"}))
	// Three is what a tokenizer counts that is run on each chunk.
	in.Figures = seq(aiperf.Figures{ID: "a", OutputTokens: ptr(int64(3))})
	l := build(t, in)
	e := l.Entries[0]
	if *e.Tokens.Completion != 2 || *e.Tokens.ClientCompletionEstimate != 3 || e.Client.Chunks != 3 || *e.Client.ITLNS != float64(40*msec) {
		t.Errorf("%+v, ITL %v ns over %d chunks", e.Tokens, *e.Client.ITLNS, e.Client.Chunks)
	}
	if f := finding(t, l, ledger.TokenCountsDiffer); f.Severity != ledger.Info || f.Evidence[0].Detail != "completion: 2 by the server, 3 by the client's own tokenizer" {
		t.Errorf("%+v", f)
	}
	if row := rowOf(l); *row.OutputTokens != 2 {
		t.Errorf("%d output tokens", *row.OutputTokens)
	}
}

func TestO10MixedClocks(t *testing.T) {
	const epoch, first, end = int64(1_775_500_000e9), int64(12_345.6e9), int64(12_346.9e9)
	change := func(wall int64, f func(*record.Record)) *record.Record {
		r := served("a", 9, wall)
		f(r)
		return r
	}
	for name, rec := range map[string]*record.Record{
		"epoch and monotonic": change(0, func(r *record.Record) {
			r.ReceivedWallNS, r.TotalNS = epoch, end-epoch
			r.Task.WallNS, r.Task.FirstIncrementNS = end-epoch, ptr(first-epoch)
		}),
		"the whole is negative":   change(1_000, func(r *record.Record) { r.TotalNS = -1 }),
		"longer than the client":  served("a", 9, 1_421),
		"seconds for nanoseconds": served("a", 9, 1_400_000),
		"the part is longer":      change(1_000, func(r *record.Record) { r.QueueNS = ptr(1_022 * msec) }),
		"first after the last":    change(1_000, func(r *record.Record) { r.Task.FirstIncrementNS = ptr(1_021 * msec) }),
	} {
		l := build(t, ledger.Input{Plan: ledger.Plan{Measured: 1}, Client: seq(streamed(sent("a", 0), 1_000, 50, 9)), Server: seq(rec)})
		e := l.Entries[0]
		if e.Join != ledger.Matched || e.Server.TaskCallNS != nil || e.Server.TotalNS != nil || !strings.HasPrefix(e.Server.Withheld, "clock mismatch") {
			t.Errorf("%s: %s, %+v", name, e.Join, e.Server)
		}
		if *e.Client.LatencyNS != 1_400*msec || e.Identity.Text != ledger.Equal {
			t.Errorf("%s: the client's latency or the identity is gone", name)
		}
		if f := finding(t, l, ledger.ClockMismatch); f.Count != 1 || f.Evidence[0].RequestID != "a" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// repeated yields n bytes without holding them.
type repeated struct{ n int }

func (r *repeated) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	n := min(len(p), r.n)
	for i := range p[:n] {
		p[i] = 'A'
	}
	r.n -= n
	return n, nil
}

func TestO12LongLine(t *testing.T) {
	for name, c := range map[string]struct {
		image  int // bytes of the second prompt
		end    string
		reason string
	}{
		"64 KiB, where line scanners stop": {64 << 10, "completed", ""},
		"17 MiB":                           {17 << 20, "completed", ""},
		"300 MiB, above the maximum":       {300 << 20, "incomplete", "profile_export_raw.jsonl:2: the line has 314573075 bytes, more than the maximum of 268435456"},
	} {
		line := fmt.Sprintf(rawLine, "b", 2, "data:image/png;base64,|")
		before, after, _ := strings.Cut(line, "|")
		export := io.MultiReader(strings.NewReader(raw("a")+before), &repeated{c.image}, strings.NewReader(after+raw("c")))
		l := build(t, ledger.Input{Plan: ledger.Plan{Measured: 3}, Client: aiperf.ReadRaw(export, "profile_export_raw.jsonl", 0)})
		got := map[string]string{}
		for _, e := range l.Entries {
			got[e.RequestID] = string(e.Class)
		}
		if d := cmp.Diff(map[string]string{"a": "completed", "b": c.end, "c": "completed"}, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if c.reason == "" {
			if len(l.Summary.Findings) > 0 && l.Summary.Findings[0].Code == ledger.TornExport {
				t.Errorf("%s: %+v", name, l.Summary.Findings[0])
			}
		} else if f := finding(t, l, ledger.TornExport); f.Count != 1 || f.Evidence[0].RequestID != "b" || !strings.HasPrefix(f.Evidence[0].Detail, c.reason) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestO13TornLastLine(t *testing.T) {
	for name, c := range map[string]struct {
		export            string
		planned, finished int
	}{
		"torn tail":            {raw("a", "b", "c") + `{"metadata":{"x_req`, 4, 3},
		"torn behind the id":   {raw("a", "b", "c") + `{"metadata":{"x_request_id":"d","x_corr`, 4, 3},
		"then appended to":     {raw("a", "b", "c") + `{"metadata":{"x_req` + "\n" + raw("e"), 5, 4},
		"then an empty line":   {raw("a", "b", "c") + `{"metadata":{"x_req` + "\n\n", 4, 3},
		"cut in a character":   {raw("a", "b", "c") + `{"metadata":{"conversation_id":"` + "\xe4\xb8", 4, 3},
		"a line above the cap": {raw("a") + fmt.Sprintf(rawLine, "b", 2, strings.Repeat("A", 4096)) + raw("c"), 3, 2},
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
			if f := finding(t, l, ledger.TornExport); f.Count != 1 || !strings.Contains(f.Evidence[0].Detail, "raw.jsonl:") {
				t.Errorf("%+v", f)
			}
		})
	}
	// Wherever a record is cut, the ones before it stand and it is accounted for.
	whole, line := raw("a", "b", "c"), raw("d")
	for cut := 1; cut < len(line)-1; cut++ {
		l := build(t, ledger.Input{
			Plan:   ledger.Plan{Measured: 4},
			Client: aiperf.ReadRaw(strings.NewReader(whole+line[:cut]), "raw.jsonl", 0),
		})
		n := l.Summary.Counts[ledger.Measured]
		if f := finding(t, l, ledger.TornExport); n[ledger.Completed] != 3 || n[ledger.Incomplete] != 1 || !strings.Contains(f.Evidence[0].Detail, fmt.Sprintf("at byte %d", len(whole))) {
			t.Fatalf("cut after %d bytes: %v, %+v", cut, n, f.Evidence)
		}
	}
}

func TestO15CutPrompt(t *testing.T) {
	for _, c := range []struct {
		name               string
		sent, used, window int64
		want               ledger.Class
	}{
		{"half the window", 7_900, 2_050, 4_096, ledger.PromptTruncated},
		{"the whole window", 7_900, 4_095, 4_096, ledger.PromptTruncated},
		{"the window less the answer's room", 4_000, 3_584, 4_096, ledger.PromptTruncated},
		{"more than the window, and any count", 7_900, 1_234, 4_096, ledger.PromptTruncated},
		{"near the client's count", 3_900, 3_870, 4_096, ledger.Completed},
		{"template on top", 64, 94, 4_096, ledger.Completed},
		{"another tokenizer", 1_000, 700, 4_096, ledger.Completed},
		{"no window known", 7_900, 2_050, 0, ledger.Completed},
	} {
		r := streamed(sent("a", 0), 10, 5, 9)
		r.Response.Usage.Prompt, r.Payload.MaxTokens = &c.used, ptr(int64(512))
		l := build(t, ledger.Input{
			Plan: ledger.Plan{Measured: 1}, Client: seq(r), ContextWindow: c.window,
			Figures: seq(aiperf.Figures{ID: "a", InputTokens: &c.sent}),
		})
		if got := l.Entries[0].Class; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if row := rowOf(l); (row.LatencyMS.N == 1) != (c.want == ledger.Completed) {
			t.Errorf("%s: latency of %d requests", c.name, row.LatencyMS.N)
		}
	}
	for _, body := range []string{
		`{"error":{"code":400,"type":"exceed_context_size_error","n_prompt_tokens":13392,"n_ctx":8192}}`,
		`{"error":{"code":"context_length_exceeded","message":"maximum context length is 8192 tokens"}}`,
	} {
		l := build(t, ledger.Input{Plan: ledger.Plan{Measured: 1}, Client: seq(refused(sent("a", 0), 400, body))})
		if got := ends(l, ledger.Measured)[0]; got != "invalid" {
			t.Errorf("context exceeded: %s, want invalid", got)
		}
	}
}
