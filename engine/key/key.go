// Package key turns what an action depends on into the name of its result. The
// preimage is canonical JSON (RFC 8785) and is always stored, so that a later
// run can say which component changed.
package key

import (
	"encoding/json"
	"fmt"
	"sort"
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
	// Attrs are the declared attributes after defaults.
	Attrs map[string]any `json:"attrs"`
	// Inputs maps a role to the digest of its content.
	Inputs map[string]digest.Digest `json:"inputs"`
	// Tools maps a tool to its pinned identity.
	Tools map[string]string `json:"tools"`
}

// Encode returns the canonical bytes and their digest, the key.
func (p Preimage) Encode() ([]byte, digest.Digest, error) {
	p.Schema = Schema
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

// Change is one component that differs between two preimages. An absent value
// is empty.
type Change struct {
	// Component is a path such as "attrs.requests", "inputs.bundle", "version".
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
	diff("", a, b, &changes)
	return changes, nil
}

func diff(path string, a, b any, out *[]Change) {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if aok && bok {
		names := map[string]struct{}{}
		for n := range am {
			names[n] = struct{}{}
		}
		for n := range bm {
			names[n] = struct{}{}
		}
		sorted := make([]string, 0, len(names))
		for n := range names {
			sorted = append(sorted, n)
		}
		sort.Strings(sorted)
		for _, n := range sorted {
			sub := n
			if path != "" {
				sub = path + "." + n
			}
			av, inA := am[n]
			bv, inB := bm[n]
			switch {
			case !inA:
				*out = append(*out, Change{Component: sub, New: show(bv)})
			case !inB:
				*out = append(*out, Change{Component: sub, Old: show(av)})
			default:
				diff(sub, av, bv, out)
			}
		}
		return
	}
	if as, bs := show(a), show(b); as != bs {
		*out = append(*out, Change{path, as, bs})
	}
}

func show(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}
