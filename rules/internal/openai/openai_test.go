package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var limits = Limits{OutputTokens: 64, PromptBytes: 1000}

func TestParseAccepts(t *testing.T) {
	for _, c := range []struct {
		name     string
		endpoint Endpoint
		body     string
		want     Request
		engine   string
	}{
		{"a plain chat", Chat, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			Request{Model: "m"}, `{"max_tokens":64,"messages":[{"role":"user","content":"hi"}]}`},
		{"what the server handles is taken out, the rest passes", Completions,
			`{"model":"m","prompt":"x","stream":true,"stream_options":{"include_usage":true},"n":1,"best_of":1,"temperature":0.50,"top_k":3,"logprobs":null,"echo":false,"max_tokens":7.0}`,
			Request{Model: "m", Stream: true, IncludeUsage: true}, `{"max_tokens":7,"prompt":"x","temperature":0.50,"top_k":3,"echo":false}`},
		{"the newer name of the limit", Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"max_completion_tokens":64}`,
			Request{Model: "m"}, `{"max_tokens":64,"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`},
		{"both names agree", Completions, `{"model":"m","prompt":["x"],"max_tokens":3,"max_completion_tokens":3,"stream":false,"tools":[]}`,
			Request{Model: "m"}, `{"max_tokens":3,"prompt":["x"],"tools":[]}`},
		{"a picture and log-probabilities", Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,"}}]}],"logprobs":true}`,
			Request{Model: "m", Logprobs: true, Parts: []Part{{"image_url", "messages[0].content[1]"}}},
			`{"max_tokens":64,"logprobs":true,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}`},
		{"the chosen token's log-probability alone", Completions, `{"model":"m","prompt":"x","logprobs":0}`,
			Request{Model: "m", Logprobs: true}, `{"max_tokens":64,"prompt":"x","logprobs":0}`},
		{"token ids", Completions, `{"model":"m","prompt":[1,2,3]}`, Request{Model: "m"}, `{"max_tokens":64,"prompt":[1,2,3]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, fail := Parse(c.endpoint, []byte(c.body), limits)
			if fail != nil {
				t.Fatal(fail)
			}
			var want map[string]json.RawMessage
			if err := json.Unmarshal([]byte(c.engine), &want); err != nil {
				t.Fatal(err)
			}
			c.want.Body = want
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	chat := func(more string) string {
		return `{"model":"m","messages":[{"role":"user","content":"hi"}],` + more + `}`
	}
	for _, c := range []struct {
		endpoint    Endpoint
		body, param string
	}{
		{Chat, ``, ""},
		{Chat, `[]`, ""},
		{Chat, `{} {}`, ""},
		{Chat, "{\"model\":\"\xff\"}", ""},
		{Chat, `{"messages":[{"role":"user"}]}`, "model"},
		{Chat, `{"model":7}`, "model"},
		{Chat, `{"model":"m"}`, "messages"},
		{Chat, `{"model":"m","messages":"hi"}`, "messages"},
		{Chat, `{"model":"m","messages":[null]}`, "messages[0].role"},
		{Chat, `{"model":"m","messages":[{"role":"user"},{"role":3}]}`, "messages[1].role"},
		{Chat, `{"model":"m","messages":[{"role":"user","content":5}]}`, "messages[0].content"},
		{Chat, chat(`"stream":"yes"`), "stream"},
		{Chat, chat(`"stream_options":{}`), "stream_options"},
		{Chat, chat(`"stream":true,"stream_options":{"include_usage":1}`), "stream_options"},
		{Chat, chat(`"stream":true,"stream_options":{"continuous_usage_stats":true}`), "stream_options"},
		{Chat, chat(`"n":2`), "n"},
		{Chat, chat(`"n":"1"`), "n"},
		{Chat, chat(`"best_of":3`), "best_of"},
		{Chat, chat(`"logprobs":3`), "logprobs"},
		{Chat, chat(`"stream":true,"stream":false`), ""},
		{Chat, `{"model":"m","messages":[{"role":"robot","content":"hi"}]}`, "messages[0].role"},
		{Chat, `{"model":"m","messages":[{"role":"user","content":["hi"]}]}`, "messages[0].content"},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"text":"hi"}]}]}`, "messages[0].content[0].type"},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages[0].content[0].text"},
		{Chat, `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 600) + `"},{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("x", 600) + `"}]}]}`, "messages[1].content[0]"},
		{Chat, chat(`"seed":1` + strings.Repeat("0", 400)), ""},
		{Chat, chat(`"metadata":{"a":1,"a":2}`), ""},
		{Chat, `{"model":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, ""},
		{Chat, chat(`"tools":[{"type":"function"}]`), "tools"},
		{Chat, chat(`"max_tokens":0`), "max_tokens"},
		{Chat, chat(`"max_tokens":1.5`), "max_tokens"},
		{Chat, chat(`"max_tokens":65`), "max_tokens"},
		{Chat, chat(`"max_tokens":1e300`), "max_tokens"},
		{Chat, chat(`"max_completion_tokens":true`), "max_completion_tokens"},
		{Chat, chat(`"max_tokens":2,"max_completion_tokens":3`), "max_completion_tokens"},
		{Completions, `{"model":"m"}`, "prompt"},
		{Completions, `{"model":"m","prompt":[]}`, "prompt"},
		{Completions, `{"model":"m","prompt":["a","b"]}`, "prompt"},
		{Completions, `{"model":"m","prompt":[[1],[2]]}`, "prompt"},
		{Completions, `{"model":"m","prompt":[1,-1]}`, "prompt"},
		{Completions, `{"model":"m","prompt":{}}`, "prompt"},
		{Completions, `{"model":"m","prompt":"x","echo":true}`, "echo"},
		{Completions, `{"model":"m","prompt":"x","logprobs":-1}`, "logprobs"},
		{Completions, `{"model":"m","prompt":"x","logprobs":true}`, "logprobs"},
		{Completions, `{"model":"m","prompt":"` + strings.Repeat("x", 1001) + `"}`, "prompt"},
	} {
		_, fail := Parse(c.endpoint, []byte(c.body), limits)
		if fail == nil {
			t.Errorf("%s %s: accepted", c.endpoint, c.body)
			continue
		}
		param := ""
		if fail.Param != nil {
			param = *fail.Param
		}
		if param != c.param || fail.Message == "" || fail.Type != InvalidRequest || fail.Code == "" {
			t.Errorf("%s %s: got %q %+v, want param %q", c.endpoint, c.body, param, fail, c.param)
		}
	}
}

