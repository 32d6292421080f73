// Package validatefamily is the rule that judges a bundle by its family's own
// criteria: the very file that is served, behind the very server that the runs
// use. The verdict is bound to the bundle's digest and names the digests of the
// criteria, prompts and references it rests on.
//
// Nothing here knows a model: prompts, references and tolerances are the family's
// data, and tasks are dispatched by capability.
package validatefamily

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
	"assay/engine/action"
	"assay/rules/family"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/measured"
	"assay/rules/internal/rule"
	"assay/rules/internal/testbed"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Files of the output.
const (
	// VerdictFile is a Verdict.
	VerdictFile = "verdict.json"
	// QuestionsFile has a Question a line: each prompt with what the server said. A
	// sample's probes must get the same.
	QuestionsFile = "questions.jsonl"
)

// Outcome is the verdict on one case.
type Outcome string

const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	// Unsupported: the family or the engine does not have the capability.
	Unsupported Outcome = "unsupported"
	// Skipped: the target does not provide what the case needs.
	Skipped Outcome = "skipped"
)

// Verdict is verdict.json. It holds no durations, so that judging again gives the
// same bytes.
type Verdict struct {
	Version int  `json:"version"`
	Passed  bool `json:"passed"`
	// Bundle is what was judged, ServedFile the file that the engine loaded.
	Bundle     digest.Digest `json:"bundle"`
	ServedFile digest.Digest `json:"served_file"`
	Family     string        `json:"family"`
	// Criteria, Prompts and References are the digests of the family's files.
	Criteria   digest.Digest   `json:"criteria"`
	Prompts    digest.Digest   `json:"prompts"`
	References digest.Digest   `json:"references"`
	Counts     map[Outcome]int `json:"counts"`
	Cases      []Case          `json:"cases"`
}

// Case is one thing that was tried.
type Case struct {
	ID      string  `json:"id"`
	Kind    string  `json:"kind"` // greedy, stream, tokenizer, cancel, context
	Outcome Outcome `json:"outcome"`
	// Detail says what was compared and how it differs, for a person.
	Detail string `json:"detail,omitempty"`
	// Expected and Got are the texts of a comparison that did not come out equal.
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
}

// Answer is what the server said to a prompt, buffered.
type Answer struct {
	Text             string `json:"text"`
	PromptTokens     *int64 `json:"prompt_tokens,omitempty"`
	CompletionTokens *int64 `json:"completion_tokens,omitempty"`
	FinishReason     string `json:"finish_reason"`
}

// Question is a prompt with the answer that the validation got.
type Question struct {
	Prompt
	Answer Answer `json:"answer"`
}

// ReadQuestions reads the questions in a validation's output.
func ReadQuestions(dir string) ([]Question, error) {
	data, err := os.ReadFile(filepath.Join(dir, QuestionsFile))
	if err != nil {
		return nil, err
	}
	var questions []Question
	err = lines(QuestionsFile, data, func(line []byte) error {
		var q Question
		if len(line) == 0 {
			return nil // no prompt was answered
		}
		err := jsonfile.Decode(line, &q)
		questions = append(questions, q)
		return err
	})
	return questions, err
}

// clientRole is the role of the environment with the exported tokenizer's library.
const clientRole = "client"

// Rule is the rule `validate_family`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "validate_family", Version: 1,
		Doc: "Judges a bundle by its family's criteria, behind the server that the runs use. A gate: what requires it does not start unless it passed.",
		Attrs: []schema.Attr{
			{Name: "server", Kind: schema.Label, Required: true, Rules: []string{"serve"}, Doc: "The server whose bundle is judged."},
			{Name: "client", Kind: schema.Label, Rules: []string{"python_env"},
				Doc: "The environment that loads the exported tokenizer, AIPerf's. Without it the comparison with the engine's tokenizer is skipped, and counted as skipped."},
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	server, _ := c.Dep(t, "server")
	bundle, _ := c.Dep(server, "bundle")
	fam, _ := c.Dep(bundle, "family")
	a.Deps = append(testbed.Deps(c, server), action.Dep{Role: criteriaRole, ID: fam.Label.String(), Path: family.CriteriaDir})
	plan := testbed.NewPlan(c, server)
	client, withClient := c.Dep(t, "client")
	if withClient {
		a.Deps = append(a.Deps, action.Dep{Role: clientRole, ID: client.Label.String()})
		plan.Record[clientRole] = nil
	}
	a.Tools = map[string]string{"measured_path": measured.Key}
	a.Exclusive, a.Verdict = true, readVerdict

	var problems []schema.Problem
	for _, attr := range []string{"criteria", "prompts", "references"} {
		if _, ok := fam.File(attr); !ok {
			problems = append(problems, schema.Problem{Attr: "server", Message: fmt.Sprintf("family %s has no `%s`, so there is nothing to judge by", fam.Label, attr)})
		}
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		return validate(ctx, plan, withClient, run)
	}
	return problems
}

// readVerdict makes a verdict that did not pass a closed gate.
func readVerdict(tree cas.Ref, store *cas.Store) error {
	entry, err := store.Lookup(tree, VerdictFile)
	if err != nil {
		return err
	}
	data, err := store.Bytes(entry.Ref())
	if err != nil {
		return err
	}
	var v Verdict
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("%s: %w", VerdictFile, err)
	}
	if !v.Passed {
		return &action.GateError{Reason: v.String()}
	}
	return nil
}

// String shows a verdict to a person: the counts, and each case that failed.
func (v Verdict) String() string {
	text := fmt.Sprintf("%d passed, %d failed, %d unsupported, %d skipped; bundle %s, criteria %s",
		v.Counts[Pass], v.Counts[Fail], v.Counts[Unsupported], v.Counts[Skipped], v.Bundle, v.Criteria)
	for _, c := range v.Cases {
		if c.Outcome != Fail {
			continue
		}
		text += fmt.Sprintf("\n  %s %s: %s", c.Kind, c.ID, c.Detail)
		if c.Expected != "" || c.Got != "" {
			text += fmt.Sprintf("\n    expected %q\n    got      %q", c.Expected, c.Got)
		}
	}
	return text
}
