package validatefamily

import (
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"assay/rules/internal/jsonfile"
)

// Answers judges greedy answers outside of a validation, by a family's criteria and
// by references that were made for other prompts than the family's.
type Answers struct {
	book *rulebook
	// Criteria is the digest of the family's file.
	Criteria digest.Digest
}

// File is a file and what it is called in errors.
type File struct {
	Name string
	Data []byte
}

// ReadAnswers reads files in the forms of criteria.json, prompts.jsonl and
// references.jsonl, and reports all that is wrong in them.
func ReadAnswers(criteria, prompts, references File) (*Answers, error) {
	b := &rulebook{references: map[string]Reference{}, ends: map[int64]bool{}}
	err := jsonfile.Decode(criteria.Data, &b.criteria)
	if err == nil {
		err = b.criteria.check()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", criteria.Name, err)
	}
	errs := []error{err, lines(prompts.Name, prompts.Data, b.addPrompt), lines(references.Name, references.Data, b.addReference)}
	for _, p := range b.prompts {
		if _, ok := b.references[p.ID]; !ok {
			errs = append(errs, fmt.Errorf("%s: prompt %q has no reference", references.Name, p.ID))
		}
	}
	return &Answers{b, digest.FromBytes(criteria.Data)}, errors.Join(errs...)
}

// Prompts are those that there is a reference for.
func (a *Answers) Prompts() []Prompt { return a.book.prompts }

// Judge compares an answer with the reference of a prompt. parted says that it took
// another way where the reference was nearly undecided.
func (a *Answers) Judge(id, text string) (equal, parted bool, detail string) {
	return a.book.criteria.Greedy.judge(text, a.book.references[id], a.book.ends)
}

// MaxDivergentShare is the largest share of answers that may part.
func (a *Answers) MaxDivergentShare() float64 { return a.book.criteria.Greedy.MaxDivergentShare }
