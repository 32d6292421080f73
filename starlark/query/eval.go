package query

import (
	"fmt"
	"slices"

	"assay/starlark/graph"
)

// expr is a node of a parsed expression.
type expr interface {
	eval(*graph.Graph) (result, error)
}

// result is a set of targets; path, if it is not nil, is the set in an order
// that means something.
type result struct {
	set  map[*graph.Target]bool
	path []*graph.Target
}

type leaf graph.Pattern

func (l leaf) eval(g *graph.Graph) (result, error) {
	labels, err := g.Match([]graph.Pattern{graph.Pattern(l)})
	if err != nil {
		return result{}, err
	}
	r := result{set: map[*graph.Target]bool{}}
	for _, label := range labels {
		t, _ := g.Target(label)
		r.set[t] = true
	}
	return r, nil
}

type operator int

const (
	union operator = iota
	intersect
	except
)

type binary struct {
	op          operator
	left, right expr
}

func (b binary) eval(g *graph.Graph) (result, error) {
	left, right, err := both(g, b.left, b.right)
	if err != nil {
		return result{}, err
	}
	r := result{set: map[*graph.Target]bool{}}
	for t := range left.set {
		if b.op == union || right.set[t] == (b.op == intersect) {
			r.set[t] = true
		}
	}
	if b.op == union {
		for t := range right.set {
			r.set[t] = true
		}
	}
	return r, nil
}

func both(g *graph.Graph, x, y expr) (left, right result, err error) {
	if left, err = x.eval(g); err == nil {
		right, err = y.eval(g)
	}
	return left, right, err
}

type deps struct{ of expr }

func (d deps) eval(g *graph.Graph) (result, error) {
	r, err := d.of.eval(g)
	if err != nil {
		return result{}, err
	}
	return result{set: closure(g, r.set)}, nil
}

// closure is the set with all that its targets need.
func closure(g *graph.Graph, of map[*graph.Target]bool) map[*graph.Target]bool {
	needed := map[*graph.Target]bool{}
	// What needs a target comes after it.
	for _, t := range slices.Backward(g.Topological()) {
		if of[t] || needed[t] {
			needed[t] = true
			for _, to := range next(g, t) {
				needed[to] = true
			}
		}
	}
	return needed
}

// next lists what t needs directly, each once, in the order of its attributes.
func next(g *graph.Graph, t *graph.Target) []*graph.Target {
	var list []*graph.Target
	for _, e := range t.Edges {
		if to, ok := g.Target(e.To); ok && !slices.Contains(list, to) {
			list = append(list, to)
		}
	}
	return list
}

type rdeps struct{ universe, of expr }

func (r rdeps) eval(g *graph.Graph) (result, error) {
	universe, of, err := both(g, r.universe, r.of)
	if err != nil {
		return result{}, err
	}
	within := closure(g, universe.set)
	need := map[*graph.Target]bool{}
	for _, t := range g.Topological() {
		if within[t] && (of.set[t] || slices.ContainsFunc(next(g, t), func(to *graph.Target) bool { return need[to] })) {
			need[t] = true
		}
	}
	return result{set: need}, nil
}

type somepath struct{ from, to expr }

func (s somepath) eval(g *graph.Graph) (result, error) {
	from, to, err := both(g, s.from, s.to)
	if err != nil {
		return result{}, err
	}
	// Breadth first, from all starts at once in the order of their labels.
	came := map[*graph.Target]*graph.Target{}
	var queue []*graph.Target
	for _, t := range g.Targets() {
		if from.set[t] {
			came[t] = nil
			queue = append(queue, t)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		if to.set[queue[0]] {
			return way(came, queue[0]), nil
		}
		for _, t := range next(g, queue[0]) {
			if _, seen := came[t]; !seen {
				came[t] = queue[0]
				queue = append(queue, t)
			}
		}
	}
	return result{set: map[*graph.Target]bool{}}, nil
}

func way(came map[*graph.Target]*graph.Target, last *graph.Target) result {
	r := result{set: map[*graph.Target]bool{}}
	for t := last; t != nil; t = came[t] {
		r.set[t] = true
		r.path = append(r.path, t)
	}
	slices.Reverse(r.path)
	return r
}

type filter struct {
	of   expr
	keep func(*graph.Target) bool
}

func (f filter) eval(g *graph.Graph) (result, error) {
	r, err := f.of.eval(g)
	if err != nil {
		return result{}, err
	}
	kept := result{set: map[*graph.Target]bool{}}
	for t := range r.set {
		if f.keep(t) {
			kept.set[t] = true
		}
	}
	return kept, nil
}

// hasValue reports whether the attribute is value as Starlark prints it without
// quotes, or is a list that holds it, or a dict with the entry "key=value".
// Labels are compared in full, files relative to the workspace.
func hasValue(t *graph.Target, attr, value string) bool {
	switch v := t.Attrs[attr].(type) {
	case nil:
		return false
	case bool:
		return value == map[bool]string{true: "True", false: "False"}[v]
	case []string:
		return slices.Contains(v, value)
	case []graph.Label:
		return slices.ContainsFunc(v, func(l graph.Label) bool { return l.String() == value })
	case map[string]string:
		for k, entry := range v {
			if k+"="+entry == value {
				return true
			}
		}
		return false
	case graph.Label:
		return v != graph.Label{} && v.String() == value
	default:
		return fmt.Sprint(v) == value
	}
}
