// Package family is the rule that freezes family-owned data: what a family of
// models can do, how it is served, and how its answers are judged. Shared code
// consumes the result without knowing any model.
//
// The two parts are apart on purpose: serving/ goes into the keys of servers and
// measurements, criteria/ only into those of validation, so that editing a
// tolerance measures nothing again.
package family

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gowebpki/jcs"

	"assay/engine/action"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/rule"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Paths in the output.
const (
	ServingDir  = "serving"
	CriteriaDir = "criteria"
	// ServingFile is a Serving, below the output.
	ServingFile = ServingDir + "/family.json"
)

// Serving is the part of a family that servers and measurements depend on.
type Serving struct {
	Version int `json:"version"`
	// ID names the family.
	ID string `json:"id"`
	// Tasks are the capabilities, of the values in Tasks below.
	Tasks []string `json:"tasks"`
	// Generation are the sampling parameters of a request, in OpenAI's names.
	Generation json.RawMessage `json:"generation,omitempty"`
}

// Parameters are the sampling parameters as one line of JSON; empty if there are
// none.
func (s Serving) Parameters() string {
	var line bytes.Buffer
	if len(s.Generation) == 0 || json.Compact(&line, s.Generation) != nil {
		return "" // what was frozen is valid
	}
	return line.String()
}

// Tasks are the capabilities that shared code can dispatch on.
var Tasks = []string{"chat", "completions"}

// Has reports whether the family has the task.
func (s Serving) Has(task string) bool { return slices.Contains(s.Tasks, task) }

// Rule is the rule `family`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "family", Version: 1,
		Doc: "Family-owned data: capabilities, serving options, prompts and criteria.",
		Attrs: []schema.Attr{
			{Name: "id", Kind: schema.String, Required: true, Pattern: `[a-z0-9][a-z0-9._-]*`, PatternDoc: "lower-case letters, digits, '.', '_' and '-'", Doc: "The name of the family."},
			{Name: "tasks", Kind: schema.StringList, Required: true, Doc: "What its models can do: `chat`, `completions`. What is not listed is unsupported."},
			{Name: "serving", Kind: schema.File, Required: true, Doc: "JSON: `{\"generation\": {…}}`, the sampling parameters of every request in OpenAI's names."},
			{Name: "criteria", Kind: schema.File, Doc: "JSON: how answers are judged. Part of validation only."},
			{Name: "prompts", Kind: schema.File, Doc: "JSON lines: the prompts that validation sends."},
			{Name: "references", Kind: schema.File, Doc: "JSON lines: the answers to the prompts by an independent implementation."},
			{Name: "provenance", Kind: schema.File, Doc: "JSON: what the references were made from; its `model.sha256` is that of the file that is served."},
		},
		Check: func(v map[string]any) []schema.Problem {
			var problems []schema.Problem
			tasks := v["tasks"].([]string)
			if len(tasks) == 0 {
				problems = append(problems, schema.Problem{Attr: "tasks", Message: fmt.Sprintf("a family has at least one task; the tasks are %q", Tasks)})
			}
			for i, task := range tasks {
				if slices.Contains(tasks[:i], task) {
					problems = append(problems, schema.Problem{Attr: "tasks", Message: fmt.Sprintf("%q is there twice", task)})
				}
				if !slices.Contains(Tasks, task) {
					problems = append(problems, schema.Problem{Attr: "tasks", Message: fmt.Sprintf("%q is not a task; the tasks are %q", task, Tasks)})
				}
			}
			return problems
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	for _, attr := range []string{"serving", "criteria", "prompts", "references", "provenance"} {
		c.Source(a, t, attr)
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		return freeze(t, run)
	}
	return nil
}

func freeze(t *graph.Target, run *action.Run) error {
	s := Serving{Version: 1, ID: t.String("id"), Tasks: slices.Sorted(slices.Values(t.Strings("tasks")))}
	data, err := os.ReadFile(run.Input("serving"))
	if err != nil {
		return err
	}
	file, _ := t.File("serving")
	var declared struct {
		Generation json.RawMessage `json:"generation"`
	}
	if err := jsonfile.Decode(data, &declared); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if s.Generation, err = canonical(declared.Generation); err != nil {
		return fmt.Errorf("%s: generation: %w", file, err)
	}
	if err := jsonfile.Write(filepath.Join(run.Out, ServingFile), s); err != nil {
		return err
	}
	return errors.Join(freezeObject(t, run, "criteria", "criteria.json"), freezeObject(t, run, "provenance", "references.provenance.json"), freezeLines(t, run, "prompts"), freezeLines(t, run, "references"))
}

// freezeObject checks a file of one JSON object and keeps it unchanged: its digest
// is in verdicts.
func freezeObject(t *graph.Target, run *action.Run, attr, name string) error {
	file, ok := t.File(attr)
	if !ok {
		return nil
	}
	data, err := os.ReadFile(run.Input(attr))
	if err != nil {
		return err
	}
	var object map[string]json.RawMessage
	if err := jsonfile.Decode(data, &object); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return write(run, name, data)
}

// workloads are members of a request that a family may not set.
var workloads = []string{
	"model", "messages", "prompt", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "best_of",
}

// canonical checks sampling parameters, a JSON object, and puts them in one form
// (RFC 8785).
func canonical(generation json.RawMessage) (json.RawMessage, error) {
	if len(generation) == 0 {
		return nil, nil
	}
	var parameters map[string]json.RawMessage
	if err := json.Unmarshal(generation, &parameters); err != nil {
		return nil, fmt.Errorf("sampling parameters are an object: %w", err)
	}
	if len(parameters) == 0 {
		return nil, nil
	}
	var errs []error
	for _, name := range workloads {
		if _, ok := parameters[name]; ok {
			errs = append(errs, fmt.Errorf("%q is not a sampling parameter: the workload decides it", name))
		}
	}
	for name, value := range parameters {
		if string(value) == "null" {
			errs = append(errs, fmt.Errorf("%q is null; leave it out", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return jcs.Transform(generation)
}

// write puts a file beside the criteria.
func write(run *action.Run, name string, data []byte) error {
	path := filepath.Join(run.Out, CriteriaDir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// freezeLines checks a file of JSON lines and keeps it unchanged.
func freezeLines(t *graph.Target, run *action.Run, attr string) error {
	file, ok := t.File(attr)
	if !ok {
		return nil
	}
	data, err := os.ReadFile(run.Input(attr))
	if err != nil {
		return err
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		var object map[string]json.RawMessage
		if err := jsonfile.Decode(line, &object); err != nil {
			return fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	return write(run, attr+".jsonl", data)
}
