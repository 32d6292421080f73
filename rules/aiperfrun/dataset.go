package aiperfrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/internal/dataset"
	"assay/rules/internal/rule"
	"assay/rules/internal/testbed"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// datasetRole is the role of the data set among the inputs.
const datasetRole = "dataset"

// Dataset says of a sample what it sent.
type Dataset struct {
	Kind   string `json:"kind"`
	Format string `json:"format"` // AIPerf's name
	// Source is the file that the data set was made of, Sent the one that AIPerf
	// was given.
	Source digest.Digest `json:"source"`
	Sent   digest.Digest `json:"sent"`
	// Conversations counts the measured ones.
	Conversations       int64 `json:"conversations"`
	WarmupConversations int64 `json:"warmup_conversations,omitempty"`
	// Scheduled says that requests were sent at the times of the plan.
	Scheduled bool `json:"scheduled"`
}

// command is the part of AIPerf's command line that says what is sent.
func (d *Dataset) command() []string {
	args := []string{"--input-file", "{dataset}", "--custom-dataset-type", d.Format}
	if d.Scheduled {
		return append(args, "--fixed-schedule")
	}
	args = append(args, "--num-sessions", text(d.Conversations))
	if d.WarmupConversations > 0 {
		args = append(args, "--num-warmup-sessions", text(d.WarmupConversations))
	}
	return args
}

// presets are the defaults of what a data set says instead.
var presets = map[string]int64{"input_tokens": 32, "output_tokens": 16, "requests": 20, "warmup_requests": 3, "seed": 1}

// checkDataset refuses what a data set leaves no room for.
func checkDataset(v map[string]any) []schema.Problem {
	var problems []schema.Problem
	if v["dataset"] == "" {
		if v["warmup_conversations"] != int64(0) {
			problems = append(problems, schema.Problem{Attr: "warmup_conversations", Message: "there are conversations only in a data set", Hint: "give a `dataset`, or use `warmup_requests`"})
		}
		return problems
	}
	for _, name := range slices.Sorted(maps.Keys(presets)) {
		if v[name] != presets[name] {
			problems = append(problems, schema.Problem{Attr: name, Message: "the data set says what is sent", Hint: fmt.Sprintf("leave out `%s`, or leave out `dataset`", name)})
		}
	}
	if v["request_rate"] != 0.0 {
		problems = append(problems, schema.Problem{Attr: "request_rate", Message: "a data set is sent on its own schedule, or `concurrency` conversations at a time", Hint: "leave out `request_rate`"})
	}
	return problems
}

