package graph

import (
	"maps"
	"slices"

	"assay/starlark/diag"
)

// A Graph is the set of targets that were loaded. Build it with [New], Add and
// AddPackage, then call Finalize once.
type Graph struct {
	targets    map[Label]*Target
	packages   map[string]bool
	incomplete map[string]bool
	problems   diag.Collector // found while building
	order      []*Target      // dependencies first; set by Finalize
}

// New returns an empty graph.
func New() *Graph {
	return &Graph{
		targets:    make(map[Label]*Target),
		packages:   make(map[string]bool),
		incomplete: make(map[string]bool),
	}
}

// AddPackage records that a package exists, even if it declares nothing.
func (g *Graph) AddPackage(pkg string) { g.packages[pkg] = true }

// MarkIncomplete records that a package was not read to its end because of
// mistakes in it, so that labels into it are not reported as dangling too.
func (g *Graph) MarkIncomplete(pkg string) { g.incomplete[pkg] = true }

// Add records a target and its package. Finalize reports a second target with
// the same label.
func (g *Graph) Add(t *Target) {
	g.AddPackage(t.Label.Package)
	first, taken := g.targets[t.Label]
	if !taken {
		g.targets[t.Label] = t
		return
	}
	g.problems.Add(diag.Diagnostic{
		Message: t.Label.String() + " is declared twice",
		Stack:   t.Stack,
		Notes:   note(first, "first declared here as "+first.Rule.Name),
		Hint:    "give one of them another name",
	})
}

// Target returns the target with the given label.
func (g *Graph) Target(l Label) (*Target, bool) {
	t, ok := g.targets[l]
	return t, ok
}

// Targets returns every target, sorted by label.
func (g *Graph) Targets() []*Target {
	return slices.SortedFunc(maps.Values(g.targets), func(a, b *Target) int {
		return a.Label.compare(b.Label)
	})
}

// Packages returns the loaded packages, sorted.
func (g *Graph) Packages() []string { return slices.Sorted(maps.Keys(g.packages)) }

// Topological returns every target after all it depends on, in an order that
// depends on nothing but the graph. It is empty before Finalize succeeds.
func (g *Graph) Topological() []*Target { return slices.Clone(g.order) }

// note points to the declaration of t: the outermost frame, which is in the
// package file even when a macro made the call.
func note(t *Target, text string) []diag.Note {
	if len(t.Stack) == 0 {
		return nil
	}
	return []diag.Note{{Frame: t.Stack[len(t.Stack)-1], Text: text}}
}
