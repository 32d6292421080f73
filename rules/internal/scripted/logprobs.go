package scripted

import (
	"encoding/json"
	"unicode/utf8"

	"assay/rules/internal/openai"
)

// scored is a token with its made-up log-probability, in the form of a chat
// choice's logprobs.
type scored struct {
	Token       string  `json:"token"`
	Logprob     float64 `json:"logprob"`
	Bytes       []int   `json:"bytes"`
	TopLogprobs []any   `json:"top_logprobs"`
}

// score gives a token a log-probability that depends on its length alone.
func score(token string) scored {
	s := scored{Token: token, Logprob: -float64(len(token)) / 8, TopLogprobs: []any{}}
	for _, b := range []byte(token) {
		s.Bytes = append(s.Bytes, int(b))
	}
	return s
}

// scores are the log-probabilities since they were last asked for, in the form of
// the endpoint; nil if none are wanted.
func (c *call) scores() json.RawMessage {
	if !c.logprobs {
		return nil
	}
	var form any
	if c.Endpoint == string(openai.Chat) {
		form = map[string]any{"content": c.scored}
	} else {
		tokens, logprobs, offsets := []string{}, []float64{}, []int{}
		for _, s := range c.scored {
			offsets = append(offsets, c.offset)
			tokens, logprobs = append(tokens, s.Token), append(logprobs, s.Logprob)
			c.offset += utf8.RuneCountInString(s.Token)
		}
		form = map[string]any{"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": nil, "text_offset": offsets}
	}
	c.scored = nil
	data, _ := json.Marshal(form) // strings and numbers always encode
	return data
}