func TestResponsesOnTheWire(t *testing.T) {
	chat := Answer{Chat, "r1", "m", time.Unix(5, 0)}
	text := Answer{Completions, "r1", "m", time.Unix(5, 0)}
	n := func(v int64) *int64 { return &v }
	opening, _ := chat.Opening()
	for _, c := range []struct {
		got  Response
		want string
	}{
		{chat.Whole("a", "stop", nil, NewUsage(n(3), n(1), n(0))),
			`{"id":"chatcmpl-r1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}}`},
		{opening, `{"id":"chatcmpl-r1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`},
		{chat.Increment("a", nil), `{"id":"chatcmpl-r1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`},
		{text.Increment("", json.RawMessage(`{"tokens":["a"]}`)), `{"id":"cmpl-r1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"","logprobs":{"tokens":["a"]},"finish_reason":null}]}`},
		{chat.Finish("stop"), `{"id":"chatcmpl-r1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`},
		{chat.Counts(NewUsage(n(2), n(1), nil)), `{"id":"chatcmpl-r1","object":"chat.completion.chunk","created":5,"model":"m","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}`},
		{text.Whole("", "length", nil, NewUsage(nil, n(1), n(1))), `{"id":"cmpl-r1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"","finish_reason":"length"}]}`},
		{text.Increment("a", nil), `{"id":"cmpl-r1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"a","finish_reason":null}]}`},
		{text.Finish("stop"), `{"id":"cmpl-r1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"","finish_reason":"stop"}]}`},
	} {
		got, err := json.Marshal(c.got)
		if err != nil || string(got) != c.want {
			t.Errorf("got  %s (%v)\nwant %s", got, err, c.want)
		}
	}
	if _, ok := text.Opening(); ok {
		t.Error("completions have no opening chunk")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`)
	f.Add(`{"model":"m","prompt":[[1,2]],"max_tokens":3}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, endpoint := range []Endpoint{Chat, Completions} {
			r, fail := Parse(endpoint, []byte(body), limits)
			if (r == nil) == (fail == nil) {
				t.Fatalf("request %v and error %v", r, fail)
			}
			if r == nil {
				continue
			}
			var again map[string]json.RawMessage
			if err := json.Unmarshal(r.JSON(), &again); err != nil || again["max_tokens"] == nil {
				t.Fatalf("%s, %v", r.JSON(), err)
			}
			if diff := cmp.Diff(r.Body, again); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// The same prompt has the same digest, in whatever JSON it comes, and another one
// another; it is the load generator's digest of what it sent.
func TestPromptSHA256(t *testing.T) {
	sum := func(endpoint Endpoint, body string) string {
		r, refusal := Parse(endpoint, []byte(body), Limits{OutputTokens: 8, PromptBytes: 1000})
		if refusal != nil {
			t.Fatalf("%s: %v", body, refusal)
		}
		return r.PromptSHA256()
	}
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	for _, c := range []struct {
		endpoint Endpoint
		body     string
		want     string
	}{
		{Chat, `{"model":"m","messages":[{"role":"user","content":"ü\n<"}]}`, hash(`[{"content":"ü\n<","role":"user"}]`)},
		{Chat, `{"messages": [ {"content":"\u00fc\u000a\u003c", "role":"user"} ], "model":"n", "temperature":1}`, hash(`[{"content":"ü\n<","role":"user"}]`)},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`, hash(`[{"content":[{"text":"a","type":"text"}],"role":"user"}]`)},
		{Completions, `{"model":"m","prompt":"\u00fc"}`, hash("ü")},
		{Completions, `{"model":"m","prompt":[1,2.0]}`, hash("[1,2]")},
		{Chat, `{"model":"m","messages":[{"role":"user","content":"a","weight":1e999}]}`, ""},
	} {
		if got := sum(c.endpoint, c.body); got != c.want {
			t.Errorf("%s: %s, want %s", c.body, got, c.want)
		}
	}
}
