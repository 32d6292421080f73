package container

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
)

// ProvenanceSection is the section that says what a bundle was built from.
const ProvenanceSection = "checkpoint_provenance.json"

// maxProvenance is far more than any provenance needs, in bytes.
const maxProvenance = 1 << 20

// ErrNoProvenance is what Bundle.Provenance returns when there is no such
// section. A bundle like that can be served but not validated.
var ErrNoProvenance = errors.New("bundle: no section " + ProvenanceSection + "; it can be served but not validated")

// Provenance says which checkpoint a bundle was built from, and how.
//
// Version 1 names an upstream checkpoint and its revision. Version 2 is for
// checkpoints that came out of a package, a file or an artifact, which at most
// claims an upstream revision: it names that origin and its digest too.
type Provenance struct {
	Version    int
	Checkpoint Checkpoint
	Origin     *Origin // version 2 only; "source" in JSON
	Build      Build
}

// Checkpoint names the upstream checkpoint. In version 2 either may be empty,
// which is null in JSON, and the revision counts as claimed, not as verified.
type Checkpoint struct {
	HFID     string // "owner/name"
	Revision string // 40 lower-case hexadecimal digits
}

// Origin is where the bytes of a version 2 checkpoint came from.
type Origin struct {
	Kind   OriginKind
	Name   string // "package==1.0", a file's name, an OCI reference
	SHA256 string // of the wheel, file or artifact: 64 lower-case hexadecimal digits
}

// OriginKind is the key under which JSON has the name of an origin.
type OriginKind string

const (
	FromWheel OriginKind = "wheel"
	FromFile  OriginKind = "file"
	FromOCI   OriginKind = "oci"
)

var originKinds = []OriginKind{FromFile, FromOCI, FromWheel}

// Build is how the bundle was made from the checkpoint.
type Build struct {
	Precision          string // "fp16", "q4_1"
	MaxSequenceLength  int64  // in tokens
	TensorParallelSize int64
	Quantization       string  // empty (null in JSON) if none was applied
	FP32Layers         []int64 // indices of layers kept in FP32, ascending
}

var (
	hfID   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`)
	hex40  = regexp.MustCompile(`^[0-9a-f]{40}$`)
	hex64  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	method = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)
)

// Validate reports everything that is wrong with p.
func (p *Provenance) Validate() error {
	var errs []error
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s: %s", ProvenanceSection, field, fmt.Sprintf(format, args...)))
		}
	}
	matches := func(field, value string, want *regexp.Regexp, say string) {
		check(len(value) <= maxText && want.MatchString(value), field, "is %q, want %s", value, say)
	}
	c, b := p.Checkpoint, p.Build
	check(p.Version == 1 || p.Version == 2, "version", "is %d, want 1 or 2", p.Version)
	if p.Version != 2 || c.HFID != "" {
		matches("checkpoint.hf_id", c.HFID, hfID, "an upstream id like owner/name")
	}
	if p.Version != 2 || c.Revision != "" {
		matches("checkpoint.revision", c.Revision, hex40, "40 lower-case hexadecimal digits")
	}
	check(c.Revision == "" || c.HFID != "", "checkpoint.revision", "is %q without an hf_id that it belongs to", c.Revision)
	check((p.Version == 2) == (p.Origin != nil), "source", "belongs to version 2 and only there, the version is %d", p.Version)
	if o := p.Origin; o != nil {
		check(slices.Contains(originKinds, o.Kind), "source", "is of kind %q, want one of %q", o.Kind, originKinds)
		if err := checkText("name", o.Name); err != nil {
			check(false, "source."+string(o.Kind), "%v", err)
		}
		matches("source.sha256", o.SHA256, hex64, "64 lower-case hexadecimal digits")
	}
	matches("build.precision", b.Precision, method, "a word like fp16")
	check(b.MaxSequenceLength > 0, "build.max_sequence_length", "is %d, want a positive number of tokens", b.MaxSequenceLength)
	check(b.TensorParallelSize > 0, "build.tensor_parallel_size", "is %d, want a positive number", b.TensorParallelSize)
	if b.Quantization != "" {
		matches("build.quantization", b.Quantization, method, "null or a word like q4_1")
	}
	for i, layer := range b.FP32Layers {
		ascending := layer >= 0 && (i == 0 || layer > b.FP32Layers[i-1])
		check(ascending, "build.fp32_layers", "is %v, want ascending indices from 0 on", b.FP32Layers)
		if !ascending {
			break
		}
	}
	return errors.Join(errs...)
}

// Mismatch is a field in which two provenances differ, with both values as they
// stand in JSON, without quotes.
type Mismatch struct{ Field, Have, Want string }

func (m Mismatch) String() string {
	return fmt.Sprintf("%s is %s, want %s", m.Field, m.Have, m.Want)
}

// Matches returns every field of p that differs from want; none if they say the
// same.
func (p *Provenance) Matches(want *Provenance) []Mismatch {
	var out []Mismatch
	theirs := want.fields()
	for i, f := range p.fields() {
		if f.value != theirs[i].value {
			out = append(out, Mismatch{f.name, f.value, theirs[i].value})
		}
	}
	return out
}

type field struct{ name, value string }

func (p *Provenance) fields() []field {
	orNull := func(s string) string {
		if s == "" {
			return "null"
		}
		return s
	}
	origin := Origin{}
	if p.Origin != nil {
		origin = *p.Origin
	}
	return []field{
		{"version", strconv.Itoa(p.Version)},
		{"checkpoint.hf_id", orNull(p.Checkpoint.HFID)},
		{"checkpoint.revision", orNull(p.Checkpoint.Revision)},
		{"source", orNull(string(origin.Kind))},
		{"source.name", orNull(origin.Name)},
		{"source.sha256", orNull(origin.SHA256)},
		{"build.precision", p.Build.Precision},
		{"build.max_sequence_length", strconv.FormatInt(p.Build.MaxSequenceLength, 10)},
		{"build.tensor_parallel_size", strconv.FormatInt(p.Build.TensorParallelSize, 10)},
		{"build.quantization", orNull(p.Build.Quantization)},
		{"build.fp32_layers", fmt.Sprint(p.Build.FP32Layers)},
	}
}

// Provenance reads, parses and validates the provenance section.
func (b *Bundle) Provenance() (*Provenance, error) {
	has := func(s Section) bool { return s.Name == ProvenanceSection }
	i := slices.IndexFunc(b.Sections, has)
	if i < 0 {
		return nil, ErrNoProvenance
	}
	s := b.Sections[i]
	if s.Length > maxProvenance {
		return nil, &FormatError{b.payload + s.Offset, "section " + s.Name, fmt.Sprintf("has %d bytes, at most %d are allowed", s.Length, maxProvenance)}
	}
	data := make([]byte, s.Length)
	if _, err := io.ReadFull(io.NewSectionReader(b.r, b.payload+s.Offset, s.Length), data); err != nil {
		return nil, fmt.Errorf("bundle: section %s: %w", s.Name, err)
	}
	return ParseProvenance(data)
}
