package join

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"assay/engine/action"
	"assay/rules/internal/history"
	"assay/rules/internal/ledger"
)

const (
	criteria = `{"version":1,"greedy":{"near_tie_logprob":0.5,"max_divergent_share":0.5}}`
	prompts  = `{"id":"a/1","task":"chat","messages":[{"role":"user","content":"I am Ada."},{"role":"assistant","content":"Hi!"},{"role":"user","content":"Who am I?"}],"max_tokens":2}
`
	// " Ada" was nearly " Al", and nothing else.
	references = `{"id":"a/1","task":"chat","prompt_tokens":{"count":9,"sha256":"00"},"tokens":[1,2],"text":"You Ada","finish_reason":"length","top":[{"logprob":-0.1,"end":3,"rivals":[{"token":7,"logprob":-2.2,"text":"No"}]},{"logprob":-0.7,"end":7,"rivals":[{"token":8,"logprob":-0.8,"text":" Al"}]}]}
`
)

func open(t *testing.T, prompts, references string, removed bool) (*judge, error) {
	t.Helper()
	dir := t.TempDir()
	run := action.NewRun(func(role string) string { return filepath.Join(dir, role) }, "", "", nil)
	for role, data := range map[string]string{criteriaRole: criteria, promptsRole: prompts, referencesRole: references} {
		if err := os.WriteFile(filepath.Join(dir, role), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return newJudge(run, map[string]string{criteriaRole: "criteria", promptsRole: "prompts.jsonl", referencesRole: "references.jsonl"}, removed)
}

func messages(t *testing.T, texts ...string) string {
	t.Helper()
	var list []history.Message
	for i, text := range texts {
		list = append(list, history.Message{Role: []string{"user", "assistant"}[i%2], Content: text})
	}
	sum, err := history.SHA256(list)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// Answers are judged by the family's criteria, and only on the reference's own
// history; without histories, by what the reference says with them.
func TestAnswers(t *testing.T) {
	same := messages(t, "I am Ada.", "Hi!", "Who am I?")
	other := messages(t, "I am Ada.", "Hello!", "Who am I?")
	alone := messages(t, "Who am I?")
	for _, c := range []struct {
		name, prompt, answer string
		removed              bool
		turns                int // that are answered so
		want                 Answers
		found                string // severities
	}{
		{"the reference's", same, "You Ada", false, 1, Answers{Judged: 1, Equal: 1, Passed: true}, ""},
		{"near ties, more than the criteria allow", same, "You Alice", false, 2, Answers{Judged: 2, NearTie: 2}, "blocking"},
		{"wrong", same, "No idea", false, 1, Answers{Judged: 1, Wrong: 1}, ""}, // found by history.Check
		{"on another history", other, "You Ada", false, 1, Answers{OtherHistory: 1}, "warning"},
		{"without the history", alone, "No idea", true, 1, Answers{Judged: 1, Wrong: 1}, ""},
		{"a request without history where one was due", alone, "No idea", false, 1, Answers{OtherHistory: 1}, "warning"},
	} {
		j, err := open(t, prompts, references, c.removed)
		if err != nil {
			t.Fatal(err)
		}
		for range c.turns {
			word, why := j.Judge("a", 1, c.prompt, c.answer)
			if (word == history.Wrong) != (c.want.Wrong > 0) || (word == history.Wrong) != (why == `parts at token 1, where the reference was decided: its closest rival, "No", is 2.1000 behind`) {
				t.Errorf("%s: %q, %q", c.name, word, why)
			}
		}
		var found []string
		j.End(func(code ledger.Code, severity ledger.Severity, _, _ string, _ ...any) {
			found = append(found, string(severity))
		})
		c.want.Criteria, c.want.References = j.Criteria, j.References
		if j.Answers != c.want || strings.Join(found, " ") != c.found || j.Criteria == "" {
			t.Errorf("%s: %+v, found %q", c.name, j.Answers, found)
		}
	}
	j, err := open(t, prompts, references, false)
	if err != nil {
		t.Fatal(err)
	}
	if word, _ := j.Judge("a", 2, same, "x"); word != "" || j.Unreferenced != 1 {
		t.Errorf("%q, %+v", word, j.Answers)
	}
}

// Half of three answers are one: what is said to be allowed must not be what was too many.
func TestAllowedNearTiesAreWhole(t *testing.T) {
	j, err := open(t, prompts, references, false)
	if err != nil {
		t.Fatal(err)
	}
	same := messages(t, "I am Ada.", "Hi!", "Who am I?")
	for _, answer := range []string{"You Ada", "You Alice", "You Alice"} {
		j.Judge("a", 1, same, answer)
	}
	var said string
	j.End(func(_ ledger.Code, _ ledger.Severity, _, format string, args ...any) {
		said = fmt.Sprintf(format, args...)
	})
	if said != "2 of 3 answers part from their references, and the criteria allow 1" {
		t.Errorf("%q", said)
	}
}

// What is wrong in the files is told with its line.
func TestAnswersNamesThePlace(t *testing.T) {
	for _, c := range []struct{ prompts, references, want string }{
		{prompts + prompts, references, `prompts.jsonl:2: prompt "a/1" is there twice`},
		{prompts, "", `references.jsonl: prompt "a/1" has no reference`},
		{prompts, references + "{", "references.jsonl:2: "},
	} {
		if _, err := open(t, c.prompts, c.references, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// What answers are judged by is given as a whole or not at all.
func TestCheckAnswers(t *testing.T) {
	for given, want := range map[string]string{"": "", "family": "history_prompts history_references", "family history_prompts history_references": ""} {
		v := map[string]any{}
		for _, name := range []string{"family", promptsRole, referencesRole} {
			v[name] = ""
			if slices.Contains(strings.Fields(given), name) {
				v[name] = "x"
			}
		}
		var got []string
		for _, p := range checkAnswers(v) {
			got = append(got, p.Attr)
		}
		if fmt.Sprint(got) != fmt.Sprint(strings.Fields(want)) {
			t.Errorf("%q: %q", given, got)
		}
	}
}
