package ledger_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/record"
)

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
		Payload: aiperf.Payload{Model: "m", Stream: true, PromptSHA256: sha256.Sum256([]byte("prompt " + id))},
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
	a.SHA256 = sha256.Sum256([]byte(a.Text))
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

func warm(r *aiperf.Request) *aiperf.Request { r.Phase = aiperf.Warmup; return r }

func late(r *record.Record, at int64) *record.Record {
	r.ReceivedWallNS = 1_796_000_000_000_000_000 + at*msec
	return r
}

const rawLine = `{"metadata":{"x_request_id":"%s","benchmark_phase":"profiling","request_start_ns":%d},"start_perf_ns":0,"status":200,"responses":[{"perf_ns":5,"text":"{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}"}],"payload":{"prompt":"%s"}}` + "\n"

func raw(ids ...string) (s string) {
	for _, id := range ids {
		s += fmt.Sprintf(rawLine, id, int(id[0]), id)
	}
	return s
}
