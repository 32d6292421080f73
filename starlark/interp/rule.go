package interp

import (
	"fmt"

	"assay/starlark/diag"
	"assay/starlark/graph"
	"assay/starlark/schema"

	"go.starlark.net/starlark"
)

// rule returns the function that declares a target. A mistake in a call is
// recorded and the file goes on, so that its other calls are checked too.
func (l *loader) rule(r *schema.Rule) *starlark.Builtin {
	return starlark.NewBuiltin(r.Name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		stack := stackOf(thread.CallStack())
		pkg := packageOf(thread)
		switch {
		case pkg == nil:
			l.problems.Add(outsidePackage(r.Name, stack))
		case len(args) > 0:
			l.problems.Add(positional(r.Name, stack))
			pkg.incomplete = true
		default:
			values, problems := r.Unpack(kwargs)
			l.report(r.Name, stack, problems)
			name, ok := values["name"].(string)
			if !ok {
				pkg.incomplete = true
				break
			}
			// Added in spite of problems: others may refer to it.
			l.graph.Add(l.target(r, pkg, name, values, stack))
		}
		return starlark.None, nil
	})
}

func outsidePackage(function string, stack []diag.Frame) diag.Diagnostic {
	return diag.Diagnostic{
		Message: fmt.Sprintf("%s is called outside of a package", function),
		Stack:   stack,
		Hint:    fmt.Sprintf("put the call into a function and call that from a %s", graph.PackageFile),
	}
}

func positional(function string, stack []diag.Frame) diag.Diagnostic {
	return diag.Diagnostic{
		Message: fmt.Sprintf("%s: attributes are given by name", function),
		Stack:   stack,
		Hint:    fmt.Sprintf(`write %s(name = "…")`, function),
	}
}

// report records the problems of one call.
func (l *loader) report(rule string, stack []diag.Frame, problems []schema.Problem) {
	for _, p := range problems {
		subject := rule
		if p.Attr != "" {
			subject = fmt.Sprintf("attribute %q of %s", p.Attr, rule)
		}
		l.problems.Add(diag.Diagnostic{Message: subject + ": " + p.Message, Stack: stack, Hint: p.Hint})
	}
}

// target resolves the labels and files among the values.
func (l *loader) target(r *schema.Rule, pkg *openPackage, name string, values map[string]any, stack []diag.Frame) *graph.Target {
	delete(values, "name")
	t := &graph.Target{
		Label: graph.Label{Package: pkg.path, Name: name},
		Rule:  r,
		Attrs: values,
		Stack: stack,
	}
	res := resolver{l: l, pkg: pkg, target: t}
	for _, a := range r.Attrs {
		value, ok := values[a.Name]
		if !ok {
			continue // not valid, and reported
		}
		res.attr = a.Name
		switch a.Kind {
		case schema.Label:
			values[a.Name] = one(value.(string), res.label)
		case schema.LabelList:
			values[a.Name] = each(value.([]string), res.label)
		case schema.File:
			values[a.Name] = one(value.(string), res.file)
		case schema.FileList:
			values[a.Name] = each(value.([]string), res.file)
		}
	}
	l.report(r.Name, stack, res.problems)
	return t
}

// resolver turns what one call wrote into labels and paths.
type resolver struct {
	l        *loader
	pkg      *openPackage
	target   *graph.Target
	attr     string
	problems []schema.Problem
}

func (r *resolver) label(s string) (graph.Label, bool) {
	to, err := graph.ParseLabel(s, r.pkg.path)
	if err != nil {
		r.problems = append(r.problems, schema.Problem{Attr: r.attr, Message: err.Error()})
		return to, false
	}
	r.pkg.refersTo[to.Package] = true
	r.target.Edges = append(r.target.Edges, graph.Edge{Attr: r.attr, To: to})
	return to, true
}

func (r *resolver) file(s string) (string, bool) {
	file, p := r.l.file(r.pkg.path, s)
	if p != nil {
		r.problems = append(r.problems, schema.Problem{Attr: r.attr, Message: p.message, Hint: p.hint})
		return "", false
	}
	return file, true
}

// one resolves an optional value; an empty one was not given.
func one[T any](s string, resolve func(string) (T, bool)) T {
	var v T
	if s != "" {
		v, _ = resolve(s)
	}
	return v
}

func each[T any](list []string, resolve func(string) (T, bool)) []T {
	resolved := make([]T, 0, len(list))
	for _, s := range list {
		if v, ok := resolve(s); ok {
			resolved = append(resolved, v)
		}
	}
	return resolved
}
