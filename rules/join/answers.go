package join

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/family"
	"assay/rules/internal/history"
	"assay/rules/internal/ledger"
	"assay/rules/internal/rule"
	"assay/rules/validatefamily"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Roles of what answers are judged by.
const (
	criteriaRole   = "criteria"
	promptsRole    = "history_prompts"
	referencesRole = "history_references"
)

// checkAnswers: what answers are judged by is given as a whole.
func checkAnswers(v map[string]any) []schema.Problem {
	var problems []schema.Problem
	names := []string{"family", promptsRole, referencesRole}
	for _, name := range names {
		if v[name] == "" && slices.ContainsFunc(names, func(other string) bool { return v[other] != "" }) {
			problems = append(problems, schema.Problem{Attr: name, Message: fmt.Sprintf("`%s` is missing: answers are judged by a family's criteria, prompts and references together", name)})
		}
	}
	return problems
}

// judgedBy declares what answers are judged by, and returns the files' names by
// role; nil if there are none.
func judgedBy(c *rule.Context, t *graph.Target, a *action.Action) map[string]string {
	fam, ok := c.Dep(t, "family")
	if !ok {
		return nil
	}
	a.Deps = append(a.Deps, action.Dep{Role: criteriaRole, ID: fam.Label.String(), Path: family.CriteriaDir + "/criteria.json"})
	names := map[string]string{criteriaRole: "criteria of " + fam.Label.String()}
	for _, role := range []string{promptsRole, referencesRole} {
		c.Source(a, t, role)
		names[role], _ = t.File(role)
	}
	return names
}

// Answers says how the answers that depend on earlier turns were judged.
type Answers struct {
	Criteria   digest.Digest `json:"criteria"` // of the family's file
	References digest.Digest `json:"references"`
	// Judged answers have a reference for the very history that the server
	// received, or, in a run without histories, for the one that was removed.
	Judged  int `json:"judged"`
	Equal   int `json:"equal"`
	NearTie int `json:"near_tie"`
	Wrong   int `json:"wrong"`
	// OtherHistory counts answers to another history than the reference's: an
	// earlier reply was not the one that it was made with.
	OtherHistory int `json:"other_history"`
	// Unreferenced answers have no reference.
	Unreferenced int  `json:"unreferenced"`
	Passed       bool `json:"passed"`
}

// judge judges the answers of one sample by references.
type judge struct {
	Answers
	book    *validatefamily.Answers
	digests map[string]string // of the messages, by prompt
	removed bool
}

// referenceID names a turn among the references.
func referenceID(conversation string, turn int64) string {
	return fmt.Sprintf("%s/%d", conversation, turn)
}

// newJudge reads the references; nil if there are none.
func newJudge(run *action.Run, names map[string]string, removed bool) (*judge, error) {
	if names == nil {
		return nil, nil
	}
	files := map[string]validatefamily.File{}
	for role, name := range names {
		data, err := os.ReadFile(run.Input(role))
		if err != nil {
			return nil, err
		}
		files[role] = validatefamily.File{Name: name, Data: data}
	}
	book, err := validatefamily.ReadAnswers(files[criteriaRole], files[promptsRole], files[referencesRole])
	if err != nil {
		return nil, err
	}
	j := &judge{book: book, digests: map[string]string{}, removed: removed}
	j.Criteria, j.References = book.Criteria, digest.FromBytes(files[referencesRole].Data)
	for _, p := range book.Prompts() {
		var messages []history.Message
		for _, m := range p.Messages {
			role, _ := m["role"].(string)
			content, _ := m["content"].(string)
			messages = append(messages, history.Message{Role: role, Content: content})
		}
		if j.digests[p.ID], err = history.SHA256(messages); err != nil {
			return nil, fmt.Errorf("%s: prompt %q: %w", names[promptsRole], p.ID, err)
		}
	}
	return j, nil
}

// Judge implements history.Judge.
func (j *judge) Judge(conversation string, turn int64, prompt, answer string) (word, why string) {
	id := referenceID(conversation, turn)
	want, ok := j.digests[id]
	switch {
	case !ok:
		j.Unreferenced++
		return "", ""
	case want != prompt && !j.removed:
		j.OtherHistory++
		return "", ""
	}
	j.Judged++
	equal, parted, detail := j.book.Judge(id, answer)
	switch {
	case equal:
		j.Equal++
		return history.Equal, ""
	case parted:
		j.NearTie++
		return history.NearTie, detail
	}
	j.Wrong++
	return history.Wrong, detail
}

// End implements history.Judge: the criteria are for all answers together.
func (j *judge) End(found ledger.Found) {
	share := j.book.MaxDivergentShare() * float64(j.Judged)
	if float64(j.NearTie) > share {
		found(ledger.HistoryAnswers, ledger.Blocking, "", "%d of %d answers part from their references, and the criteria allow %.0f", j.NearTie, j.Judged, math.Floor(share))
	}
	if j.Judged == 0 {
		found(ledger.HistoryAnswers, ledger.Warning, "", "none could be judged: %d have no reference, %d have one for another history", j.Unreferenced, j.OtherHistory)
	}
	j.Passed = j.Judged > 0 && j.Wrong == 0 && float64(j.NearTie) <= share
}
