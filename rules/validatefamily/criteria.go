package validatefamily

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	provenanceFile = "references.provenance.json"
)

// Criteria is criteria.json.
type Criteria struct {
	Version int `json:"version"`
	// Revision is the family's own name for the state of its criteria.
	Revision string   `json:"revision,omitempty"`
	Greedy   Greedy   `json:"greedy"`
	LogProb  *LogProb `json:"logprob,omitempty"` // without it, log-probabilities are not judged
	Basis    string   `json:"basis,omitempty"`   // how the numbers were chosen
}

// Provenance is references.provenance.json: what the references were made from.
type Provenance struct {
	Version int   `json:"version"`
	Model   Model `json:"model"`
	// Script, Prompts and References are hex digests of the program that made the
	// references, and of the files that it read and wrote; empty is not checked.
	Script     string            `json:"script_sha256,omitempty"`
	Prompts    string            `json:"prompts_sha256,omitempty"`
	References string            `json:"references_sha256,omitempty"`
	DType      string            `json:"dtype,omitempty"`
	Packages   map[string]string `json:"packages,omitempty"` // versions
	Platform   string            `json:"platform,omitempty"`
	Date       string            `json:"date,omitempty"`
}

// Model is the checkpoint's file that the references were made from.
type Model struct {
	Source   string `json:"source,omitempty"`
	Revision string `json:"revision,omitempty"` // upstream, 40 hex digits
	SHA256   string `json:"sha256"`
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
	// Refused says that the server must refuse it with 400: the template has no such
	// role, say. Such a prompt has no reference.
	Refused bool `json:"refused,omitempty"`
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
	provenance Provenance
	prompts    []Prompt
	references map[string]Reference
	ends       map[int64]bool           // tokens that end an answer
	digests    map[string]digest.Digest // by file
}

