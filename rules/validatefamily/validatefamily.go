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
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
	"assay/engine/action"
	"assay/rules/family"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/measured"
	"assay/rules/internal/rule"
	"assay/rules/internal/testbed"
	"assay/rules/pythonenv"
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
	Version int `json:"version"`
	// Passed says that no case failed, and that the target left none out. Unjudged says
	// what it does not tell.
	Passed bool `json:"passed"`
	// Partial says that the target selects some cases: such a verdict opens no gate.
	Partial bool `json:"partial,omitempty"`
	// Bundle is what was judged, ServedFile the file that the engine loaded.
	Bundle     digest.Digest `json:"bundle"`
	ServedFile digest.Digest `json:"served_file"`
	Family     string        `json:"family"`
	// Criteria, Prompts, References and Provenance are the digests of the family's
	// files, CriteriaRevision is what the family calls the state of its criteria.
	Criteria         digest.Digest `json:"criteria"`
	CriteriaRevision string        `json:"criteria_revision,omitempty"`
	Prompts          digest.Digest `json:"prompts"`
	References       digest.Digest `json:"references"`
	Provenance       digest.Digest `json:"provenance"`
	// Environment and Packages are what the verdict was made in and with.
	Environment map[string]string `json:"environment"`
	Packages    []pythonenv.Wheel `json:"packages,omitempty"`
	Counts      map[Outcome]int   `json:"counts"`
	Cases       []Case            `json:"cases"`
}

// open says whether what was tried passed.
func (v Verdict) open() bool { return v.Counts[Fail] == 0 && v.Counts[Pass] > 0 }

// Case is one thing that was tried.
type Case struct {
	ID      string  `json:"id"`
	Kind    string  `json:"kind"` // greedy, logprob, stream, refused, native, cancel, context, tokenizer
	Outcome Outcome `json:"outcome"`
	// Detail says what was compared and how it differs, for a person.
	Detail string `json:"detail,omitempty"`
	// Prompt is what was asked: a text, or messages.
	Prompt json.RawMessage `json:"prompt,omitempty"`
	// Expected and Got are the texts that were compared.
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
	// Distance is how far log-probabilities are from the reference's.
	Distance *Distance `json:"distance,omitempty"`
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
		Name: "validate_family", Version: 2,
		Doc: "Judges a bundle by its family's criteria, behind the server that the runs use. A gate: what requires it does not start unless it passed.",
		Attrs: []schema.Attr{
			{Name: "server", Kind: schema.Label, Required: true, Rules: []string{"serve"}, Doc: "The server whose bundle is judged."},
			{Name: "client", Kind: schema.Label, Rules: []string{"python_env"},
				Doc: "The environment that loads the exported tokenizer, AIPerf's. Without it the comparison with the engine's tokenizer is skipped, and counted as skipped."},
			{Name: "cases", Kind: schema.StringList, Doc: "Only these are tried: kinds of cases (`greedy`, `logprob`, `stream`, `refused`, `native`, `cancel`, `context`, `tokenizer`) and ids of prompts. " +
				"The others are skipped, and counted as skipped. Such a verdict opens no gate."},
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
	for _, attr := range []string{"criteria", "prompts", "references", "provenance"} {
		if _, ok := fam.File(attr); !ok {
			problems = append(problems, schema.Problem{Attr: "server", Message: fmt.Sprintf("family %s has no `%s`, so there is nothing to judge by", fam.Label, attr)})
		}
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		return validate(ctx, plan, options{withClient, t.Strings("cases")}, run)
	}
	return problems
}

// ReadVerdict reads the verdict in a validation's output.
func ReadVerdict(tree cas.Ref, store *cas.Store) (Verdict, error) {
	entry, err := store.Lookup(tree, VerdictFile)
	if err != nil {
		return Verdict{}, err
	}
	data, err := store.Bytes(entry.Ref())
	if err != nil {
		return Verdict{}, err
	}
	var v Verdict
	if err := json.Unmarshal(data, &v); err != nil {
		return Verdict{}, fmt.Errorf("%s: %w", VerdictFile, err)
	}
	return v, nil
}

// readVerdict makes a verdict that did not pass a closed gate.
func readVerdict(tree cas.Ref, store *cas.Store) error {
	v, err := ReadVerdict(tree, store)
	if err == nil && !v.open() {
		return &action.GateError{Reason: v.String()}
	}
	return err
}

// Unjudged names what a verdict does not tell, since family, engine or target lack
// what these cases need: their kind, why, and how many. What was not selected is not
// among them.
func (v Verdict) Unjudged() []string {
	var order []string
	counts := map[string]int{}
	for _, c := range v.Cases {
		if c.Outcome != Unsupported && (c.Outcome != Skipped || c.Detail == notSelected) {
			continue
		}
		what := c.Kind + ": " + c.Detail
		if counts[what] == 0 {
			order = append(order, what)
		}
		counts[what]++
	}
	for i, what := range order {
		order[i] = fmt.Sprintf("%s (%d)", what, counts[what])
	}
	return order
}

// String shows a verdict to a person: the counts, what was not judged, and each case
// that failed or was not selected.
func (v Verdict) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d passed, %d failed, %d unsupported, %d skipped; bundle %s, criteria %s",
		v.Counts[Pass], v.Counts[Fail], v.Counts[Unsupported], v.Counts[Skipped], v.Bundle, v.Criteria)
	if v.CriteriaRevision != "" {
		fmt.Fprintf(&text, " (revision %s)", v.CriteriaRevision)
	}
	for _, what := range v.Unjudged() {
		fmt.Fprintf(&text, "\n  not judged: %s", what)
	}
	var skipped []string
	for _, c := range v.Cases {
		switch {
		case c.Outcome == Fail:
			fmt.Fprintf(&text, "\n  %s %s: %s", c.Kind, c.ID, c.Detail)
			if c.Expected != c.Got {
				text.WriteString(difference(c.Expected, c.Got))
			}
		case c.Outcome == Skipped && c.Detail == notSelected:
			skipped = append(skipped, c.Kind+" "+c.ID)
		}
	}
	if len(skipped) > 0 {
		fmt.Fprintf(&text, "\n  not selected: %s", strings.Join(skipped, ", "))
	}
	return text.String()
}

// Summary shows a verdict that passed: the counts, and the cases that judge several
// prompts together.
func (v Verdict) Summary() string {
	text := v.String()
	for _, c := range v.Cases {
		if c.Outcome == Pass && (c.ID == allPrompts || c.ID == divergentShare) {
			text += fmt.Sprintf("\n  %s: %s", c.Kind, c.Detail)
		}
	}
	return text
}

// shown is how much of two texts is shown before their first difference, in
// characters.
const shown = 40

// difference shows two texts from shortly before their first difference on, which
// it marks.
func difference(expected, got string) string {
	at := commonPrefix(expected, got)
	for at > 0 && (at < len(expected) && !utf8.RuneStart(expected[at]) || at < len(got) && !utf8.RuneStart(got[at])) {
		at--
	}
	from, before := at, ""
	for n := 0; from > 0 && n < shown; n++ {
		_, size := utf8.DecodeLastRuneInString(expected[:from])
		from -= size
	}
	if from > 0 {
		before = "…"
	}
	mark := utf8.RuneCountInString(before + strconv.Quote(expected[from:at]))
	return fmt.Sprintf("\n    expected %s%q\n    got      %s%q\n%s^", before, expected[from:], before, got[from:], strings.Repeat(" ", 12+mark))
}
