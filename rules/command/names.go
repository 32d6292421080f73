package command

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"assay/engine/action"
	"assay/rules/internal/rule"
	"assay/starlark/diag"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// names are the inputs of a step by the names that placeholders use. They are
// the inputs' roles too, so the key depends on labels and folders only as far
// as the program can see them.
type names map[string]origin

type origin string

const (
	fromWorkspace origin = "a file of the workspace"
	fromTarget    origin = "the output of a target"
)

// declareInputs names the files and the outputs of targets that the step reads.
func declareInputs(c *rule.Context, t *graph.Target, a *action.Action) (names, []schema.Problem) {
	n := names{}
	var problems []schema.Problem
	add := func(attr, what, role string, o origin) bool {
		if _, taken := n[role]; taken {
			problems = append(problems, schema.Problem{Attr: attr,
				Message: fmt.Sprintf("%s would be the input %q, and so would another one", what, role), Hint: "rename one of them"})
			return false
		}
		n[role] = o
		return true
	}
	for _, file := range t.Files("inputs") {
		role, inPackage := strings.CutPrefix(file, t.Label.Package+"/")
		if !inPackage && t.Label.Package != "" {
			role = path.Base(file)
		}
		if add("inputs", file, role, fromWorkspace) {
			a.Sources = append(a.Sources, action.Source{Role: role, Path: c.Path(file)})
		}
	}
	for _, label := range t.Labels("deps") {
		role := "deps/" + label.Name
		if add("deps", label.String(), role, fromTarget) {
			a.Deps = append(a.Deps, action.Dep{Role: role, ID: label.String()})
		}
	}
	for _, role := range n.sorted() {
		for dir := path.Dir(role); dir != "."; dir = path.Dir(dir) {
			if _, file := n[dir]; file {
				problems = append(problems, schema.Problem{Attr: "inputs",
					Message: fmt.Sprintf("the inputs %q and %q cannot both be there", dir, role), Hint: "rename one of them"})
			}
		}
	}
	return n, problems
}

func (n names) sorted() []string { return slices.Sorted(maps.Keys(n)) }

// placeholder matches what is replaced in arguments. Other braces are the
// program's own.
var placeholder = regexp.MustCompile(`\{(in:[^{}]*|out|tmp)\}`)

// check looks for placeholders of inputs that were not declared.
func (n names) check(attr, text string) []schema.Problem {
	var problems []schema.Problem
	for _, match := range placeholder.FindAllStringSubmatch(text, -1) {
		role, isInput := strings.CutPrefix(match[1], "in:")
		if _, known := n[role]; !isInput || known {
			continue
		}
		p := schema.Problem{Attr: attr, Message: fmt.Sprintf("%s names no input", match[0])}
		if near := diag.Suggest(role, n.sorted()); near != "" {
			p.Hint = fmt.Sprintf("did you mean {in:%s}?", near)
		} else if len(n) > 0 {
			p.Hint = "the inputs are " + strings.Join(n.sorted(), ", ")
		}
		problems = append(problems, p)
	}
	return problems
}

// fill replaces the placeholders in text by what path says of them.
func fill(text string, path func(name string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(match string) string {
		return path(match[1 : len(match)-1])
	})
}
