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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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
	Generation map[string]any `json:"generation"`
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
		},
		Check: func(v map[string]any) []schema.Problem {
			var problems []schema.Problem
			for _, task := range v["tasks"].([]string) {
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
	for _, attr := range []string{"serving", "criteria", "prompts"} {
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
		Generation map[string]any `json:"generation"`
	}
	if err := jsonfile.Decode(data, &declared); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	s.Generation = declared.Generation
	if err := jsonfile.Write(filepath.Join(run.Out, ServingFile), s); err != nil {
		return err
	}
	return errors.Join(freezeCriteria(t, run), freezePrompts(t, run))
}

func freezeCriteria(t *graph.Target, run *action.Run) error {
	file, ok := t.File("criteria")
	if !ok {
		return nil
	}
	data, err := os.ReadFile(run.Input("criteria"))
	if err != nil {
		return err
	}
	var criteria map[string]any
	if err := jsonfile.Decode(data, &criteria); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return jsonfile.Write(filepath.Join(run.Out, CriteriaDir, "criteria.json"), criteria)
}

func freezePrompts(t *graph.Target, run *action.Run) error {
	file, ok := t.File("prompts")
	if !ok {
		return nil
	}
	data, err := os.ReadFile(run.Input("prompts"))
	if err != nil {
		return err
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		var prompt map[string]any
		if err := jsonfile.Decode(line, &prompt); err != nil {
			return fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	path := filepath.Join(run.Out, CriteriaDir, "prompts.jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
