package join

import (
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"

	"assay/engine/action"
	"assay/rules/aiperfrun"
	"assay/rules/internal/aiperf"
	"assay/rules/internal/dataset"
	"assay/rules/internal/history"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

// Chat is what a row of conversations has beside its figures: the measured
// requests of all samples, turn by turn.
type Chat struct {
	Facts dataset.ConversationFacts `json:"facts"`
	// Licence is that of the data.
	Licence string `json:"licence"`
	Turns   []Turn `json:"turns"`
}

// Turn has the requests that are the same turn of their conversations. Times and
// tokens are of those that completed.
type Turn struct {
	Turn     int64                `json:"turn"` // from 0
	Requests int                  `json:"requests"`
	Counts   map[ledger.Class]int `json:"counts"` // those that are not 0

	LatencyMS    metrics.Stats `json:"latency_ms"`
	TTFTMS       metrics.Stats `json:"ttft_ms"`
	TaskCallMS   metrics.Stats `json:"task_call_ms"`
	PromptTokens metrics.Stats `json:"prompt_tokens"`
	CachedTokens metrics.Stats `json:"cached_tokens"`

	// History counts the comparisons of what the server received with what it must
	// have been, Gaps the turns behind one without a whole reply.
	History map[ledger.Verdict]int `json:"history"`
	Gaps    int                    `json:"gaps"`
	// Answers counts the judged ones, by word.
	Answers map[string]int `json:"answers,omitempty"`
}

// chat gathers the conversations of a row, sample by sample.
type chat struct {
	Chat
	names map[string]string // files that answers are judged by, by role; nil for none
	run   *action.Run
	turns []*turnValues
}

type turnValues struct {
	Turn
	latency, ttft, task, prompt, cached []float64
}

// follow makes the inspector of a sample of conversations, nil for any other
// sample.
func (c *chat) follow(dir string, w *aiperfrun.Workload) (*follower, error) {
	if w.Dataset == nil || w.Dataset.Kind != dataset.Conversations {
		return nil, nil
	}
	dir = filepath.Join(dir, aiperfrun.DatasetDir)
	header, err := dataset.ReadHeader(dir)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(header.Facts, &c.Facts); err != nil {
		return nil, fmt.Errorf("%s: facts: %w", dataset.HeaderFile, err)
	}
	c.Licence = header.SourceLicence
	conversations, err := dataset.ReadConversations(dir)
	if err != nil {
		return nil, err
	}
	removed := c.Facts.History == dataset.HistoryRemoved
	f := &follower{chat: c}
	if f.judge, err = newJudge(c.run, c.names, removed); err != nil {
		return nil, err
	}
	f.Check = history.New(conversations, removed, nil)
	if f.judge != nil {
		f.Check = history.New(conversations, removed, f.judge)
	}
	return f, nil
}

// follower is the inspector of one sample.
type follower struct {
	*history.Check
	*chat
	judge *judge
}

// tap lets requests pass and keeps their replies.
func (f *follower) tap(requests iter.Seq2[*aiperf.Request, error]) iter.Seq2[*aiperf.Request, error] {
	return func(yield func(*aiperf.Request, error) bool) {
		for r, err := range requests {
			if err == nil {
				f.Reply(r)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Look implements ledger.Inspector.
func (f *follower) Look(e *ledger.Entry, found ledger.Found) {
	f.Check.Look(e, found)
	if e.Phase == ledger.Measured && e.Place.Conversation != "" && e.Place.Turn >= 0 {
		f.chat.add(e)
	}
}

// maxTurns bounds the table: a turn's number comes out of a file.
const maxTurns = 10_000

func (c *chat) add(e *ledger.Entry) {
	if e.Place.Turn >= maxTurns {
		return
	}
	for int64(len(c.turns)) <= e.Place.Turn {
		c.turns = append(c.turns, &turnValues{Turn: Turn{
			Turn: int64(len(c.turns)), Counts: map[ledger.Class]int{}, History: map[ledger.Verdict]int{}, Answers: map[string]int{},
		}})
	}
	t := c.turns[e.Place.Turn]
	t.Requests++
	t.Counts[e.Class]++
	if h := e.History; h != nil {
		t.History[h.Messages]++
		if h.Gap {
			t.Gaps++
		}
		if h.Answer != "" {
			t.Answers[h.Answer]++
		}
	}
	if e.Class != ledger.Completed {
		return
	}
	keep := func(to *[]float64, v *int64, unit float64) {
		if v != nil {
			*to = append(*to, float64(*v)/unit)
		}
	}
	keep(&t.latency, e.Client.LatencyNS, 1e6)
	if e.Client.Stream && e.Client.Incremental != ledger.Buffered {
		keep(&t.ttft, e.Client.TTFTNS, 1e6)
	}
	if e.Server != nil {
		keep(&t.task, e.Server.TaskCallNS, 1e6)
	}
	keep(&t.prompt, e.Tokens.Prompt, 1)
	keep(&t.cached, e.Tokens.Cached, 1)
}

// result is nil for a row without conversations.
func (c *chat) result() *Chat {
	if c.turns == nil {
		return nil
	}
	for _, t := range c.turns {
		t.LatencyMS, t.TTFTMS, t.TaskCallMS = metrics.Describe(t.latency), metrics.Describe(t.ttft), metrics.Describe(t.task)
		t.PromptTokens, t.CachedTokens = metrics.Describe(t.prompt), metrics.Describe(t.cached)
		c.Turns = append(c.Turns, t.Turn)
	}
	return &c.Chat
}
