// Package rules is the table of rules, and the step from targets to actions.
package rules

import (
	"fmt"
	"slices"
	"strings"

	"assay/engine/action"
	"assay/rules/aiperfrun"
	"assay/rules/bundle"
	"assay/rules/checkpoint"
	"assay/rules/command"
	"assay/rules/compare"
	"assay/rules/conversations"
	"assay/rules/family"
	"assay/rules/importrun"
	"assay/rules/internal/rule"
	"assay/rules/inventory"
	"assay/rules/join"
	"assay/rules/publish"
	"assay/rules/pythonenv"
	"assay/rules/serve"
	"assay/rules/sweep"
	"assay/rules/trace"
	"assay/rules/validatefamily"
	"assay/starlark/diag"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Host tells where this machine keeps wheels and environments.
type Host = rule.Host

var all = []rule.Rule{
	checkpoint.Rule, pythonenv.Rule, family.Rule, bundle.Rule,
	serve.Rule, validatefamily.Rule, aiperfrun.Rule, join.Rule, publish.Rule,
	command.Rule, compare.Rule, importrun.Rule, conversations.Rule, trace.Rule, inventory.RowRule, inventory.Rule,
	sweep.Rule, sweep.StopRule,
}

// Schemas lists the schema of every rule.
func Schemas() []*schema.Rule {
	var schemas []*schema.Rule
	for _, r := range all {
		schemas = append(schemas, r.Schema)
	}
	return schemas
}

// Analyze turns the wanted targets, and all they depend on, into actions in
// dependency order. The error is a diag.List of everything that is wrong.
func Analyze(workspace string, g *graph.Graph, wanted []graph.Label, h Host) ([]*action.Action, error) {
	byName := map[string]rule.Rule{}
	for _, r := range all {
		byName[r.Schema.Name] = r
	}
	needed := closure(g, wanted)
	c := &rule.Context{Workspace: workspace, Graph: g, Host: h}
	var actions []*action.Action
	var problems diag.Collector
	for _, t := range g.Topological() {
		if !needed[t.Label] {
			continue
		}
		r := byName[t.Rule.Name]
		a := &action.Action{
			ID: t.Label.String(), Where: where(t), Rule: t.Rule.Name, Version: t.Rule.Version,
			Class: r.Class, Attrs: t.Rule.KeyAttrs(t.Attrs), Tools: map[string]string{},
		}
		for _, p := range r.Analyze(c, t, a) {
			problems.Add(diag.Diagnostic{
				Message: fmt.Sprintf("%s: attribute %q: %s", t.Label, p.Attr, p.Message),
				Stack:   t.Stack, Hint: p.Hint,
			})
		}
		actions = append(actions, a)
	}
	problems.Add(contested(g, byName)...)
	return actions, problems.Err()
}

// contested reports folders that two targets own, or that are packages.
func contested(g *graph.Graph, byName map[string]rule.Rule) []diag.Diagnostic {
	var problems []diag.Diagnostic
	owners := map[string]*graph.Target{}
	for _, t := range g.Targets() {
		r := byName[t.Rule.Name]
		if r.Owns == nil {
			continue
		}
		dir := r.Owns(t)
		for other, owner := range owners {
			if other == dir || strings.HasPrefix(dir+"/", other+"/") || strings.HasPrefix(other+"/", dir+"/") {
				problems = append(problems, diag.Diagnostic{
					Message: fmt.Sprintf("%s writes the folder %s, and %s writes %s", t.Label, dir, owner.Label, other),
					Stack:   t.Stack,
					Notes:   []diag.Note{{Frame: owner.Stack[0], Text: "declared here"}},
					Hint:    "give each a folder of its own",
				})
			}
		}
		for _, pkg := range g.Packages() {
			if strings.HasPrefix(pkg+"/", dir+"/") {
				problems = append(problems, diag.Diagnostic{
					Message: fmt.Sprintf("%s writes the folder %s, which holds the package //%s", t.Label, dir, pkg), Stack: t.Stack,
				})
			}
		}
		owners[dir] = t
	}
	return problems
}

func closure(g *graph.Graph, wanted []graph.Label) map[graph.Label]bool {
	needed := map[graph.Label]bool{}
	todo := slices.Clone(wanted)
	for len(todo) > 0 {
		label := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if needed[label] {
			continue
		}
		needed[label] = true
		if t, ok := g.Target(label); ok {
			for _, e := range t.Edges {
				todo = append(todo, e.To)
			}
		}
	}
	return needed
}

func where(t *graph.Target) string {
	if len(t.Stack) == 0 {
		return t.Label.String()
	}
	return t.Stack[0].String()
}
