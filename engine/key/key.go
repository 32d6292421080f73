// Package key turns what an action depends on into the name of its result. The
// preimage is canonical JSON (RFC 8785) and is always stored, so that a later
// run can say which component changed.
package key

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
	"github.com/opencontainers/go-digest"
)

// Schema is the version of the preimage's form; raising it invalidates every key.
const Schema = 1

// Preimage is everything that may change an action's result. Labels, positions,
// comments and scheduling deadlines are not part of it.
type Preimage struct {
	Schema  int    `json:"schema"`
	Rule    string `json:"rule"`
	Version int    `json:"version"` // of the rule: raised when its result changes for equal inputs
	// Attrs are the declared attributes after defaults: strings, bools, numbers,
	// and slices and maps of them.
	Attrs map[string]any `json:"attrs"`
	// Inputs maps a role to the digest of its content.
	Inputs map[string]digest.Digest `json:"inputs"`
	// Absent says of each optional input that is not there why. Who failed is named
	// by its label, as part of what is said.
	Absent map[string]string `json:"absent,omitempty"`
	// Tools maps a tool to its pinned identity.
	Tools map[string]string `json:"tools"`
}

// Encode returns the canonical bytes and their digest, the key. Integers must be
// within ±(2^53-1): RFC 8785 writes numbers as float64, so that larger ones which
// differ could get the same key.
func (p Preimage) Encode() ([]byte, digest.Digest, error) {
	p.Schema = Schema
	if err := exact("attrs", reflect.ValueOf(p.Attrs)); err != nil {
		return nil, "", fmt.Errorf("key of %s: %w", p.Rule, err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, "", fmt.Errorf("key of %s: %w", p.Rule, err)
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return nil, "", fmt.Errorf("key of %s: %w", p.Rule, err)
	}
	return canonical, digest.FromBytes(canonical), nil
}

// exact reports the integers in v, which is at path, that a float64 may round.
func exact(path string, v reflect.Value) error {
	const limit = 1<<53 - 1
	if v.CanInt() && (v.Int() < -limit || v.Int() > limit) || v.CanUint() && v.Uint() > limit {
		return fmt.Errorf("%s is %v; a key tells integers apart up to 2^53-1 only: write it as a string", path, v)
	}
	var errs []error
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		return exact(path, v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			errs = append(errs, exact(fmt.Sprintf("%s[%d]", path, i), v.Index(i)))
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, n := range names {
			errs = append(errs, exact(path+"."+element(n.String()), v.MapIndex(n)))
		}
	}
	return errors.Join(errs...)
}

// Path is the name of a component: its elements with dots between them. An
// element is quoted if it could be taken for several.
func Path(elements ...string) string {
	quoted := make([]string, len(elements))
	for i, e := range elements {
		quoted[i] = element(e)
	}
	return strings.Join(quoted, ".")
}

func element(name string) string {
	if name == "" || strings.ContainsAny(name, `."`) {
		return strconv.Quote(name)
	}
	return name
}

// Change is one component that differs between two preimages. An absent value
// is empty.
type Change struct {
	// Component is a [Path] such as attrs.requests, inputs."words.txt", version.
	Component string `json:"component"`
	Old       string `json:"old,omitempty"`
	New       string `json:"new,omitempty"`
}

// String shows the change to a person: digests by their first digits.
func (c Change) String() string {
	before, after := short(c.Old), short(c.New)
	switch {
	case before == "":
		return fmt.Sprintf("%s added: %s", c.Component, after)
	case after == "":
		return fmt.Sprintf("%s removed (was %s)", c.Component, before)
	}
	return fmt.Sprintf("%s changed: %s → %s", c.Component, before, after)
}

func short(value string) string {
	const shown = len("sha256:") + 12
	if d, err := digest.Parse(strings.Trim(value, `"`)); err == nil {
		return d.String()[:shown]
	}
	return value
}

// Diff lists the components that differ between two encoded preimages, in order
// of their paths.
func Diff(before, after []byte) ([]Change, error) {
	var a, b map[string]any
	if err := json.Unmarshal(before, &a); err != nil {
		return nil, fmt.Errorf("old preimage: %w", err)
	}
	if err := json.Unmarshal(after, &b); err != nil {
		return nil, fmt.Errorf("new preimage: %w", err)
	}
	var changes []Change
	diff(nil, a, b, &changes)
	return changes, nil
}

func diff(path []string, a, b any, out *[]Change) {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if !aok || !bok {
		if as, bs := show(a), show(b); as != bs {
			*out = append(*out, Change{Path(path...), as, bs})
		}
		return
	}
	names := map[string]any{}
	maps.Copy(names, am)
	maps.Copy(names, bm)
	for _, n := range slices.Sorted(maps.Keys(names)) {
		sub := append(path[:len(path):len(path)], n)
		av, inA := am[n]
		bv, inB := bm[n]
		switch {
		case !inA:
			*out = append(*out, Change{Component: Path(sub...), New: show(bv)})
		case !inB:
			*out = append(*out, Change{Component: Path(sub...), Old: show(av)})
		default:
			diff(sub, av, bv, out)
		}
	}
}

func show(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}
