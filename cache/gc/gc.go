// Package gc finds what in the stores nothing refers to any more, and removes
// it. Samples are never garbage: they cannot be made again as they were. Nor are
// receipts. A result is garbage unless it is among the roots; it can be made
// again, at a cost that the record tells.
//
// Nothing may be written to the stores meanwhile; the caller sees to that.
package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/ac"
	"assay/cache/cas"
)

// Roots is what is needed besides samples and receipts.
type Roots struct {
	Keys  map[digest.Digest]bool // results to keep
	Trees []cas.Ref              // with all below them
	Blobs []cas.Ref
	// Since keeps every result made at that time or later.
	Since time.Time
}

// Garbage is what can be removed.
type Garbage struct {
	Results []ac.Result
	Blobs   []cas.Ref
	// Broken are the samples, results and roots of which something is missing
	// already; they are kept as they are.
	Broken []error
}

// Bytes is the size of the blobs.
func (g *Garbage) Bytes() int64 {
	var n int64
	for _, b := range g.Blobs {
		n += b.Size
	}
	return n
}

// Cost is how long it took to make the results.
func (g *Garbage) Cost() time.Duration {
	var d time.Duration
	for _, r := range g.Results {
		d += r.Finished.Sub(r.Started)
	}
	return d
}

// Find returns the garbage of the stores.
func Find(ctx context.Context, blobs *cas.Store, results *ac.Store, roots Roots) (*Garbage, error) {
	g := &Garbage{}
	m := marker{ctx: ctx, blobs: blobs, live: map[digest.Digest]bool{}, walked: map[digest.Digest]bool{}}
	keep := func(what string, preimage, output cas.Ref) error {
		m.blob(preimage)
		return g.note(what, m.tree(output))
	}
	for r, err := range results.Results() {
		switch {
		case errors.Is(err, ac.ErrNewer):
			return nil, newer(err)
		case errors.Is(err, cas.ErrMissing):
			g.Broken = append(g.Broken, err)
			continue
		case err != nil:
			return nil, err
		case !r.Receipt && !roots.Keys[r.Key] && r.Finished.Before(roots.Since):
			g.Results = append(g.Results, r)
			continue
		}
		if err := keep("result "+r.Key.String(), r.Preimage, r.Output); err != nil {
			return nil, err
		}
	}
	for s, err := range results.AllSamples() {
		switch {
		case errors.Is(err, ac.ErrNewer):
			return nil, newer(err)
		case errors.Is(err, cas.ErrMissing):
			g.Broken = append(g.Broken, err)
			continue
		case err != nil:
			return nil, err
		}
		if err := keep("sample "+s.ID, s.Preimage, s.Output); err != nil {
			return nil, err
		}
	}
	for _, b := range roots.Blobs {
		m.blob(b)
	}
	for _, t := range roots.Trees {
		// What history remembers may be long gone; it only explains.
		if err := m.tree(t); err != nil && !errors.Is(err, cas.ErrMissing) {
			return nil, err
		}
	}
	for ref, err := range blobs.All() {
		if err != nil {
			return nil, err
		}
		if !m.live[ref.Digest] {
			g.Blobs = append(g.Blobs, ref)
		}
	}
	return g, ctx.Err()
}

// newer refuses to call anything garbage that an unknown record may need.
func newer(err error) error {
	return fmt.Errorf("%w; what it needs is not known here, so nothing is removed: clean with the newer assay", err)
}

// note keeps the error of something incomplete and returns any other.
func (g *Garbage) note(what string, err error) error {
	if errors.Is(err, cas.ErrMissing) {
		g.Broken = append(g.Broken, fmt.Errorf("%s: %w", what, err))
		return nil
	}
	return err
}

// Remove deletes the garbage: records before the blobs that they name, so that a
// crash leaves garbage and not a record of nothing.
func (g *Garbage) Remove(ctx context.Context, blobs *cas.Store, results *ac.Store) error {
	for _, r := range g.Results {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := results.Remove(r.Key); err != nil {
			return err
		}
	}
	for _, b := range g.Blobs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := blobs.Remove(b.Digest); err != nil {
			return err
		}
	}
	return nil
}

// marker notes what is referred to.
type marker struct {
	ctx   context.Context
	blobs *cas.Store
	live  map[digest.Digest]bool
	// walked are the trees among them; a file may have the bytes of a tree.
	walked map[digest.Digest]bool
}

func (m *marker) blob(ref cas.Ref) {
	m.live[ref.Digest] = true
}

// tree marks a tree with all below it, as far as it can be read; the error tells
// of the first thing that cannot.
func (m *marker) tree(ref cas.Ref) error {
	if m.walked[ref.Digest] {
		return nil
	}
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	m.walked[ref.Digest] = true
	m.blob(ref)
	t, err := m.blobs.Tree(ref)
	if err != nil {
		return err
	}
	var first error
	for _, e := range t.Entries {
		if e.Type != "dir" {
			m.blob(e.Ref())
			continue
		}
		if err := m.tree(e.Ref()); err != nil && first == nil {
			first = err
		}
	}
	return first
}
