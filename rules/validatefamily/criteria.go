package validatefamily

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/rules/internal/jsonfile"
)

// criteriaRole is the role of the family's criteria among the inputs.
const criteriaRole = "criteria"

// Names of the family's files, below its criteria.
const (
	criteriaFile   = "criteria.json"
	promptsFile    = "prompts.jsonl"
	referencesFile = "references.jsonl"
)

// Criteria is criteria.json.
type Criteria struct {
	Version int    `json:"version"`
	Greedy  Greedy `json:"greedy"`
	Basis   string `json:"basis,omitempty"` // how the numbers were chosen
}

// Greedy says how greedy answers may differ from their references. An answer may
// part from its reference only where the reference itself was nearly undecided,
// and only in a share of the prompts.
type Greedy struct {
	// NearTie is the largest difference of log-probabilities between the
	// reference's token and its rival that counts as undecided.
	NearTie float64 `json:"near_tie_logprob"`
	// MaxDivergentShare is the largest share of prompts that may part from their
	// references in that way, 0 to 1.
	MaxDivergentShare float64 `json:"max_divergent_share"`
}

// Prompt is a line of prompts.jsonl.
type Prompt struct {
	ID        string           `json:"id"`
	Task      string           `json:"task"`
	Messages  []map[string]any `json:"messages,omitempty"`
	Prompt    string           `json:"prompt,omitempty"`
	MaxTokens int64            `json:"max_tokens"`
}

// Reference is a line of references.jsonl: a greedy answer made by another
// implementation from the same weights, with what it took to choose each token.
type Reference struct {
	ID           string       `json:"id"`
	Task         string       `json:"task"`
	PromptTokens PromptTokens `json:"prompt_tokens"`
	Tokens       []int64      `json:"tokens"`
	Text         string       `json:"text"`
	FinishReason string       `json:"finish_reason"`
	Top          []Step       `json:"top"`
}

// PromptTokens identifies the prompt as the model saw it.
type PromptTokens struct {
	Count  int64  `json:"count"`
	SHA256 string `json:"sha256"`
}

// Step is the choice of one token.
type Step struct {
	LogProb float64 `json:"logprob"` // natural logarithm
	// End is the length of the text up to and with this token, in bytes of UTF-8.
	End    int     `json:"end"`
	Rivals []Rival `json:"rivals"` // the next best, best first
}

// Rival is a token that was not chosen. One that would have ended the answer, or
// that starts inside a character, has no text; one that ends inside a character
// has the text up to it.
type Rival struct {
	Token   int64   `json:"token"`
	LogProb float64 `json:"logprob"`
	Text    string  `json:"text"`
}

// rulebook is what a family judges by.
type rulebook struct {
	criteria   Criteria
	prompts    []Prompt
	references map[string]Reference
	ends       map[int64]bool           // tokens that end an answer
	digests    map[string]digest.Digest // by file
}

// readRulebook reads the family's files and reports all that is wrong in them.
func readRulebook(dir string) (*rulebook, error) {
	b := &rulebook{references: map[string]Reference{}, ends: map[int64]bool{}, digests: map[string]digest.Digest{}}
	var errs []error
	for _, name := range []string{criteriaFile, promptsFile, referencesFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		b.digests[name] = digest.FromBytes(data)
		switch name {
		case criteriaFile:
			if err := jsonfile.Decode(data, &b.criteria); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			} else if err := b.criteria.check(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		case promptsFile:
			errs = append(errs, lines(name, data, b.addPrompt))
		case referencesFile:
			errs = append(errs, lines(name, data, b.addReference))
		}
	}
	for _, p := range b.prompts {
		if _, ok := b.references[p.ID]; !ok {
			errs = append(errs, fmt.Errorf("%s: prompt %q has no reference", referencesFile, p.ID))
		}
	}
	return b, errors.Join(errs...)
}

func (c Criteria) check() error {
	var errs []error
	if c.Version != 1 {
		errs = append(errs, fmt.Errorf("version is %d; this build reads 1", c.Version))
	}
	if g := c.Greedy; g.NearTie < 0 || g.MaxDivergentShare < 0 || g.MaxDivergentShare > 1 {
		errs = append(errs, fmt.Errorf("greedy: near_tie_logprob %v must not be negative, max_divergent_share %v is 0 to 1", g.NearTie, g.MaxDivergentShare))
	}
	return errors.Join(errs...)
}