// readRulebook reads the family's files and reports all that is wrong in them.
// tasks are the family's; a criterion that no answer to one of them could fail is
// wrong too.
func readRulebook(dir string, tasks []string) (*rulebook, error) {
	b := &rulebook{references: map[string]Reference{}, ends: map[int64]bool{}, digests: map[string]digest.Digest{}}
	var errs []error
	// Everything that an error is about names the file.
	note := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, name := range []string{criteriaFile, promptsFile, referencesFile, provenanceFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		b.digests[name] = digest.FromBytes(data)
		switch name {
		case criteriaFile:
			if err := jsonfile.Decode(data, &b.criteria); err != nil {
				note(name, err)
			} else {
				note(name, b.criteria.check())
			}
		case promptsFile:
			errs = append(errs, lines(name, data, b.addPrompt))
		case referencesFile:
			errs = append(errs, lines(name, data, b.addReference))
		case provenanceFile:
			if err := jsonfile.Decode(data, &b.provenance); err != nil {
				note(name, err)
			} else {
				note(name, b.checkProvenance())
			}
		}
	}
	for _, p := range b.prompts {
		switch r, ok := b.references[p.ID]; {
		case ok && p.Refused:
			note(referencesFile, fmt.Errorf("prompt %q is to be refused, and has a reference", p.ID))
		case p.Refused:
		case !ok:
			note(referencesFile, fmt.Errorf("prompt %q has no reference", p.ID))
		case r.Task != p.Task:
			note(referencesFile, fmt.Errorf("reference %q: task is %q, the prompt's is %q", r.ID, r.Task, p.Task))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return b, b.canFail(tasks)
}

// checkProvenance holds the provenance against the files beside it.
func (b *rulebook) checkProvenance() error {
	p := b.provenance
	var errs []error
	if p.Version != 1 {
		errs = append(errs, fmt.Errorf("version is %d; this build reads 1", p.Version))
	}
	if !hex64.MatchString(p.Model.SHA256) {
		errs = append(errs, fmt.Errorf("model.sha256 is %q, want 64 hexadecimal digits of the file that the references were made from", p.Model.SHA256))
	}
	if p.Model.Revision != "" && !hex40.MatchString(p.Model.Revision) {
		errs = append(errs, fmt.Errorf("model.revision is %q, want 40 hexadecimal digits", p.Model.Revision))
	}
	for _, f := range []struct{ field, said, name string }{
		{"prompts_sha256", p.Prompts, promptsFile}, {"references_sha256", p.References, referencesFile},
	} {
		if got := b.digests[f.name].Encoded(); f.said != "" && f.said != got {
			errs = append(errs, fmt.Errorf("%s is %s, and %s has %s: it was changed after the references were made", f.field, f.said, f.name, got))
		}
	}
	return errors.Join(errs...)
}

var (
	hex40 = regexp.MustCompile(`^[0-9a-f]{40}$`)
	hex64 = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// madeFrom says whether the references are those of a checkpoint: of the file that
// is served, and of the same upstream revision where both name one.
func (p Provenance) madeFrom(served digest.Digest, revision string) error {
	var errs []error
	if p.Model.SHA256 != served.Encoded() {
		errs = append(errs, fmt.Errorf("%s: model.sha256 is %s, the file that is served has %s: the references were made from another checkpoint", provenanceFile, p.Model.SHA256, served.Encoded()))
	}
	if p.Model.Revision != "" && revision != "" && p.Model.Revision != revision {
		errs = append(errs, fmt.Errorf("%s: model.revision is %s, the bundle's checkpoint is of %s: the references were made from another revision", provenanceFile, p.Model.Revision, revision))
	}
	return errors.Join(errs...)
}

// canFail refuses criteria that judge nothing: that let every answer part, that
// decide no token, or that are content with the log-probabilities of a server that
// knows nothing.
func (b *rulebook) canFail(tasks []string) error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s can never fail: %s", criteriaFile, field, fmt.Sprintf(format, args...)))
	}
	if b.criteria.Greedy.MaxDivergentShare >= 1 {
		refuse("greedy.max_divergent_share", "with %v every answer may part from its reference", b.criteria.Greedy.MaxDivergentShare)
	}
	for _, task := range tasks {
		if !slices.ContainsFunc(b.prompts, func(p Prompt) bool { return p.Task == task && !p.Refused }) {
			refuse("greedy", "the family has the task %q and %s no prompt for it", task, promptsFile)
		}
	}
	widest := 0.0
	for _, r := range b.references {
		for _, s := range r.Top {
			margin := math.Inf(1)
			if len(s.Rivals) > 0 {
				margin = s.LogProb - s.Rivals[0].LogProb
			}
			widest = max(widest, margin)
		}
	}
	if near := b.criteria.Greedy.NearTie; near >= widest {
		refuse("greedy.near_tie_logprob", "with %v no token of the references is decided, their closest rivals are at most %v behind", near, widest)
	}
	if l := b.criteria.LogProb; l != nil {
		var flat []pair
		for _, r := range b.references {
			for _, s := range r.Top {
				even := -math.Log(float64(1 + len(s.Rivals)))
				flat = append(flat, pair{even, s.LogProb})
				for _, rival := range s.Rivals {
					flat = append(flat, pair{even, rival.LogProb})
				}
			}
		}
		d := measure(flat, 0)
		if d.RMS <= l.MaxRMSError {
			refuse("logprob.max_rms_error", "with %v it accepts that all alternatives are equally likely, which is off by %.4f", l.MaxRMSError, d.RMS)
		}
		if l.MaxScaleError >= 1 {
			refuse("logprob.max_scale_error", "with %v it accepts that all alternatives are equally likely, a scale of 0", l.MaxScaleError)
		}
	}
	return errors.Join(errs...)
}

func (c Criteria) check() error {
	var errs []error
	if c.Version != 1 {
		errs = append(errs, fmt.Errorf("version is %d; this build reads 1", c.Version))
	}
	if g := c.Greedy; g.NearTie < 0 || g.MaxDivergentShare < 0 || g.MaxDivergentShare > 1 {
		errs = append(errs, fmt.Errorf("greedy: near_tie_logprob %v must not be negative, max_divergent_share %v is 0 to 1", g.NearTie, g.MaxDivergentShare))
	}
	if l := c.LogProb; l != nil && (l.MaxRMSError <= 0 || l.MaxScaleError <= 0) {
		errs = append(errs, fmt.Errorf("logprob: max_rms_error %v and max_scale_error %v must be positive", l.MaxRMSError, l.MaxScaleError))
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
		last := s.LogProb
		for _, rival := range s.Rivals {
			if rival.LogProb > last {
				return fmt.Errorf("reference %q: step %d: log-probability %v stands after %v; the token that was chosen is the likeliest, and rivals come best first", r.ID, i+1, rival.LogProb, last)
			}
			last = rival.LogProb
		}
	}
	if _, ok := b.references[r.ID]; ok {
		return fmt.Errorf("reference %q is there twice", r.ID)
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
