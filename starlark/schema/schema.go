// Package schema describes rules and their attributes as data. One table per
// rule serves the checks on a user's call, the content key of a target, and the
// generated reference, so the three cannot disagree.
package schema

import (
	"maps"
	"regexp"
	"slices"
)

// A Kind is the type of an attribute.
type Kind int

// The kinds, with the Go type of their values after [Rule.Unpack].
const (
	String     Kind = iota + 1 // string
	Int                        // int64
	Float                      // float64, always finite
	Bool                       // bool
	StringList                 // []string
	StringDict                 // map[string]string
	Label                      // string, as written
	LabelList                  // []string, as written
	File                       // string, as written
	FileList                   // []string, as written
)

var kinds = [...]struct {
	name, phrase string
	zero         any
}{
	String:     {"string", "a string", ""},
	Int:        {"int", "an int", int64(0)},
	Float:      {"float", "a float", 0.0},
	Bool:       {"bool", "True or False", false},
	StringList: {"string list", "a list of strings", []string{}},
	StringDict: {"string dict", "a dict of strings", map[string]string{}},
	Label:      {"label", `a label such as "//pkg:name"`, ""},
	LabelList:  {"label list", "a list of labels", []string{}},
	File:       {"file", "a file name", ""},
	FileList:   {"file list", "a list of file names", []string{}},
}

func (k Kind) valid() bool { return k >= String && k <= FileList }

// String returns the name of the kind as the reference prints it.
func (k Kind) String() string {
	if !k.valid() {
		return "invalid kind"
	}
	return kinds[k].name
}

// IsLabel reports whether values of the kind name targets.
func (k Kind) IsLabel() bool { return k == Label || k == LabelList }

// IsFile reports whether values of the kind name files.
func (k Kind) IsFile() bool { return k == File || k == FileList }

// An Attr is one attribute of a rule.
type Attr struct {
	Name     string
	Kind     Kind
	Required bool
	Default  any // of the kind's Go type; nil stands for its zero value
	Doc      string

	Rules      []string // labels: names of the accepted rules; empty accepts all
	Values     []string // strings and their lists: the allowed ones; empty allows all
	Pattern    string   // strings and their lists: regular expression for the whole of each
	PatternDoc string   // what Pattern asks for, in words
	Min, Max   *float64 // numbers: inclusive range

	// NotInKey says why the attribute has no influence on the result and is left
	// out of content keys. Empty means that it is part of the key.
	NotInKey string
}

// zero returns the value of an attribute that was not given. The caller owns it.
func (a *Attr) zero() any {
	v := a.Default
	if v == nil {
		v = kinds[a.Kind].zero
	}
	switch v := v.(type) {
	case []string:
		return append([]string{}, v...)
	case map[string]string:
		return maps.Clone(v)
	}
	return v
}

// A Rule is a kind of target. Each rule also has the attribute "name", which is
// required, identifies the target and is neither listed nor part of keys.
type Rule struct {
	Name    string
	Version int // raised when the same attributes come to mean something else
	Doc     string
	Attrs   []Attr

	// Check looks for mistakes that involve several attributes. It is only called
	// with complete values, each of them valid by itself. It may be nil.
	Check func(values map[string]any) []Problem
}

// A Problem is a mistake in one call of a rule.
type Problem struct {
	Attr    string // the attribute at fault; empty when it is the call
	Message string
	Hint    string // may be empty
}

// Attr returns the attribute with the given name, or nil.
func (r *Rule) Attr(name string) *Attr {
	i := slices.IndexFunc(r.Attrs, func(a Attr) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Attrs[i]
}

// KeyAttrs returns those of the values that belong in a content key by
// themselves. Labels and files enter a key by the digest of what they name.
func (r *Rule) KeyAttrs(values map[string]any) map[string]any {
	key := make(map[string]any)
	for _, a := range r.Attrs {
		if a.NotInKey != "" || a.Kind.IsLabel() || a.Kind.IsFile() {
			continue
		}
		if v, ok := values[a.Name]; ok {
			key[a.Name] = v
		}
	}
	return key
}

// NamePattern is what target names, and the folders of packages, look like.
const NamePattern = `[A-Za-z0-9_][A-Za-z0-9_.+-]*`

var name = regexp.MustCompile(`^` + NamePattern + `$`)

// ValidName reports whether s can be the name of a target or the folder of a
// package. It must keep labels free of quoting and of path tricks.
func ValidName(s string) bool { return name.MatchString(s) }
