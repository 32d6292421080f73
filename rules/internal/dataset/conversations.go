package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"assay/rules/internal/jsonfile"
)

// ConversationsFile has a Conversation a line, in the order of the requests file:
// what the history of every turn can be rebuilt from.
const ConversationsFile = "conversations.jsonl"

// Conversation is what its user says, turn by turn, and the system turn before
// that, if there is one. What the assistant says is known when it was said.
type Conversation struct {
	ID     string `json:"id"`
	System string `json:"system,omitempty"`
	Turns  []Turn `json:"turns"`
}

// Turn is what the user says, and how the answer is asked for.
type Turn struct {
	Text      string `json:"text"`
	MaxTokens int64  `json:"max_tokens"`
	// DelayMS is the think time, from the end of the answer before.
	DelayMS int64 `json:"delay_ms,omitempty"`
	// DependsOn are earlier turns, from 0, without which the right answer cannot
	// be known.
	DependsOn []int64 `json:"depends_on,omitempty"`
}

// ConversationFacts are a header's facts of [Conversations].
type ConversationFacts struct {
	// ThinkTime is the policy: recorded, fixed or none; in ms. A cap of 0 is none.
	ThinkTime      string `json:"think_time"`
	ThinkTimeMS    int64  `json:"think_time_ms,omitempty"` // of the policy fixed
	ThinkTimeCapMS int64  `json:"think_time_cap_ms,omitempty"`
	// Capped counts the think times that the cap cut.
	Capped int64 `json:"capped,omitempty"`
	// History is live, or removed: then every turn is sent without those before it.
	History string `json:"history"`
	// Dependent counts the turns whose right answer depends on an earlier one.
	Dependent int64 `json:"dependent"`
	// Context says what the prompts were checked against; nil if nothing was.
	Context *ContextCheck `json:"context,omitempty"`
}

// The values of ConversationFacts.History.
const (
	HistoryLive    = "live"
	HistoryRemoved = "removed"
)

// ContextCheck tells how the prompts fit, as far as that is known before the load:
// with the bundle's own template and tokenizer, and with empty replies.
type ContextCheck struct {
	Bundle        string `json:"bundle"` // digest
	Context       int64  `json:"context"`
	LongestPrompt int64  `json:"longest_prompt"` // at least, in tokens
	LongestID     string `json:"longest_id"`
}

// WriteConversations writes the file into dir.
func WriteConversations(dir string, all []Conversation) error {
	var lines bytes.Buffer
	for _, c := range all {
		line, err := encode(c)
		if err != nil {
			return err
		}
		lines.Write(line)
	}
	return os.WriteFile(filepath.Join(dir, ConversationsFile), lines.Bytes(), 0o644)
}

// ReadConversations reads the file in dir; nil if there is none.
func ReadConversations(dir string) ([]Conversation, error) {
	data, err := os.ReadFile(filepath.Join(dir, ConversationsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Conversation
	n := 0
	for line := range bytes.Lines(data) {
		n++
		var c Conversation
		if err := jsonfile.Decode(line, &c); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", ConversationsFile, n, err)
		}
		all = append(all, c)
	}
	return all, nil
}
