package query

import (
	"fmt"
	"slices"
	"strings"

	"assay/starlark/diag"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// maxDepth bounds how deep an expression nests; no question needs as much.
const maxDepth = 100

// parser is a recursive descent over
//
//	expression = operand { operator operand }
//	operand    = "(" expression ")" | function "(" arguments ")" | pattern
type parser struct {
	lexer
	tok      token
	pkg      string
	rules    []*schema.Rule
	patterns []graph.Pattern
}

func (p *parser) next() { p.tok = p.lexer.token() }

// functions say what the arguments of each are.
var functions = map[string][]argument{
	"deps":     {set},
	"rdeps":    {set, set},
	"somepath": {set, set},
	"kind":     {ruleName, set},
	"attr":     {attrName, value, set},
}

var functionNames = []string{"attr", "deps", "kind", "rdeps", "somepath"}

type argument int

const (
	set argument = iota
	ruleName
	attrName
	value
)

func (a argument) String() string {
	return [...]string{"an expression", "the name of a rule", "the name of an attribute", "a value"}[a]
}

var operators = map[string]operator{
	"+": union, "union": union,
	"^": intersect, "intersect": intersect,
	"-": except, "except": except,
}

func (p *parser) expression(depth int) (expr, error) {
	left, err := p.operand(depth)
	if err != nil {
		return nil, err
	}
	for p.tok.kind == symbol || p.tok.kind == word {
		op, ok := operators[p.tok.text]
		if !ok {
			break
		}
		p.next()
		right, err := p.operand(depth)
		if err != nil {
			return nil, err
		}
		left = binary{op, left, right}
	}
	return left, nil
}

func (p *parser) operand(depth int) (expr, error) {
	if depth == maxDepth {
		return nil, p.fail(p.tok.pos, "", "the expression nests deeper than %d", maxDepth)
	}
	switch {
	case p.symbol("("):
		e, err := p.expression(depth + 1)
		if err != nil {
			return nil, err
		}
		return e, p.expect(")")
	case p.tok.kind != word && p.tok.kind != quoted:
		return nil, p.unexpected("a pattern such as //a:b or a function such as deps(…)")
	}
	name := p.tok
	p.next()
	if name.kind == word && p.symbol("(") {
		return p.call(name, depth+1)
	}
	pattern, err := graph.ParsePattern(name.text, p.pkg)
	if err != nil {
		return nil, p.fail(name.pos, hint(name.text), "%v", err)
	}
	p.patterns = append(p.patterns, pattern)
	return leaf(pattern), nil
}

// hint helps with what was meant by a word that is no pattern.
func hint(text string) string {
	if i := strings.IndexAny(text, "+-"); i > 0 && strings.Contains(text[i:], "/") {
		return "put spaces around + and -, which names may hold too"
	}
	near := text
	if !slices.Contains(functionNames, text) {
		near = diag.Suggest(text, functionNames)
	}
	if near != "" {
		return fmt.Sprintf("%s is a function: write %s(…)", near, near)
	}
	return ""
}

// call parses the arguments after the opening parenthesis.
func (p *parser) call(name token, depth int) (expr, error) {
	takes, ok := functions[name.text]
	if !ok {
		help := "the functions are " + strings.Join(functionNames, ", ")
		if near := diag.Suggest(name.text, functionNames); near != "" {
			help = fmt.Sprintf("did you mean %q?", near)
		}
		return nil, p.fail(name.pos, help, "there is no function %q", name.text)
	}
	var sets []expr
	var texts []string
	for i, a := range takes {
		if i > 0 {
			if !p.symbol(",") {
				return nil, p.unexpected(fmt.Sprintf("a comma and %s: %s takes %d arguments", a, name.text, len(takes)))
			}
		}
		if a == set {
			e, err := p.expression(depth)
			if err != nil {
				return nil, err
			}
			sets = append(sets, e)
			continue
		}
		text, err := p.text(a)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	switch name.text {
	case "deps":
		return deps{sets[0]}, nil
	case "rdeps":
		return rdeps{sets[0], sets[1]}, nil
	case "somepath":
		return somepath{sets[0], sets[1]}, nil
	case "kind":
		return filter{sets[0], func(t *graph.Target) bool { return t.Rule.Name == texts[0] }}, nil
	}
	return filter{sets[0], func(t *graph.Target) bool { return hasValue(t, texts[0], texts[1]) }}, nil
}

// text parses an argument that is no set and checks that it names something.
func (p *parser) text(a argument) (string, error) {
	t := p.tok
	if t.kind != word && t.kind != quoted {
		return "", p.unexpected(a.String())
	}
	p.next()
	var known []string
	switch a {
	case ruleName:
		for _, r := range p.rules {
			known = append(known, r.Name)
		}
	case attrName:
		for _, r := range p.rules {
			for _, attr := range r.Attrs {
				known = append(known, attr.Name)
			}
		}
	default:
		return t.text, nil
	}
	if slices.Contains(known, t.text) {
		return t.text, nil
	}
	slices.Sort(known)
	message := "there is no rule %q"
	if a == attrName {
		message = "no rule has an attribute %q"
	}
	help := ""
	if near := diag.Suggest(t.text, known); near != "" {
		help = fmt.Sprintf("did you mean %q?", near)
	}
	return "", p.fail(t.pos, help, message, t.text)
}

// symbol skips s if it is next.
func (p *parser) symbol(s string) bool {
	if p.tok.kind != symbol || p.tok.text != s {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(s string) error {
	if !p.symbol(s) {
		return p.unexpected(fmt.Sprintf("%q", s))
	}
	return nil
}

func (p *parser) unexpected(want string) error {
	switch p.tok.kind {
	case end:
		return p.fail(p.tok.pos, "", "the expression ends where it needs %s", want)
	case broken:
		return p.fail(p.tok.pos, "", "the quote is not closed")
	}
	return p.fail(p.tok.pos, "", "want %s, got %q", want, p.tok.text)
}

func (p *parser) fail(pos int, hint, format string, args ...any) error {
	return &Error{Text: p.lexer.text, Pos: pos, Message: fmt.Sprintf(format, args...), Hint: hint}
}
