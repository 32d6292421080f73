// Package conversations is the rule that prepares a data set of chats with
// several turns: it checks roles, order and length before anything is sent, and
// writes what the load generator reads.
package conversations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/internal/dataset"
	"assay/rules/internal/rule"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Roles of the inputs.
const (
	srcRole    = "src"
	bundleRole = "bundle"
	clientRole = "client"
)

// Policies for think times.
const (
	recorded = "recorded"
	fixed    = "fixed"
	none     = "none"
)

// Rule is the rule `conversations`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "conversations", Version: 1,
		Doc: "Prepares a data set of chats with several turns: roles, order and length are checked before anything is sent.",
		Attrs: []schema.Attr{
			{Name: "src", Kind: schema.File, Required: true, Doc: "JSON lines, a conversation each (docs/multiturn.md)."},
			{Name: "licence", Kind: schema.String, Required: true, Doc: "The licence of the data, such as `Apache-2.0`."},
			{Name: "bundle", Kind: schema.Label, Rules: []string{"bundle"}, Doc: "The bundle whose chat template and context the conversations must fit, as far as that is known before there are replies. Needs `client`."},
			{Name: "client", Kind: schema.Label, Rules: []string{"python_env"}, Doc: "The environment with AIPerf, whose libraries apply template and tokenizer."},
			{Name: "think_time", Kind: schema.String, Default: recorded, Values: []string{recorded, fixed, none},
				Doc: "How long a user waits after an answer: as the data set has it, `think_time_ms`, or not at all."},
			{Name: "think_time_ms", Kind: schema.Int, Min: at(0), Max: at(maxThinkMS), Doc: "The think time of `think_time = \"fixed\"`."},
			{Name: "think_time_cap_ms", Kind: schema.Int, Min: at(0), Max: at(maxThinkMS), Doc: "The longest think time; 0 for no cap."},
			{Name: "history", Kind: schema.String, Default: dataset.HistoryLive, Values: []string{dataset.HistoryLive, dataset.HistoryRemoved},
				Doc: "`live`: each turn is sent with all turns before it and their live replies. `removed`: alone, with the system turn; a counter-proof, for answers that must then be wrong."},
			{Name: "limit", Kind: schema.Int, Min: at(0), Max: at(1e6), Doc: "How many conversations to take, the first; 0 for all."},
		},
		Check: check,
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

func check(v map[string]any) []schema.Problem {
	var problems []schema.Problem
	add := func(attr, message string) {
		problems = append(problems, schema.Problem{Attr: attr, Message: message})
	}
	if (v["bundle"] != "") != (v["client"] != "") {
		add("client", "`bundle` and `client` go together: the one has the template and tokenizer, the other what applies them")
	}
	policy, ms := v["think_time"], v["think_time_ms"].(int64)
	if policy == fixed && ms == 0 {
		add("think_time_ms", "`think_time = \"fixed\"` needs `think_time_ms`; for no think time there is `think_time = \"none\"`")
	}
	if policy != fixed && ms != 0 {
		add("think_time_ms", "`think_time_ms` goes with `think_time = \"fixed\"`")
	}
	if policy == none && v["think_time_cap_ms"] != int64(0) {
		add("think_time_cap_ms", "there is nothing to cap with `think_time = \"none\"`")
	}
	return problems
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	c.Source(a, t, srcRole)
	for _, role := range []string{bundleRole, clientRole} {
		if dep, ok := c.Dep(t, role); ok {
			a.Deps = append(a.Deps, action.Dep{Role: role, ID: dep.Label.String()})
		}
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		return prepare(ctx, c.Host, t, run)
	}
	return nil
}

func prepare(ctx context.Context, host rule.Host, t *graph.Target, run *action.Run) error {
	file, _ := t.File(srcRole)
	data, err := os.ReadFile(run.Input(srcRole))
	if err != nil {
		return err
	}
	all, errs := parse(file, data)
	if limit := int(t.Int("limit")); limit > 0 && errs == nil {
		if len(all) < limit {
			return fmt.Errorf("%s: limit = %d, the file has %d conversations", file, limit, len(all))
		}
		all = all[:limit]
	}
	facts := dataset.ConversationFacts{
		ThinkTime: t.String("think_time"), ThinkTimeMS: t.Int("think_time_ms"), ThinkTimeCapMS: t.Int("think_time_cap_ms"), History: t.String("history"),
	}
	var lengths [][]int64 // of the prompts, at least; nil if not known
	if _, ok := t.LabelOf(bundleRole); ok && len(all) > 0 {
		// What can be read is measured even if other lines cannot: all is reported at once.
		var misfits error
		if facts.Context, lengths, misfits, err = fit(ctx, host, file, all, facts.History, run); err != nil {
			return errors.Join(errs, err)
		}
		errs = errors.Join(errs, misfits)
	}
	if errs != nil {
		return errs
	}
	return write(run.Out, all, lengths, facts, dataset.Header{
		Kind: dataset.Conversations, Endpoint: "chat", Conversations: int64(len(all)),
		Source: digest.FromBytes(data), SourceLicence: t.String("licence"),
	})
}

