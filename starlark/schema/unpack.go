package schema

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"assay/starlark/diag"

	"go.starlark.net/starlark"
)

// Unpack turns the keyword arguments of a call into typed values, "name"
// included, with defaults filled in. It returns every problem of the call, and
// beside them the values that are valid. None counts as not given.
func (r *Rule) Unpack(kwargs []starlark.Tuple) (map[string]any, []Problem) {
	values := make(map[string]any, len(r.Attrs)+1)
	given := make(map[string]bool, len(kwargs))
	meant := make(map[string]bool) // by a misspelt attribute
	var problems []Problem
	for _, kv := range kwargs {
		key, v := string(kv[0].(starlark.String)), kv[1]
		if given[key] {
			problems = append(problems, Problem{Attr: key, Message: "given twice"})
			continue
		}
		if v == starlark.None && (key == "name" || r.Attr(key) != nil) {
			continue
		}
		given[key] = true
		if key != "name" && r.Attr(key) == nil {
			p, near := r.unknown(key)
			problems = append(problems, p)
			meant[near] = true
			continue
		}
		value, p := r.unpackOne(key, v)
		if p != nil {
			problems = append(problems, *p)
			continue
		}
		values[key] = value
	}
	if !given["name"] && !meant["name"] {
		problems = append(problems, missing("name"))
	}
	for i := range r.Attrs {
		a := &r.Attrs[i]
		switch {
		case given[a.Name] || meant[a.Name]:
		case a.Required:
			problems = append(problems, missing(a.Name))
		default:
			values[a.Name] = a.zero()
		}
	}
	if len(problems) == 0 && r.Check != nil {
		problems = r.Check(values)
	}
	return values, problems
}

func missing(attr string) Problem { return Problem{Attr: attr, Message: "required, but not given"} }

// unknown reports an attribute that the rule does not have, and returns the one
// that was probably meant, so that it is not reported as missing too.
func (r *Rule) unknown(key string) (p Problem, near string) {
	names := []string{"name"}
	for _, a := range r.Attrs {
		names = append(names, a.Name)
	}
	p.Message = fmt.Sprintf("no attribute %q", clip(key))
	if near = diag.Suggest(key, names); near != "" {
		p.Hint = fmt.Sprintf("did you mean %q?", near)
	}
	return p, near
}

func (r *Rule) unpackOne(key string, v starlark.Value) (any, *Problem) {
	if key == "name" {
		s, ok := starlark.AsString(v)
		switch {
		case !ok:
			return nil, &Problem{Attr: key, Message: "want a string, got " + describe(v)}
		case !ValidName(s):
			return nil, &Problem{Attr: key,
				Message: fmt.Sprintf("%q cannot be a name", clip(s)),
				Hint:    "use letters, digits and _ . + -; the first one a letter, a digit or _"}
		case s == "all":
			return nil, &Problem{Attr: key, Message: `"all" stands for every target of a package`, Hint: "choose another name"}
		}
		return s, nil
	}
	a := r.Attr(key)
	value, p := a.Convert(v)
	if p == nil && a.Required && value == "" && (a.Kind == Label || a.Kind == File) {
		p = &Problem{Message: "required, but empty"}
	}
	if p != nil {
		p.Attr = key
		return nil, p
	}
	return value, nil
}

// Convert returns v as the Go type of the attribute's kind, or says why the
// attribute does not allow it.
func (a *Attr) Convert(v starlark.Value) (any, *Problem) {
	value, p := a.convert(v)
	if p == nil {
		p = a.check(value)
	}
	if p != nil {
		return nil, p
	}
	return value, nil
}

// Parse is Convert for a value written as text, on a command line: numbers in
// decimal, true or false, lists with commas between their strings.
func (a *Attr) Parse(text string) (any, *Problem) {
	var v starlark.Value = starlark.String(text)
	switch a.Kind {
	case Int:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			v = starlark.MakeInt64(n)
		}
	case Float:
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			v = starlark.Float(f)
		}
	case Bool:
		if b, ok := map[string]bool{"true": true, "false": false}[strings.ToLower(text)]; ok {
			v = starlark.Bool(b)
		}
	case StringList:
		list := starlark.NewList(nil)
		if text != "" {
			for s := range strings.SplitSeq(text, ",") {
				_ = list.Append(starlark.String(s)) // it is not frozen
			}
		}
		v = list
	}
	return a.Convert(v)
}

// convert returns v as the Go type of the attribute's kind.
func (a *Attr) convert(v starlark.Value) (any, *Problem) {
	switch a.Kind {
	case String, Label, File:
		if s, ok := starlark.AsString(v); ok {
			return s, nil
		}
	case Bool:
		if b, ok := v.(starlark.Bool); ok {
			return bool(b), nil
		}
	case Int:
		if i, ok := v.(starlark.Int); ok {
			// Keys are JSON, whose numbers tell larger ints no longer apart.
			const limit = 1 << 53
			if n, ok := i.Int64(); ok && -limit < n && n < limit {
				return n, nil
			}
			return nil, &Problem{Message: "want an int below 2^53, got " + describe(v)}
		}
	case Float:
		switch v.(type) {
		case starlark.Int, starlark.Float:
			f, ok := starlark.AsFloat(v)
			if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
				return nil, &Problem{Message: "want a finite number, got " + describe(v)}
			}
			return f, nil
		}
	case StringList, LabelList, FileList:
		switch v := v.(type) {
		case *starlark.List, starlark.Tuple:
			return a.stringList(v.(starlark.Sequence))
		case starlark.String:
			p := a.wrongType(v)
			p.Hint = fmt.Sprintf("write [%q]", clip(string(v)))
			return nil, p
		}
	case StringDict:
		if d, ok := v.(*starlark.Dict); ok {
			return a.stringDict(d)
		}
	}
	return nil, a.wrongType(v)
}

