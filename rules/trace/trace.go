// Package trace is the rule that prepares the replay of a production trace: which
// requests are sent when, with prompts of exactly the recorded lengths. All that is
// wrong with a trace is told here, before any server starts.
package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/bundle"
	"assay/rules/internal/dataset"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/rule"
	"assay/rules/internal/tokenizer"
	"assay/rules/internal/trace"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Roles of the inputs.
const (
	srcRole    = "src"
	bundleRole = "bundle"
)

// Rule is the rule `trace`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "trace", Version: 1,
		Doc: "Prepares the replay of a production trace: the recorded schedule, with made-up prompts of the recorded lengths.",
		Attrs: []schema.Attr{
			{Name: "src", Kind: schema.File, Required: true, Doc: "The trace, whole. Its unit is checked over all rows."},
			{Name: "licence", Kind: schema.String, Required: true, Doc: "The licence of the trace."},
			{Name: "format", Kind: schema.String, Required: true, Values: trace.Formats, Doc: "`mooncake` is JSON lines of `timestamp`, `input_length`, `output_length` and `hash_ids`; `azure` is CSV of `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`."},
			{Name: "unit", Kind: schema.String, Values: []string{"milliseconds", "seconds"}, Doc: "What `timestamp` counts, which no file says. A rate that cannot be right is refused. The times of `azure` are dates and have no unit."},
			{Name: "bundle", Kind: schema.Label, Required: true, Rules: []string{"bundle"}, Doc: "The bundle that will be served: its tokenizer counts the prompts, its context bounds them."},
			{Name: "endpoint", Kind: schema.String, Required: true, Values: []string{"chat", "completions"}, Doc: "The endpoint that the requests are for."},
			{Name: "template_tokens", Kind: schema.Int, Min: at(0), Max: at(1 << 16), Doc: "For `chat`: how many tokens the chat template puts around a message. They are part of the recorded length; 0 for not known, then the text alone is as long as recorded."},
			{Name: "from_seconds", Kind: schema.Float, Min: at(0), Max: at(1e7), Doc: "Leave out what came earlier than so long after the first row, in the trace's own time."},
			{Name: "to_seconds", Kind: schema.Float, Min: at(0), Max: at(1e7), Doc: "Leave out what came so long after the first row, or later; 0 for no limit."},
			{Name: "rows", Kind: schema.Int, Min: at(0), Max: at(1e7), Doc: "Replay so many rows at most, the first of that part; 0 for all."},
			{Name: "time_scale", Kind: schema.Float, Default: 1.0, Min: at(0.001), Max: at(1000), Doc: "How many times as fast as recorded: 2 sends the trace in half its time."},
			{Name: "input_scale", Kind: schema.Float, Default: 1.0, Min: at(1e-6), Max: at(1000), Doc: "The factor on the length of prompts, and of the blocks that they share."},
			{Name: "output_scale", Kind: schema.Float, Default: 1.0, Min: at(1e-6), Max: at(1000), Doc: "The factor on the length of answers."},
			{Name: "max_input_tokens", Kind: schema.Int, Min: at(0), Max: at(trace.MaxTokens), Doc: "The longest prompt after scaling; longer ones are cut to it and counted. 0 for no limit."},
			{Name: "max_output_tokens", Kind: schema.Int, Min: at(0), Max: at(trace.MaxTokens), Doc: "The longest answer after scaling; longer ones are cut to it and counted. 0 for no limit."},
			{Name: "ties", Kind: schema.String, Default: trace.Burst, Values: []string{trace.Burst, trace.Spread}, Doc: "Rows of one time: sent at once, or evenly up to the next time."},
			{Name: "inversions", Kind: schema.String, Default: trace.Refuse, Values: []string{trace.Refuse, trace.Sort}, Doc: "Rows that are not in the order of their times: refused, or sorted, those of one time in the order of the file."},
			{Name: "beyond_context", Kind: schema.String, Default: trace.Refuse, Values: []string{trace.Refuse, trace.Keep, trace.Drop}, Doc: "Rows that do not fit the context: refused; sent, to be `invalid`; or left out and counted."},
			{Name: "ignore_eos", Kind: schema.Bool, Doc: "Ask the engine to answer to the last token that is asked for (`ignore_eos`, which llama.cpp and vLLM know). Such lengths measure speed, natural ones service."},
			{Name: "seed", Kind: schema.Int, Default: int64(1), Min: at(0), Max: at(1<<53 - 1), Doc: "Seed of the made-up prompts."},
		},
		Check: check,
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

func check(v map[string]any) []schema.Problem {
	var problems []schema.Problem
	add := func(attr, message, hint string) {
		problems = append(problems, schema.Problem{Attr: attr, Message: message, Hint: hint})
	}
	switch azure := v["format"] == trace.Azure; {
	case azure && v["unit"] != "":
		add("unit", "the times of an Azure trace are dates, which have no unit", "leave out `unit`")
	case !azure && v["unit"] == "":
		add("unit", "no file says what its times count", `give "milliseconds" (Mooncake) or "seconds" (Bailian, BurstGPT)`)
	}
	if to, _ := v["to_seconds"].(float64); to > 0 && to <= v["from_seconds"].(float64) {
		add("to_seconds", fmt.Sprintf("%g is not behind from_seconds = %g: no row is left", to, v["from_seconds"]), "")
	}
	if v["endpoint"] != "chat" && v["template_tokens"] != int64(0) {
		add("template_tokens", "only chat has a template", "leave out `template_tokens`")
	}
	return problems
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	b, _ := c.Dep(t, "bundle")
	a.Deps = []action.Dep{{Role: bundleRole, ID: b.Label.String()}}
	c.Source(a, t, srcRole)
	fam, _ := c.Dep(b, "family")
	var problems []schema.Problem
	if endpoint := t.String("endpoint"); !slices.Contains(fam.Strings("tasks"), endpoint) {
		problems = append(problems, schema.Problem{Attr: "endpoint", Message: fmt.Sprintf("%q is unsupported: family %s has the tasks %q", endpoint, fam.Label, fam.Strings("tasks"))})
	}
	a.Run = func(ctx context.Context, run *action.Run) error { return prepare(t, run) }
	return problems
}