// checkTrace refuses what does not go with a recorded schedule, or with this one.
func checkTrace(c *rule.Context, t, data, served *graph.Target) []schema.Problem {
	var problems []schema.Problem
	add := func(attr, hint, format string, args ...any) {
		problems = append(problems, schema.Problem{Attr: attr, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if t.Int("concurrency") != 1 {
		add("concurrency", "leave out `concurrency`", "a trace is sent on its own schedule; a limit would hold requests back")
	}
	if t.Int("warmup_conversations") != 0 {
		add("warmup_conversations", "leave out `warmup_conversations`", "a trace has no conversations to spare for a warm-up")
	}
	if made, asked := data.String("endpoint"), t.String("endpoint"); made != asked {
		add("endpoint", "", "%s is for the endpoint %q, this run drives %q", data.Label, made, asked)
	}
	if b, ok := c.Dep(data, "bundle"); ok && b.Label != served.Label {
		add("dataset", "", "the prompts of %s are counted by the tokenizer of %s, this run serves %s", data.Label, b.Label, served.Label)
	}
	return problems
}

// checkConversations refuses what is no chat, or was checked against another model.
func checkConversations(c *rule.Context, t, data, served *graph.Target) []schema.Problem {
	var problems []schema.Problem
	if asked := t.String("endpoint"); asked != "chat" {
		problems = append(problems, schema.Problem{Attr: "endpoint", Message: fmt.Sprintf("%s has conversations, this run drives %q", data.Label, asked), Hint: "give `endpoint = \"chat\"`"})
	}
	if b, ok := c.Dep(data, "bundle"); ok && b.Label != served.Label {
		problems = append(problems, schema.Problem{Attr: "dataset", Message: fmt.Sprintf("the prompts of %s were checked against the template and context of %s, this run serves %s", data.Label, b.Label, served.Label)})
	}
	return problems
}

// checkLimits refuses what the server would: an answer longer than it gives.
func checkLimits(plan []dataset.Planned, most int64) error {
	n, first := 0, dataset.Planned{}
	for _, p := range plan {
		if p.OutputTokens > most {
			if n++; n == 1 {
				first = p
			}
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of the data set's %d requests ask for more than max_output_tokens = %d of the server, first turn %d of %q with %d; raise it there, or lower the data set's", n, len(plan), most, first.Turn, first.Conversation, first.OutputTokens)
}

// prepare makes the data set ready for the server of bed and puts its plan into
// the sample. It returns the workload with what the plan says.
func (s sampler) prepare(run *action.Run, bed *testbed.Testbed) (Workload, string, error) {
	in, w := run.Input(datasetRole), s.workload
	h, err := dataset.ReadHeader(in)
	if err != nil {
		return w, "", err
	}
	plan, err := dataset.ReadPlan(in)
	if err != nil {
		return w, "", err
	}
	if err := checkLimits(plan, int64(bed.Spec.MaxOutput)); err != nil {
		return w, "", err
	}
	if h.Endpoint != w.Endpoint {
		return w, "", fmt.Errorf("the data set is for the endpoint %s, this run drives %s", h.Endpoint, w.Endpoint)
	}
	requests, err := os.ReadFile(filepath.Join(in, dataset.RequestsFile))
	if err != nil {
		return w, "", err
	}
	members, err := s.members(bed)
	if err != nil {
		return w, "", err
	}
	if requests, err = dataset.Fill(requests, members); err != nil {
		return w, "", err
	}
	if requests, err = spare(requests, plan, w.Dataset.WarmupConversations, w.Concurrency); err != nil {
		return w, "", err
	}
	d := *w.Dataset
	d.Kind, d.Format, d.Source, d.Sent, d.Scheduled = h.Kind, h.Format, h.Source, digest.FromBytes(requests), h.Scheduled
	warmup := warmupTurns(plan, d.WarmupConversations)
	w.Warmup, w.Requests = warmup, h.Requests-warmup
	d.Conversations = h.Conversations - d.WarmupConversations
	if d.Conversations < 1 {
		return w, "", fmt.Errorf("warmup_conversations = %d leaves none of the data set's %d to measure", d.WarmupConversations, h.Conversations)
	}
	w.Dataset = &d
	if d.Scheduled {
		w.Concurrency = 0 // nothing holds a request back
	}
	path := filepath.Join(run.Tmp, dataset.RequestsFile)
	out := filepath.Join(run.Out, DatasetDir)
	if err := os.Mkdir(out, 0o755); err != nil {
		return w, "", err
	}
	return w, path, errors.Join(
		os.WriteFile(path, requests, 0o644),
		keep(in, out, dataset.HeaderFile, dataset.PlanFile, dataset.ConversationsFile),
	)
}

// members are those of a body that only the server and its family decide.
func (s sampler) members(bed *testbed.Testbed) (map[string]json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if parameters := bed.Family.Parameters(); parameters != "" {
		if err := json.Unmarshal([]byte(parameters), &members); err != nil {
			return nil, fmt.Errorf("the family's sampling parameters: %w", err)
		}
	}
	model, err := json.Marshal(bed.Spec.Model)
	if err != nil {
		return nil, err
	}
	members["model"] = model
	if s.workload.Streaming {
		members["stream"], members["stream_options"] = json.RawMessage("true"), json.RawMessage(`{"include_usage":true}`)
	}
	return members, nil
}

// spareID is the conversation that is drawn and never sent.
const spareID = "assay.drawn-and-not-sent"

// spare puts a conversation behind those of the warm-up that AIPerf draws and never
// sends. AIPerf 0.13.0 draws the next conversation as soon as it sends the first
// turn of one, unless that is the last request of the phase; what it has drawn at
// the end of the warm-up is lost, and without a spare one the first measured
// conversation would be, and a conversation of the warm-up be sent once more.
func spare(requests []byte, plan []dataset.Planned, warmup, concurrency int64) ([]byte, error) {
	turns := map[string]int{}
	var order []string
	for _, p := range plan {
		if turns[p.Conversation]++; turns[p.Conversation] == 1 {
			order = append(order, p.Conversation)
		}
	}
	if _, ok := turns[spareID]; ok {
		return nil, fmt.Errorf("the data set has a conversation %q, a name that is needed here", spareID)
	}
	if warmup == 0 || warmup >= int64(len(order)) {
		return requests, nil
	}
	last := order[warmup-1]
	if turns[last] == 1 {
		earlier := slices.ContainsFunc(order[:warmup], func(id string) bool { return turns[id] > 1 })
		if earlier && concurrency > 1 {
			return nil, fmt.Errorf("conversation %q, the last of the warm-up, has one turn: with concurrency = %d it depends on timing whether AIPerf then loses the next one; end the warm-up with a conversation of several turns", last, concurrency)
		}
		return requests, nil
	}
	var out bytes.Buffer
	put := false
	for line := range bytes.Lines(requests) {
		var row map[string]json.RawMessage
		var id string
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(row["session_id"], &id); err != nil {
			return nil, err
		}
		if !put && !slices.Contains(order[:warmup], id) {
			row["session_id"] = json.RawMessage(`"` + spareID + `"`)
			extra, err := json.Marshal(row)
			if err != nil {
				return nil, err
			}
			out.Write(append(extra, '\n'))
			put = true
		}
		out.Write(line)
	}
	return out.Bytes(), nil
}

// warmupTurns counts the turns of the first n conversations of a plan.
func warmupTurns(plan []dataset.Planned, n int64) (turns int64) {
	seen := map[string]bool{}
	for _, p := range plan {
		if !seen[p.Conversation] && int64(len(seen)) == n {
			break
		}
		seen[p.Conversation] = true
		turns++
	}
	return turns
}
