package graph

import (
	"fmt"

	"assay/starlark/diag"
	"assay/starlark/schema"
)

// An Edge is a dependency, and the attribute that makes it.
type Edge struct {
	Attr string
	To   Label
}

// A Target is one call of a rule.
//
// Attrs holds every attribute of the rule after defaults. Values have the Go
// types of their kinds, except that labels are parsed ([Label], []Label) and
// files are paths relative to the workspace, with slashes (string, []string).
type Target struct {
	Label Label
	Rule  *schema.Rule
	Attrs map[string]any
	Edges []Edge       // in the order of the rule's attributes
	Stack []diag.Frame // of the call, innermost first
}

// String returns an attribute of kind [schema.String].
//
// Like the other accessors it panics when the rule has no such attribute of
// that kind, which is a mistake in the program and not in a user's text.
func (t *Target) String(attr string) string { return get[string](t, attr, schema.String) }

// Int returns an attribute of kind [schema.Int].
func (t *Target) Int(attr string) int64 { return get[int64](t, attr, schema.Int) }

// Float returns an attribute of kind [schema.Float].
func (t *Target) Float(attr string) float64 { return get[float64](t, attr, schema.Float) }

// Bool returns an attribute of kind [schema.Bool].
func (t *Target) Bool(attr string) bool { return get[bool](t, attr, schema.Bool) }

// Strings returns an attribute of kind [schema.StringList]; not to be modified.
func (t *Target) Strings(attr string) []string { return get[[]string](t, attr, schema.StringList) }

// Dict returns an attribute of kind [schema.StringDict]; not to be modified.
func (t *Target) Dict(attr string) map[string]string {
	return get[map[string]string](t, attr, schema.StringDict)
}

// LabelOf returns an attribute of kind [schema.Label], and whether it was given.
func (t *Target) LabelOf(attr string) (Label, bool) {
	l := get[Label](t, attr, schema.Label)
	return l, l != Label{}
}

// Labels returns an attribute of kind [schema.LabelList]; not to be modified.
func (t *Target) Labels(attr string) []Label { return get[[]Label](t, attr, schema.LabelList) }

// File returns an attribute of kind [schema.File], and whether it was given.
func (t *Target) File(attr string) (string, bool) {
	f := get[string](t, attr, schema.File)
	return f, f != ""
}

// Files returns an attribute of kind [schema.FileList]; not to be modified.
func (t *Target) Files(attr string) []string { return get[[]string](t, attr, schema.FileList) }

func get[T any](t *Target, attr string, kind schema.Kind) T {
	if a := t.Rule.Attr(attr); a == nil || a.Kind != kind {
		panic(fmt.Sprintf("rule %s has no attribute %q of kind %s", t.Rule.Name, attr, kind))
	}
	v, _ := t.Attrs[attr].(T)
	return v
}
