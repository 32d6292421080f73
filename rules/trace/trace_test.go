package trace

import (
	"testing"
	"time"

	"assay/rules/internal/trace"
)

// What AIPerf reads: bodies without what only the server knows, and times to the
// nanosecond.
func TestRequestsFile(t *testing.T) {
	w := trace.Words{List: []string{"one", "two", "three"}, Seed: 1}
	p := &trace.Plan{Requests: []trace.Request{
		{Line: 1, Input: 2, Text: 2, Output: 4, Blocks: []trace.Block{{ID: 0, Tokens: 2}}},
		{Line: 7, At: 1500*time.Millisecond + 250*time.Nanosecond, Input: 33, Text: 3, Output: 1, Blocks: []trace.Block{{ID: 0, Tokens: 2}, {ID: 9, Tokens: 1}}},
	}}
	for endpoint, want := range map[string]string{
		"completions": `{"session_id":"line-1","timestamp":0,"payload":{"prompt":"three three","max_tokens":4,"ignore_eos":true}}
{"session_id":"line-7","timestamp":1500.00025,"payload":{"prompt":"three three one","max_tokens":1,"ignore_eos":true}}
`,
		"chat": `{"session_id":"line-1","timestamp":0,"payload":{"messages":[{"role":"user","content":"three three"}],"max_tokens":4}}
{"session_id":"line-7","timestamp":1500.00025,"payload":{"messages":[{"role":"user","content":"three three one"}],"max_tokens":1}}
`,
	} {
		p.Facts.Endpoint, p.Facts.IgnoreEOS = endpoint, endpoint == "completions"
		got, err := render(p, w)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", endpoint, err, got)
		}
	}
}

func TestPlannedRequests(t *testing.T) {
	template := int64(30)
	p := &trace.Plan{Requests: []trace.Request{{Line: 3, At: time.Second, Input: 33, Output: 4, TooLong: true}}}
	if q := planned(p)[0]; q.Conversation != "line-3" || *q.AtNS != 1e9 || q.PromptTokens != nil || q.OutputTokens != 4 || !q.TooLong {
		t.Errorf("%+v", q)
	}
	p.Facts.TemplateTokens = &template
	if q := planned(p)[0]; *q.PromptTokens != 33 {
		t.Errorf("%+v", q)
	}
}