func prepare(t *graph.Target, run *action.Run) error {
	file, _ := t.File(srcRole)
	src, err := os.ReadFile(run.Input(srcRole))
	if err != nil {
		return err
	}
	var info bundle.Info
	if err := jsonfile.Read(filepath.Join(run.Input(bundleRole), bundle.InfoFile), &info); err != nil {
		return err
	}
	found, fault := words(filepath.Join(run.Input(bundleRole), bundle.File))
	plan, err := plan(t, path.Base(file), src, int64(info.Context), found.Around)
	if err := errors.Join(err, fault); err != nil {
		return err
	}
	facts, err := json.Marshal(plan.Facts)
	if err != nil {
		return err
	}
	requests, err := render(plan, trace.Words{List: found.List, Seed: t.Int("seed")})
	if err != nil {
		return err
	}
	n := int64(len(plan.Requests))
	return dataset.Write(run.Out, dataset.Header{
		Kind: dataset.Trace, Format: "mooncake_trace", Endpoint: t.String("endpoint"), Requests: n, Conversations: n, Scheduled: true,
		Source: digest.FromBytes(src), SourceLicence: t.String("licence"), Facts: facts,
	}, planned(plan), requests)
}

// plan reads the trace and scales it. Every fault of the rows is told at once.
func plan(t *graph.Target, name string, src []byte, window, around int64) (*trace.Plan, error) {
	unit := trace.Milliseconds
	if t.String("unit") == trace.Seconds.String() {
		unit = trace.Seconds
	}
	format := t.String("format")
	rows, err := trace.Read(bytes.NewReader(src), name, format, unit)
	if err != nil {
		return nil, err
	}
	if err := trace.Check(name, trace.Arrivals(rows), unit, format != trace.Azure); err != nil {
		return nil, err
	}
	template := &around
	if t.String("endpoint") == "chat" {
		if template = nil; t.Int("template_tokens") > 0 {
			n := t.Int("template_tokens")
			template = &n
		}
	}
	p, err := trace.New(name, rows, trace.Options{
		Ties: t.String("ties"), Inversions: t.String("inversions"), Beyond: t.String("beyond_context"),
		From: seconds(t.Float("from_seconds")), To: seconds(t.Float("to_seconds")), Rows: int(t.Int("rows")),
		TimeScale: t.Float("time_scale"), InputScale: t.Float("input_scale"), OutputScale: t.Float("output_scale"),
		MaxInput: t.Int("max_input_tokens"), MaxOutput: t.Int("max_output_tokens"),
		Context: window, Template: template,
	})
	if err != nil {
		return nil, err
	}
	f := &p.Facts
	f.Format, f.Licence, f.Unit, f.Endpoint, f.IgnoreEOS, f.Seed = format, t.String("licence"), t.String("unit"), t.String("endpoint"), t.Bool("ignore_eos"), t.Int("seed")
	return p, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// words finds the words of the bundle's tokenizer.
func words(path string) (tokenizer.Words, error) {
	f, b, err := bundle.Open(path)
	if err != nil {
		return tokenizer.Words{}, err
	}
	defer f.Close()
	r, err := b.Section(bundle.Tokenizer)
	if err != nil {
		return tokenizer.Words{}, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return tokenizer.Words{}, err
	}
	return tokenizer.FindWords(data)
}

// name is the conversation of a request: the line of its row.
func name(r trace.Request) string { return fmt.Sprintf("line-%d", r.Line) }

func planned(p *trace.Plan) []dataset.Planned {
	plan := make([]dataset.Planned, len(p.Requests))
	for i, r := range p.Requests {
		at := r.At.Nanoseconds()
		plan[i] = dataset.Planned{Conversation: name(r), AtNS: &at, OutputTokens: r.Output, TooLong: r.TooLong}
		if p.Facts.TemplateTokens != nil {
			plan[i].PromptTokens = &r.Input
		}
	}
	return plan
}

// body is what is sent, but for what only the server knows.
type body struct {
	Messages  []message `json:"messages,omitempty"`
	Prompt    string    `json:"prompt,omitempty"`
	MaxTokens int64     `json:"max_tokens"`
	IgnoreEOS bool      `json:"ignore_eos,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// render writes the requests file: verbatim bodies, so that AIPerf changes nothing.
func render(p *trace.Plan, w trace.Words) ([]byte, error) {
	var out bytes.Buffer
	var errs []error
	for _, r := range p.Requests {
		b := body{MaxTokens: r.Output, IgnoreEOS: p.Facts.IgnoreEOS}
		if text := w.Text(r); p.Facts.Endpoint == "chat" {
			b.Messages = []message{{"user", text}}
		} else {
			b.Prompt = text
		}
		payload, err := json.Marshal(b)
		errs = append(errs, err)
		fmt.Fprintf(&out, `{"session_id":%q,"timestamp":%s,"payload":%s}`+"\n", name(r), trace.Millis(r.At), payload)
	}
	return out.Bytes(), errors.Join(errs...)
}
