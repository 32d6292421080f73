package interp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"assay/starlark/diag"
	"assay/starlark/schema"

	"go.starlark.net/starlark"
)

// A Flag is a setting that the workspace file declares. Package files and
// modules read it with config; it reaches a key only through the attributes
// that it is used for.
type Flag struct {
	schema.Attr     // its name, kind, default, documentation and allowed values
	Value       any // what was set, else the default
	declared    diag.Frame
}

// A ConfigError lists the mistakes in [Options.Config]; Attr is a flag's name.
type ConfigError []schema.Problem

func (e ConfigError) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = fmt.Sprintf("flag %q: %s", p.Attr, p.Message)
		if p.Hint != "" {
			lines[i] += "\nhint: " + p.Hint
		}
	}
	return strings.Join(lines, "\n")
}

// Flags returns the flags that the workspace declares, in order, with the
// values that opts.Config gives them. The errors are those of [Load].
func Flags(ctx context.Context, opts Options) ([]Flag, error) {
	l := newLoader(opts)
	if err := l.workspace(ctx); err != nil {
		return nil, err
	}
	if err := l.problems.Err(); err != nil {
		return nil, err
	}
	return l.flags, nil
}

// flagKinds are the types of flags.
var flagKinds = map[string]schema.Kind{
	"string": schema.String, "int": schema.Int, "float": schema.Float, "bool": schema.Bool, "string_list": schema.StringList,
}

// flagRule describes a call of flag but for its default, whose kind is that of
// the flag itself.
var flagRule = &schema.Rule{Name: "flag", Attrs: []schema.Attr{
	{Name: "type", Kind: schema.String, Required: true, Values: slices.Sorted(maps.Keys(flagKinds))},
	{Name: "doc", Kind: schema.String, Required: true},
	{Name: "values", Kind: schema.StringList},
}}

// flag implements flag(name, type, default, doc, values = []).
func (l *loader) flag(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	stack := stackOf(thread.CallStack())
	if len(args) > 0 {
		l.problems.Add(positional(flagRule.Name, stack))
		return starlark.None, nil
	}
	var fallback starlark.Value
	kwargs = slices.DeleteFunc(slices.Clone(kwargs), func(kv starlark.Tuple) bool {
		if kv[0] != starlark.String("default") {
			return false
		}
		fallback = kv[1]
		return true
	})
	values, problems := flagRule.Unpack(kwargs)
	f := Flag{declared: stack[0]}
	f.Name, _ = values["name"].(string)
	f.Doc, _ = values["doc"].(string)
	f.Values, _ = values["values"].([]string)
	kind, _ := values["type"].(string)
	f.Kind = flagKinds[kind]
	switch {
	case f.Kind == 0: // reported
	case len(f.Values) > 0 && f.Kind != schema.String && f.Kind != schema.StringList:
		problems = append(problems, schema.Problem{Attr: "values", Message: "only strings and lists of strings have allowed values"})
	case fallback == nil:
		problems = append(problems, schema.Problem{Attr: "default", Message: "required, but not given"})
	default:
		var p *schema.Problem
		if f.Default, p = f.Convert(fallback); p != nil {
			problems = append(problems, schema.Problem{Attr: "default", Message: p.Message, Hint: p.Hint})
		}
		f.Value = f.Default
	}
	l.report(flagRule.Name, stack, problems)
	if first := slices.IndexFunc(l.flags, func(other Flag) bool { return other.Name == f.Name }); first >= 0 {
		l.problems.Add(diag.Diagnostic{
			Message: fmt.Sprintf("flag %q is declared twice", f.Name),
			Stack:   stack,
			Notes:   []diag.Note{{Frame: l.flags[first].declared, Text: "first declared here"}},
		})
		return starlark.None, nil
	}
	if f.Name != "" {
		l.flags = append(l.flags, f)
	}
	return starlark.None, nil
}

// configure gives the flags the values that were set from outside.
func (l *loader) configure() error {
	var problems ConfigError
	for _, name := range slices.Sorted(maps.Keys(l.opts.Config)) {
		i := slices.IndexFunc(l.flags, func(f Flag) bool { return f.Name == name })
		if i < 0 {
			problems = append(problems, schema.Problem{Attr: name, Message: WorkspaceFile + " declares no such flag", Hint: l.suggestFlag(name)})
			continue
		}
		value, p := l.flags[i].Parse(l.opts.Config[name])
		if p != nil {
			p.Attr = name
			problems = append(problems, *p)
			continue
		}
		l.flags[i].Value = value
	}
	if problems != nil {
		return problems
	}
	return nil
}

// config implements config(name): the value of a flag.
func (l *loader) config(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var name string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "name", &name); err != nil {
		return nil, err
	}
	for _, f := range l.flags {
		if f.Name == name {
			return toStarlark(f.Value), nil
		}
	}
	return nil, &problem{
		message: fmt.Sprintf("config: %s declares no flag %q", WorkspaceFile, name),
		hint:    l.suggestFlag(name),
	}
}

func (l *loader) suggestFlag(name string) string {
	var names []string
	for _, f := range l.flags {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	switch near := diag.Suggest(name, names); {
	case near != "":
		return fmt.Sprintf("did you mean %q?", near)
	case len(names) > 0:
		return "the flags are " + strings.Join(names, ", ")
	}
	return `declare it there: flag(name = "…", type = "…", default = …, doc = "…")`
}

// toStarlark returns a fresh value: what one file does to a list is not seen by
// another. A flag whose declaration is wrong, and reported, is None.
func toStarlark(v any) starlark.Value {
	switch v := v.(type) {
	case string:
		return starlark.String(v)
	case int64:
		return starlark.MakeInt64(v)
	case float64:
		return starlark.Float(v)
	case bool:
		return starlark.Bool(v)
	case []string:
		elems := make([]starlark.Value, len(v))
		for i, s := range v {
			elems[i] = starlark.String(s)
		}
		return starlark.NewList(elems)
	}
	return starlark.None
}