func (a *Attr) wrongType(v starlark.Value) *Problem {
	return &Problem{Message: fmt.Sprintf("want %s, got %s", kinds[a.Kind].phrase, describe(v))}
}

func (a *Attr) stringList(seq starlark.Sequence) (any, *Problem) {
	list := make([]string, 0, seq.Len())
	for v := range starlark.Elements(seq) {
		s, ok := starlark.AsString(v)
		if !ok {
			return nil, &Problem{Message: fmt.Sprintf("want %s, but [%d] is %s", kinds[a.Kind].phrase, len(list), describe(v))}
		}
		list = append(list, s)
	}
	return list, nil
}

func (a *Attr) stringDict(d *starlark.Dict) (any, *Problem) {
	dict := make(map[string]string, d.Len())
	for k, v := range starlark.Entries(d) {
		key, ok := starlark.AsString(k)
		if !ok {
			return nil, &Problem{Message: fmt.Sprintf("want a dict of strings, but a key is %s", describe(k))}
		}
		value, ok := starlark.AsString(v)
		if !ok {
			return nil, &Problem{Message: fmt.Sprintf("want a dict of strings, but [%q] is %s", clip(key), describe(v))}
		}
		dict[key] = value
	}
	return dict, nil
}

// check tests a value of the right type against the attribute's limits.
func (a *Attr) check(value any) *Problem {
	switch v := value.(type) {
	case int64:
		return a.checkRange(float64(v), strconv.FormatInt(v, 10))
	case float64:
		return a.checkRange(v, formatFloat(v))
	case string:
		return a.checkString(v)
	case []string:
		for _, s := range v {
			if p := a.checkString(s); p != nil {
				return p
			}
		}
	case map[string]string:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if !utf8.ValidString(k) || !utf8.ValidString(v[k]) {
				return notText(k + ": " + v[k])
			}
		}
	}
	return nil
}

// notText rejects what slicing in the middle of a character leaves: it has no
// place in a key, which is JSON.
func notText(s string) *Problem {
	return &Problem{Message: fmt.Sprintf("%q is not valid UTF-8", clip(s))}
}

func (a *Attr) checkRange(v float64, text string) *Problem {
	low, high := a.Min != nil && v < *a.Min, a.Max != nil && v > *a.Max
	if !low && !high {
		return nil
	}
	want := ""
	switch {
	case a.Max == nil:
		want = "at least " + formatFloat(*a.Min)
	case a.Min == nil:
		want = "at most " + formatFloat(*a.Max)
	default:
		want = formatFloat(*a.Min) + " to " + formatFloat(*a.Max)
	}
	return &Problem{Message: fmt.Sprintf("want %s, got %s", want, text)}
}

func (a *Attr) checkString(s string) *Problem {
	if !utf8.ValidString(s) {
		return notText(s)
	}
	if len(a.Values) > 0 && !slices.Contains(a.Values, s) {
		p := &Problem{Message: fmt.Sprintf("want one of %s, got %q", quoted(a.Values), clip(s))}
		if near := diag.Suggest(s, a.Values); near != "" {
			p.Hint = fmt.Sprintf("did you mean %q?", near)
		}
		return p
	}
	if a.Pattern != "" && !regexp.MustCompile(anchored(a.Pattern)).MatchString(s) {
		want := a.PatternDoc
		if want == "" {
			want = "a string that matches " + a.Pattern
		}
		return &Problem{Message: fmt.Sprintf("want %s, got %q", want, clip(s))}
	}
	return nil
}

func anchored(pattern string) string { return `^(?:` + pattern + `)$` }

func quoted(values []string) string {
	q := make([]string, len(values))
	for i, v := range values {
		q[i] = strconv.Quote(v)
	}
	return strings.Join(q, ", ")
}

func formatFloat(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// describe names a value for an error message. Containers are named by type
// only: they may be large.
func describe(v starlark.Value) string {
	switch v := v.(type) {
	case starlark.NoneType:
		return "None"
	case starlark.String:
		return fmt.Sprintf("the string %q", clip(string(v)))
	case starlark.Bool, starlark.Float:
		return fmt.Sprintf("the %s %s", v.Type(), v)
	case starlark.Int:
		if _, ok := v.Int64(); ok {
			return "the int " + v.String()
		}
		return "a very large int"
	}
	return "a value of type " + v.Type()
}

// clip shortens what a user wrote to what fits on a line.
func clip(s string) string {
	const room = 60
	runes := []rune(s)
	if len(runes) <= room {
		return s
	}
	return string(runes[:room-1]) + "…"
}
