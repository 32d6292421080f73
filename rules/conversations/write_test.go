package conversations

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"assay/rules/internal/dataset"
)

const two = `{"id":"a","turns":[{"role":"system","text":"Be <brief>."},{"role":"user","text":"Hi","max_tokens":4},{"role":"assistant"},{"role":"user","text":"And?","max_tokens":8,"think_ms":900,"depends_on":[0]}]}
{"id":"b","turns":[{"role":"user","text":"Ho","max_tokens":4}]}
`

// AIPerf gets its own forms: multi_turn, to which it adds the live replies, and
// messages written out, to which it adds nothing.
func TestRequestsFile(t *testing.T) {
	for _, c := range []struct {
		facts                    dataset.ConversationFacts
		format, requests, capped string
	}{
		{dataset.ConversationFacts{ThinkTime: recorded, ThinkTimeCapMS: 100, History: dataset.HistoryLive}, "multi_turn", `
{"session_id":"a","turns":[{"role":"system","text":"Be <brief>."},{"role":"user","text":"Hi","output_length":4},{"role":"user","text":"And?","delay":100,"output_length":8}]}
{"session_id":"b","turns":[{"role":"user","text":"Ho","output_length":4}]}
`, "1"},
		{dataset.ConversationFacts{ThinkTime: fixed, ThinkTimeMS: 70, History: dataset.HistoryRemoved}, "mooncake_trace", `
{"session_id":"a","messages":[{"role":"system","content":"Be <brief>."},{"role":"user","content":"Hi"}],"output_length":4}
{"session_id":"a","messages":[{"role":"system","content":"Be <brief>."},{"role":"user","content":"And?"}],"output_length":8,"delay":70}
{"session_id":"b","messages":[{"role":"user","content":"Ho"}],"output_length":4}
`, "0"},
		{dataset.ConversationFacts{ThinkTime: none, History: dataset.HistoryLive}, "multi_turn", `
{"session_id":"a","turns":[{"role":"system","text":"Be <brief>."},{"role":"user","text":"Hi","output_length":4},{"role":"user","text":"And?","output_length":8}]}
{"session_id":"b","turns":[{"role":"user","text":"Ho","output_length":4}]}
`, "0"},
	} {
		dir := t.TempDir()
		all, err := parse("f", []byte(two))
		if err != nil {
			t.Fatal(err)
		}
		lengths := [][]int64{{11, 12}, {13}}
		if err := write(dir, all, lengths, c.facts, dataset.Header{Kind: dataset.Conversations}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, dataset.RequestsFile))
		if err != nil || string(got) != strings.TrimPrefix(c.requests, "\n") {
			t.Errorf("%s, %v", got, err)
		}
		h, err := dataset.ReadHeader(dir)
		var facts dataset.ConversationFacts
		if err != nil || json.Unmarshal(h.Facts, &facts) != nil || h.Format != c.format || h.Requests != 3 || facts.Dependent != 1 || c.capped != string(rune('0'+facts.Capped)) {
			t.Errorf("%+v, %+v, %v", h, facts, err)
		}
		plan, err := dataset.ReadPlan(dir)
		if err != nil || len(plan) != 3 || plan[1].Conversation != "a" || plan[1].Turn != 1 || plan[1].OutputTokens != 8 {
			t.Errorf("%+v, %v", plan, err)
		}
		// With live replies only a first prompt is known.
		if known := plan[1].PromptTokens != nil; known != (c.facts.History == dataset.HistoryRemoved) || *plan[2].PromptTokens != 13 {
			t.Errorf("%+v", plan)
		}
		again, err := dataset.ReadConversations(dir)
		if err != nil || len(again) != 2 || !reflect.DeepEqual(again[0].Turns[1].DependsOn, []int64{0}) {
			t.Errorf("%+v, %v", again, err)
		}
	}
}
