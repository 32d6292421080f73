package client

import (
	"cmp"
	"slices"
)

// LogProb is a token with its log-probability, a natural logarithm.
type LogProb struct {
	ID    *int64  `json:"id"` // where the engine tells it
	Token string  `json:"token"`
	Value float64 `json:"logprob"`
}

// Is reports whether it is the token with this id or, where no id is told, with
// this text, which must not be empty.
func (l LogProb) Is(id int64, text string) bool {
	if l.ID != nil {
		return *l.ID == id
	}
	return text != "" && l.Token == text
}

// TokenLogProb is a token of an answer with the alternatives to it, itself among
// them.
type TokenLogProb struct {
	LogProb
	Top []LogProb `json:"top_logprobs"`
}

// logProbs has both forms in which servers give them: content is that of chat, and
// of llama.cpp everywhere; the other members are those of completions.
type logProbs struct {
	Content       []TokenLogProb       `json:"content"`
	Tokens        []string             `json:"tokens"`
	TokenLogProbs []*float64           `json:"token_logprobs"`
	TopLogProbs   []map[string]float64 `json:"top_logprobs"`
}

func (l *logProbs) tokens() []TokenLogProb {
	if l == nil {
		return nil
	}
	if l.Content != nil {
		return l.Content
	}
	var list []TokenLogProb
	for i, token := range l.Tokens {
		if i >= len(l.TokenLogProbs) || l.TokenLogProbs[i] == nil {
			return list // what follows cannot be told apart
		}
		t := TokenLogProb{LogProb: LogProb{Token: token, Value: *l.TokenLogProbs[i]}}
		if i < len(l.TopLogProbs) {
			for alternative, p := range l.TopLogProbs[i] {
				t.Top = append(t.Top, LogProb{Token: alternative, Value: p})
			}
			slices.SortFunc(t.Top, func(a, b LogProb) int {
				return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Token, b.Token))
			})
		}
		list = append(list, t)
	}
	return list
}