// lines calls add for each line; errors name file and line.
func lines(name string, data []byte, add func([]byte) error) error {
	var errs []error
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		if err := add(line); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (b *rulebook) addPrompt(line []byte) error {
	var p Prompt
	if err := jsonfile.Decode(line, &p); err != nil {
		return err
	}
	for _, other := range b.prompts {
		if other.ID == p.ID {
			return fmt.Errorf("prompt %q is there twice", p.ID)
		}
	}
	if p.ID == "" || p.MaxTokens < 1 || (len(p.Messages) > 0) != (p.Task == "chat") {
		return fmt.Errorf("prompt %q needs an id, max_tokens, and messages for the task chat or else a prompt", p.ID)
	}
	b.prompts = append(b.prompts, p)
	return nil
}

func (b *rulebook) addReference(line []byte) error {
	var r Reference
	if err := jsonfile.Decode(line, &r); err != nil {
		return err
	}
	if len(r.Top) != len(r.Tokens) {
		return fmt.Errorf("reference %q has %d tokens and %d steps", r.ID, len(r.Tokens), len(r.Top))
	}
	end := 0
	for i, s := range r.Top {
		if s.End < end || s.End > len(r.Text) {
			return fmt.Errorf("reference %q: step %d ends at byte %d, the one before at %d, the text at %d", r.ID, i+1, s.End, end, len(r.Text))
		}
		end = s.End
	}
	if n := len(r.Tokens); r.FinishReason == "stop" && n > 0 {
		b.ends[r.Tokens[n-1]] = true
	}
	b.references[r.ID] = r
	return nil
}

// judge compares a greedy answer with its reference. parted says that it took
// another way where the reference was nearly undecided, which the criteria may
// allow. ends are the tokens that end an answer.
func (g Greedy) judge(got string, ref Reference, ends map[int64]bool) (equal, parted bool, detail string) {
	if got == ref.Text {
		return true, false, ""
	}
	at := commonPrefix(got, ref.Text)
	last := ref.stepAt(at)
	// The texts may be alike a little beyond the point where the tokens part: "a"
	// against "and". So earlier steps come in question while their rival reaches
	// beyond the common part.
	for step := last; step >= 0 && step > last-4; step-- {
		for _, rival := range ref.Top[step].Rivals {
			margin := ref.Top[step].LogProb - rival.LogProb
			if margin > g.NearTie {
				break // rivals come best first
			}
			if ref.taken(got, step, rival, at, ends) {
				return false, true, fmt.Sprintf("parts at token %d, where the reference took %q over %q by a margin of %.4f only",
					step+1, ref.text(step), rival.Text, margin)
			}
		}
	}
	if last < 0 {
		return false, false, "the reference has no tokens"
	}
	best := "no rival is known"
	if s := ref.Top[last]; len(s.Rivals) > 0 {
		best = fmt.Sprintf("its closest rival, %q, is %.4f behind", s.Rivals[0].Text, s.LogProb-s.Rivals[0].LogProb)
	}
	return false, false, fmt.Sprintf("parts at token %d, where the reference was decided: %s", last+1, best)
}

// taken reports whether taking the rival at the step explains got, where at is the
// first byte that differs: got has the rival's text there, and the difference
// lies where the rival stands, or the reference's own token.
func (r Reference) taken(got string, step int, rival Rival, at int, ends map[int64]bool) bool {
	start := r.start(step)
	if start > at || !strings.HasPrefix(got[start:], rival.Text) {
		return false
	}
	if ends[rival.Token] {
		return len(got) == start
	}
	return at == start || at < max(r.Top[step].End, start+len(rival.Text))
}

// start is where the text of a step begins.
func (r Reference) start(step int) int {
	if step == 0 {
		return 0
	}
	return min(r.Top[step-1].End, len(r.Text))
}

// stepAt finds the step that made the byte at this index, or the last step for
// the end of the text; -1 if there are no steps.
func (r Reference) stepAt(index int) int {
	for i, s := range r.Top {
		if s.End > index {
			return i
		}
	}
	return len(r.Top) - 1
}

// text is what one step added.
func (r Reference) text(step int) string {
	return r.Text[r.start(step):max(r.start(step), min(r.Top[step].End, len(r.Text)))]
}

// commonPrefix counts the bytes in which two texts begin alike.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
