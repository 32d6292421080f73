package client

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLogProbs(t *testing.T) {
	one := int64(1)
	for _, c := range []struct {
		name, choice string
		want         []TokenLogProb
	}{
		{"chat", `{"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}]}]}`,
			[]TokenLogProb{{LogProb{nil, "a", -0.5}, []LogProb{{nil, "a", -0.5}, {nil, "b", -1}}}}},
		{"with ids", `{"content": [{"id": 1, "token": "a", "logprob": -0.5, "top_logprobs": []}]}`, []TokenLogProb{{LogProb{&one, "a", -0.5}, []LogProb{}}}},
		{"completions", `{"tokens": ["a", "b"], "token_logprobs": [-0.5, -0.1], "top_logprobs": [{"c": -2, "a": -0.5}, {"b": -0.1}], "text_offset": [0, 1]}`,
			[]TokenLogProb{{LogProb{nil, "a", -0.5}, []LogProb{{nil, "a", -0.5}, {nil, "c", -2}}}, {LogProb{nil, "b", -0.1}, []LogProb{{nil, "b", -0.1}}}}},
		{"completions without alternatives", `{"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": null}`, []TokenLogProb{{LogProb{nil, "a", -0.5}, nil}}},
		{"completions with a gap", `{"tokens": ["a", "b"], "token_logprobs": [null, -0.1]}`, nil},
		{"none", `null`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &Answer{}
			data, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"text": "ab", "logprobs": json.RawMessage(c.choice)}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.take(data); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, a.LogProbs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIs(t *testing.T) {
	one := int64(1)
	for _, c := range []struct {
		l    LogProb
		want bool
	}{
		{LogProb{ID: &one, Token: "b"}, true}, {LogProb{Token: "a"}, true}, {LogProb{Token: "b"}, false},
	} {
		if got := c.l.Is(1, "a"); got != c.want {
			t.Errorf("%+v: %v", c.l, got)
		}
	}
	if (LogProb{}).Is(1, "") {
		t.Error("a token without text is told by its id alone")
	}
}
