// Package query answers questions about a graph of targets: what something needs,
// what needs it, and which targets have a rule or an attribute. A query is an
// expression over sets of targets:
//
//	//a:b  //a:all  //a/...        targets by pattern
//	deps(x)                        x and all it needs
//	rdeps(universe, x)             those of the universe, and of what it needs, that need x
//	somepath(a, b)                 one shortest way from a to b, in its order
//	kind(rule, x)                  those made by the rule
//	attr(name, value, x)           those whose attribute has the value, or holds it
//	x + y   x ^ y   x - y          union, intersection, difference
//
// The operators are also called union, intersect and except. They bind equally
// and from left to right; parentheses group. Names may hold + and -, so these
// two need a space before them.
package query

import (
	"fmt"
	"strings"

	"assay/starlark/graph"
	"assay/starlark/schema"
)

// A Query is a parsed expression.
type Query struct {
	expr     expr
	patterns []graph.Pattern
}

// Parse reads an expression as written in package pkg. Names of rules and of
// attributes are those of rules. The error is an *Error.
func Parse(text, pkg string, rules []*schema.Rule) (*Query, error) {
	p := &parser{lexer: lexer{text: text}, pkg: pkg, rules: rules}
	p.next()
	e, err := p.expression(0)
	if err == nil && p.tok.kind != end {
		err = p.unexpected("an operator (+, ^ or -) or the end")
	}
	if err != nil {
		return nil, err
	}
	return &Query{expr: e, patterns: p.patterns}, nil
}

// Patterns are those in the expression: what has to be loaded to answer it.
func (q *Query) Patterns() []graph.Pattern { return q.patterns }

// Eval answers the query: the targets of a path in its order, any other set
// sorted by label. A pattern that matches nothing is an error.
func (q *Query) Eval(g *graph.Graph) ([]*graph.Target, error) {
	r, err := q.expr.eval(g)
	if err != nil {
		return nil, err
	}
	if r.path != nil {
		return r.path, nil
	}
	var sorted []*graph.Target
	for _, t := range g.Targets() {
		if r.set[t] {
			sorted = append(sorted, t)
		}
	}
	return sorted, nil
}

// An Error is a mistake in an expression.
type Error struct {
	Text    string // the expression
	Pos     int    // in bytes, from 0
	Message string
	Hint    string // may be empty
}

// Error shows the expression with a caret at the mistake.
func (e *Error) Error() string {
	flat := strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, e.Text)
	text := fmt.Sprintf("query, column %d: %s\n  | %s\n  | %s^", column(e.Text, e.Pos), e.Message, flat, strings.Repeat(" ", column(e.Text, e.Pos)-1))
	if e.Hint != "" {
		text += "\nhint: " + e.Hint
	}
	return text
}

// column counts code points from 1.
func column(text string, pos int) int { return len([]rune(text[:min(pos, len(text))])) + 1 }
