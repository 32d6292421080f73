package validatefamily

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// The files of a family that can judge.
const (
	sha          = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	goodCriteria = `{"version": 1, "revision": "r1", "greedy": {"near_tie_logprob": 0.25, "max_divergent_share": 0.5}, "logprob": {"max_rms_error": 0.2, "max_scale_error": 0.1}}`
	goodPrompts  = `{"id": "a", "task": "chat", "messages": [{"role": "user", "content": "?"}], "max_tokens": 2}
{"id": "b", "task": "completions", "prompt": "1, 2,", "max_tokens": 2}
`
	goodReferences = `{"id": "a", "task": "chat", "prompt_tokens": {"count": 1, "sha256": ""}, "tokens": [1], "text": "yes", "finish_reason": "length", "top": [{"logprob": -0.1, "end": 3, "rivals": [{"token": 2, "logprob": -3, "text": "no"}]}]}
{"id": "b", "task": "completions", "prompt_tokens": {"count": 1, "sha256": ""}, "tokens": [3], "text": " 3", "finish_reason": "length", "top": [{"logprob": -0.01, "end": 2, "rivals": [{"token": 4, "logprob": -5, "text": " 4"}]}]}
`
	goodProvenance = `{"version": 1, "model": {"sha256": "` + sha + `", "revision": "0123456789abcdef0123456789abcdef01234567"}}`
)

func TestRulebookRefuses(t *testing.T) {
	const json = "at byte"
	for _, c := range []struct {
		name, file, old, new string
		want                 string // with the file in front
	}{
		{"criteria are no JSON", criteriaFile, `{"version"`, `{version`, "criteria.json: " + json},
		{"criteria of another version", criteriaFile, `"version": 1`, `"version": 2`, "criteria.json: version is 2; this build reads 1"},
		{"an unknown criterion", criteriaFile, `"greedy"`, `"perplexity": 3, "greedy"`, `unknown field "perplexity"`},
		{"a negative tolerance", criteriaFile, "0.25", "-1", "criteria.json: greedy: near_tie_logprob -1 must not be negative"},
		{"a share above 1", criteriaFile, `share": 0.5`, `share": 1.5`, "max_divergent_share 1.5 is 0 to 1"},
		{"a tolerance of nothing", criteriaFile, `rms_error": 0.2`, `rms_error": 0`, "criteria.json: logprob: max_rms_error 0 and max_scale_error 0.1 must be positive"},
		{"every answer may part", criteriaFile, `share": 0.5`, `share": 1`, "criteria.json: greedy.max_divergent_share can never fail: with 1 every answer may part"},
		{"no token is decided", criteriaFile, "0.25", "5", "criteria.json: greedy.near_tie_logprob can never fail: with 5 no token of the references is decided, their closest rivals are at most 4.99 behind"},
		{"any log-probability is near enough", criteriaFile, `rms_error": 0.2`, `rms_error": 9`, "criteria.json: logprob.max_rms_error can never fail: with 9 it accepts that all alternatives are equally likely"},
		{"any scale is near enough", criteriaFile, `scale_error": 0.1`, `scale_error": 1`, "criteria.json: logprob.max_scale_error can never fail"},
		{"a task without prompts", promptsFile, `"task": "completions", "prompt"`, `"task": "infill", "prompt"`, `reference "b": task is "completions", the prompt's is "infill"`},
		{"a prompt twice", promptsFile, `"id": "b"`, `"id": "a"`, `prompts.jsonl:2: prompt "a" is there twice`},
		{"a prompt without limit", promptsFile, `"max_tokens": 2}`, `"max_tokens": 0}`, "prompts.jsonl:1: prompt"},
		{"a prompt without reference", promptsFile, `"id": "b"`, `"id": "c"`, `references.jsonl: prompt "c" has no reference`},
		{"a reference to what is refused", promptsFile, `"prompt": "1, 2,"`, `"refused": true, "prompt": "1, 2,"`, `references.jsonl: prompt "b" is to be refused, and has a reference`},
		{"a torn line", referencesFile, `"text": " 4"}]}]}`, `"text"`, "references.jsonl:2: " + json},
		{"a reference twice", referencesFile, `"id": "b"`, `"id": "a"`, `references.jsonl:2: reference "a" is there twice`},
		{"a likelier rival", referencesFile, `"logprob": -3`, `"logprob": -0.05`, `references.jsonl:1: reference "a": step 1: log-probability -0.05 stands after -0.1`},
		{"steps are missing", referencesFile, `"tokens": [3]`, `"tokens": [3, 4]`, `references.jsonl:2: reference "b" has 2 tokens and 1 steps`},
		{"a step beyond the text", referencesFile, `"end": 3`, `"end": 4`, `references.jsonl:1: reference "a": step 1 ends at byte 4`},
		{"provenance of another version", provenanceFile, `"version": 1`, `"version": 9`, "references.provenance.json: version is 9; this build reads 1"},
		{"provenance of no file", provenanceFile, sha, "b179", `references.provenance.json: model.sha256 is "b179", want 64`},
		{"a short revision", provenanceFile, "89abcdef01234567\"}", `"}`, "references.provenance.json: model.revision is "},
		{"a revision that is a number", provenanceFile, `"0123456789abcdef0123456789abcdef01234567"`, "7", "references.provenance.json: at byte"},
		{"references changed by hand", provenanceFile, `{"version"`, `{"references_sha256": "` + sha + `", "version"`, "references.provenance.json: references_sha256 is " + sha + ", and references.jsonl has "},
		{"prompts changed by hand", provenanceFile, `{"version"`, `{"prompts_sha256": "` + sha + `", "version"`, "references.provenance.json: prompts_sha256 is "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range map[string]string{criteriaFile: goodCriteria, promptsFile: goodPrompts, referencesFile: goodReferences, provenanceFile: goodProvenance} {
				if name == c.file {
					changed := strings.Replace(content, c.old, c.new, 1)
					if changed == content {
						t.Fatalf("%q is not in %s", c.old, name)
					}
					content = changed
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := readRulebook(dir, []string{"chat", "completions"})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), ".json") {
				t.Errorf("got %v\nwant an error with %q", err, c.want)
			}
		})
	}
}

