package graph

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"assay/starlark/diag"
	"assay/starlark/schema"
)

// Finalize checks the graph as a whole and returns every mistake in it: labels
// declared twice, labels that lead nowhere, targets of a rule that an attribute
// does not take, and cycles. When there is none, Topological is available and
// the graph must not be changed any more.
func (g *Graph) Finalize() diag.List {
	var problems diag.Collector
	problems.Add(g.problems.List()...)
	targets := g.Targets()
	for _, t := range targets {
		for _, e := range t.Edges {
			to, ok := g.targets[e.To]
			switch {
			case ok:
				if a := t.Rule.Attr(e.Attr); !accepts(a, to.Rule) {
					problems.Add(g.wrongKind(t, a, to))
				}
			case !g.incomplete[e.To.Package]:
				problems.Add(diag.Diagnostic{
					Message: fmt.Sprintf("attribute %q of %s: %s", e.Attr, t.Rule.Name, g.absent(e.To)),
					Stack:   t.Stack,
					Hint:    g.suggest(e.To),
				})
			}
		}
	}
	walk := walk{g: g, state: make(map[*Target]visit), problems: &problems}
	for _, t := range targets {
		walk.visit(t)
	}
	if !problems.Empty() {
		return problems.List()
	}
	g.order = walk.order
	return nil
}

func accepts(a *schema.Attr, r *schema.Rule) bool {
	return a == nil || len(a.Rules) == 0 || slices.Contains(a.Rules, r.Name)
}

func (g *Graph) wrongKind(t *Target, a *schema.Attr, to *Target) diag.Diagnostic {
	takes := make([]string, len(a.Rules))
	for i, r := range a.Rules {
		takes[i] = article(r)
	}
	d := diag.Diagnostic{
		Message: fmt.Sprintf("%s is %s target; attribute %q of %s takes %s",
			to.Label, article(to.Rule.Name), a.Name, t.Rule.Name, strings.Join(takes, " or ")),
		Stack: t.Stack,
		Notes: note(to, "declared here as "+to.Rule.Name),
	}
	// The usual slip is to name a target one step too far down the chain.
	for _, e := range to.Edges {
		if next, ok := g.targets[e.To]; ok && accepts(a, next.Rule) {
			d.Hint = fmt.Sprintf("its %s is %s", e.Attr, e.To)
			break
		}
	}
	return d
}

func article(noun string) string {
	if strings.IndexAny(noun, "aeio") == 0 {
		return "an " + noun
	}
	return "a " + noun
}

// absent says why the label names no target.
func (g *Graph) absent(l Label) string {
	if !g.packages[l.Package] {
		return fmt.Sprintf("%s does not exist, nor does %s", l, path.Join(l.Package, PackageFile))
	}
	return fmt.Sprintf("%s does not exist", l)
}

// suggest returns a hint with the target that l was most likely meant to be:
// one of a similar name in its package, or one of the same name elsewhere.
func (g *Graph) suggest(l Label) string {
	var names, elsewhere []string
	for known := range g.targets {
		if known.Package == l.Package {
			names = append(names, known.Name)
		}
		if known.Name == l.Name {
			elsewhere = append(elsewhere, known.Package)
		}
	}
	slices.Sort(names)
	slices.Sort(elsewhere)
	near := Label{l.Package, diag.Suggest(l.Name, names)}
	if near.Name == "" && len(elsewhere) > 0 {
		near = Label{diag.Suggest(l.Package, elsewhere), l.Name}
		if len(elsewhere) == 1 {
			near.Package = elsewhere[0]
		} else if near.Package == "" {
			return ""
		}
	}
	if near.Name == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", near)
}

type visit int

const (
	unseen visit = iota
	open         // on the path to the target being visited
	done
)

// walk orders targets depth first and meets cycles on the way.
type walk struct {
	g        *Graph
	state    map[*Target]visit
	path     []step
	order    []*Target
	problems *diag.Collector
}

// step is a target on the path and the attribute that leads on from it.
type step struct {
	target *Target
	attr   string
}

func (w *walk) visit(t *Target) {
	if w.state[t] == done {
		return
	}
	w.state[t] = open
	w.path = append(w.path, step{target: t})
	for _, e := range t.Edges {
		to, ok := w.g.targets[e.To]
		if !ok {
			continue
		}
		w.path[len(w.path)-1].attr = e.Attr
		if w.state[to] == open {
			w.problems.Add(w.cycle(to))
			continue
		}
		w.visit(to)
	}
	w.path = w.path[:len(w.path)-1]
	w.state[t] = done
	w.order = append(w.order, t)
}

// cycle describes the part of the path that starts at t and now leads back to it.
func (w *walk) cycle(t *Target) diag.Diagnostic {
	start := slices.IndexFunc(w.path, func(s step) bool { return s.target == t })
	steps := w.path[start:]
	d := diag.Diagnostic{
		Stack: t.Stack,
		Hint:  "a target cannot depend on itself; drop one of these attributes",
	}
	var b strings.Builder
	b.WriteString("dependency cycle: ")
	for i, s := range steps {
		next := steps[(i+1)%len(steps)].target
		fmt.Fprintf(&b, "%s -> ", s.target.Label)
		d.Notes = append(d.Notes, note(s.target, fmt.Sprintf("%s needs %s (attribute %q)", s.target.Label, next.Label, s.attr))...)
	}
	d.Message = b.String() + t.Label.String()
	return d
}