// messages are what turn n of a conversation is sent with, before there are
// replies: an empty one stands for each.
func messages(c dataset.Conversation, n int, history string) []message {
	var list []message
	if c.System != "" {
		list = append(list, message{Role: system, Content: c.System})
	}
	if history == dataset.HistoryLive {
		for _, earlier := range c.Turns[:n] {
			list = append(list, message{user, earlier.Text}, message{assistant, ""})
		}
	}
	return append(list, message{user, c.Turns[n].Text})
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// write writes the prepared data set.
func write(out string, all []located, lengths [][]int64, facts dataset.ConversationFacts, h dataset.Header) error {
	var plan []dataset.Planned
	var requests bytes.Buffer
	list := make([]dataset.Conversation, len(all))
	live := facts.History == dataset.HistoryLive
	for i, c := range all {
		for k := range c.Turns {
			think(&facts, k, &c.Turns[k])
			p := dataset.Planned{Conversation: c.ID, Turn: int64(k), OutputTokens: c.Turns[k].MaxTokens}
			if lengths != nil && (k == 0 || !live) { // no reply is in it
				p.PromptTokens = &lengths[i][k]
			}
			if len(c.Turns[k].DependsOn) > 0 {
				facts.Dependent++
			}
			plan = append(plan, p)
		}
		list[i] = c.Conversation
		rows := rowsAlone(c.Conversation)
		h.Format = "mooncake_trace"
		if live {
			rows, h.Format = []any{rowLive(c.Conversation)}, "multi_turn"
		}
		for _, row := range rows {
			if err := encode(&requests, row); err != nil {
				return err
			}
		}
	}
	h.Requests = int64(len(plan))
	var err error
	if h.Facts, err = json.Marshal(facts); err != nil {
		return err
	}
	return errors.Join(dataset.Write(out, h, plan, requests.Bytes()), dataset.WriteConversations(out, list))
}

// think applies the policy to the think time before turn n.
func think(facts *dataset.ConversationFacts, n int, t *dataset.Turn) {
	switch {
	case n == 0 || facts.ThinkTime == none:
		t.DelayMS = 0
	case facts.ThinkTime == fixed:
		t.DelayMS = facts.ThinkTimeMS
	}
	if most := facts.ThinkTimeCapMS; most > 0 && t.DelayMS > most {
		t.DelayMS = most
		facts.Capped++
	}
}

// turn is AIPerf's form of a turn.
type turn struct {
	Role         string `json:"role"`
	Text         string `json:"text"`
	Delay        int64  `json:"delay,omitempty"` // ms
	OutputLength int64  `json:"output_length,omitempty"`
}

// rowLive is a conversation as AIPerf's multi_turn has it: AIPerf adds the replies.
func rowLive(c dataset.Conversation) any {
	turns := []turn{}
	if c.System != "" {
		turns = append(turns, turn{Role: system, Text: c.System})
	}
	for _, t := range c.Turns {
		turns = append(turns, turn{user, t.Text, t.DelayMS, t.MaxTokens})
	}
	return struct {
		SessionID string `json:"session_id"`
		Turns     []turn `json:"turns"`
	}{c.ID, turns}
}

// rowsAlone are the turns of a conversation, each to be sent as it is: AIPerf adds
// nothing to messages that are written out.
func rowsAlone(c dataset.Conversation) (rows []any) {
	for n, t := range c.Turns {
		rows = append(rows, struct {
			SessionID    string    `json:"session_id"`
			Messages     []message `json:"messages"`
			OutputLength int64     `json:"output_length"`
			Delay        int64     `json:"delay,omitempty"`
		}{c.ID, messages(c, n, dataset.HistoryRemoved), t.MaxTokens, t.DelayMS})
	}
	return rows
}

func encode(to *bytes.Buffer, row any) error {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	return enc.Encode(row)
}