func good(t *testing.T, tasks ...string) (*rulebook, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{criteriaFile: goodCriteria, promptsFile: goodPrompts, referencesFile: goodReferences, provenanceFile: goodProvenance} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return readRulebook(dir, tasks)
}

// The family's tasks must have prompts; prompts of other tasks hold nothing back.
func TestTasks(t *testing.T) {
	if _, err := good(t, "chat"); err != nil {
		t.Errorf("prompts for a task that the family does not have: %v", err)
	}
	if _, err := good(t, "chat", "infill"); err == nil || !strings.Contains(err.Error(), `greedy can never fail: the family has the task "infill" and prompts.jsonl no prompt for it`) {
		t.Error(err)
	}
}

func TestMadeFrom(t *testing.T) {
	b, err := good(t, "chat", "completions")
	if err != nil {
		t.Fatal(err)
	}
	p := b.provenance
	served := digest.NewDigestFromEncoded(digest.SHA256, sha)
	if err := p.madeFrom(served, p.Model.Revision); err != nil {
		t.Error(err)
	}
	if err := p.madeFrom(served, ""); err != nil {
		t.Errorf("a checkpoint that claims no revision: %v", err)
	}
	if err := p.madeFrom(digest.FromString("x"), ""); err == nil || !strings.Contains(err.Error(), "references.provenance.json: model.sha256 is "+sha) {
		t.Errorf("another file: %v", err)
	}
	if err := p.madeFrom(served, strings.Repeat("f", 40)); err == nil || !strings.Contains(err.Error(), "were made from another revision") {
		t.Errorf("another revision: %v", err)
	}
}

func TestCheckCases(t *testing.T) {
	b, err := good(t, "chat", "completions")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.checkCases([]string{"greedy", "a"}); err != nil {
		t.Error(err)
	}
	if err := b.checkCases([]string{"gredy"}); err == nil || !strings.Contains(err.Error(), `cases: "gredy" is neither a kind of case`) {
		t.Error(err)
	}
}

// What a verdict does not tell is said with it, each reason once; what was left out on
// purpose is named apart.
func TestUnjudged(t *testing.T) {
	v := Verdict{Counts: map[Outcome]int{Pass: 1, Unsupported: 2, Skipped: 2}, Cases: []Case{
		{ID: "a", Kind: kindGreedy, Outcome: Pass},
		{ID: "a", Kind: kindLogProb, Outcome: Unsupported, Detail: "the engine gives no log-probabilities"},
		{ID: "b", Kind: kindLogProb, Outcome: Unsupported, Detail: "the engine gives no log-probabilities"},
		{ID: "digits", Kind: kindTokenizer, Outcome: Skipped, Detail: "the target names no client environment"},
		{ID: "b", Kind: kindStream, Outcome: Skipped, Detail: notSelected},
	}}
	want := []string{"logprob: the engine gives no log-probabilities (2)", "tokenizer: the target names no client environment (1)"}
	if got := v.Unjudged(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := v.Summary(); !strings.Contains(got, "\n  not judged: "+want[0]+"\n") || !strings.Contains(got, "\n  not selected: stream b") {
		t.Error(got)
	}
}

// A prompt without an answer is no pass, if nothing else says so.
func TestNativeWithoutAnswer(t *testing.T) {
	b, err := good(t, "chat", "completions")
	if err != nil {
		t.Fatal(err)
	}
	records := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(records, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v := &validator{book: b, verdict: Verdict{Counts: map[Outcome]int{}}}
	v.add(Case{ID: "a", Kind: kindGreedy, Outcome: Fail})
	if err := v.native(records); err != nil {
		t.Fatal(err)
	}
	if cases := v.verdict.Cases; len(cases) != 2 || cases[1].ID != "b" || cases[1].Kind != kindNative || cases[1].Outcome != Fail {
		t.Errorf("%+v", cases)
	}
}
