// Package docgen writes the reference of rules from their schemas, so that it
// cannot say anything else than the code does.
package docgen

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"assay/starlark/schema"
)

// Markdown writes one section a rule.
func Markdown(w io.Writer, rules []*schema.Rule) error {
	var b strings.Builder
	b.WriteString("# Rules\n\nThis page is generated from the rules' schemas (`go test ./rules -update`).\n\n")
	b.WriteString("Every rule takes `name`. Labels are `\"//package:target\"`, or `\":target\"` in the same package; files are relative to the package.\n")
	b.WriteString("Attributes are part of the target's key, labels and files by the content they stand for, unless a row says otherwise.\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| attribute | type | default | |\n|---|---|---|---|\n", r.Name, r.Doc)
		for _, a := range r.Attrs {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", a.Name, kind(a), value(a), note(a))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func kind(a schema.Attr) string {
	if a.Kind.IsLabel() && len(a.Rules) > 0 {
		return a.Kind.String() + " of " + strings.Join(a.Rules, ", ")
	}
	return a.Kind.String()
}

func value(a schema.Attr) string {
	switch {
	case a.Required:
		return "required"
	case a.Default == nil:
		return ""
	}
	if s, ok := a.Default.(string); ok {
		return fmt.Sprintf("`%q`", s)
	}
	return fmt.Sprintf("`%v`", a.Default)
}

func note(a schema.Attr) string {
	notes := []string{a.Doc}
	if len(a.Values) > 0 {
		notes = append(notes, fmt.Sprintf("One of `%s`.", strings.Join(a.Values, "`, `")))
	}
	if a.PatternDoc != "" {
		notes = append(notes, "Form: "+a.PatternDoc+".")
	}
	switch {
	case a.Min != nil && a.Max != nil:
		notes = append(notes, number(*a.Min)+" to "+number(*a.Max)+".")
	case a.Min != nil:
		notes = append(notes, "At least "+number(*a.Min)+".")
	}
	if a.NotInKey != "" {
		notes = append(notes, "Not in the key: "+a.NotInKey+".")
	}
	return strings.ReplaceAll(strings.Join(notes, " "), "|", `\|`)
}

// number writes a limit without an exponent: limits are read by people.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
