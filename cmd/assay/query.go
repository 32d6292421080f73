package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"assay/rules"
	"assay/starlark/graph"
	"assay/starlark/query"
)

func (a *app) queryCommand() *cobra.Command {
	return a.asking("query EXPRESSION", "Ask about the graph of targets",
		`Answers an expression over sets of targets:

  //a:b  //a:all  //a/...        targets by pattern
  deps(x)                        x and all it needs
  rdeps(universe, x)             those of the universe, and of what it needs, that need x
  somepath(a, b)                 one shortest way from a to b
  kind(rule, x)                  those made by the rule
  attr(name, value, x)           those whose attribute has the value, or holds it
  x + y   x ^ y   x - y          union, intersection, difference`,
		oneArgument("an expression such as 'deps(//examples/quickstart:report)'"),
		func(args []string) string { return args[0] })
}

func (a *app) depsCommand() *cobra.Command {
	return a.asking("deps PATTERN...", "List what targets need, and themselves", "", atLeastOnePattern,
		func(args []string) string { return "deps(" + quote(args...) + ")" })
}

func (a *app) rdepsCommand() *cobra.Command {
	var universe string
	cmd := a.asking("rdeps PATTERN...", "List what needs targets, and themselves", "", atLeastOnePattern,
		func(args []string) string { return "rdeps(" + quote(universe) + ", " + quote(args...) + ")" })
	cmd.Flags().StringVar(&universe, "universe", "//...", "where to look: a pattern")
	return cmd
}

func (a *app) somepathCommand() *cobra.Command {
	return a.asking("somepath FROM TO", "Show one way by which a target needs another", "",
		func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError{fmt.Errorf("%s takes two targets, the one that needs and the one that is needed; got %d", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		func(args []string) string { return "somepath(" + quote(args[0]) + ", " + quote(args[1]) + ")" })
}

// quote writes patterns as one operand.
func quote(patterns ...string) string {
	quoted := make([]string, len(patterns))
	for i, p := range patterns {
		quoted[i] = "'" + p + "'"
	}
	return "(" + strings.Join(quoted, " + ") + ")"
}

// asking makes a command that answers the expression that its arguments stand for.
func (a *app) asking(use, short, long string, args cobra.PositionalArgs, expression func(args []string) string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: args,
		ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(outputs, output) {
				return usageError{fmt.Errorf("--output %q: it is %s", output, strings.Join(outputs, ", "))}
			}
			targets, err := a.ask(cmd.Context(), expression(args))
			if err != nil {
				return err
			}
			return a.printTargets(targets, output)
		},
	}
	cmd.Flags().StringVar(&output, "output", "label", "what is printed of each target: "+strings.Join(outputs, ", "))
	return cmd
}

var outputs = []string{"label", "kind", "json"}

// ask loads what an expression speaks of and answers it.
func (a *app) ask(ctx context.Context, expression string) ([]*graph.Target, error) {
	if err := a.enter(); err != nil {
		return nil, err
	}
	q, err := query.Parse(expression, a.workspace.pkg, rules.Schemas())
	if err != nil {
		return nil, usageError{err}
	}
	g, err := a.graph(ctx, q.Patterns())
	if err != nil {
		return nil, err
	}
	return q.Eval(g)
}

// enter finds the workspace.
func (a *app) enter() error {
	w, err := findWorkspace()
	if err == nil {
		a.workspace = w
	}
	return err
}

func (a *app) printTargets(targets []*graph.Target, output string) error {
	if output == "json" {
		return a.printJSON(describeTargets(targets))
	}
	var errs []error
	for _, t := range targets {
		line := t.Label.String()
		if output == "kind" {
			line = t.Rule.Name + " " + line
		}
		_, err := fmt.Fprintln(a.stdout, line)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// targetRow is a target as `--output json` prints it.
type targetRow struct {
	Target string         `json:"target"`
	Rule   string         `json:"rule"`
	Where  string         `json:"where,omitempty"`
	Attrs  map[string]any `json:"attrs"`
	Needs  []string       `json:"needs"`
}

func describeTargets(targets []*graph.Target) []targetRow {
	rows := []targetRow{}
	for _, t := range targets {
		row := targetRow{Target: t.Label.String(), Rule: t.Rule.Name, Attrs: map[string]any{}, Needs: []string{}}
		if len(t.Stack) > 0 {
			row.Where = t.Stack[0].String()
		}
		for name, value := range t.Attrs {
			row.Attrs[name] = plain(value)
		}
		for _, e := range t.Edges {
			if to := e.To.String(); !slices.Contains(row.Needs, to) {
				row.Needs = append(row.Needs, to)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// plain writes labels as people do; a label that was not given is null.
func plain(value any) any {
	switch v := value.(type) {
	case graph.Label:
		if v == (graph.Label{}) {
			return nil
		}
		return v.String()
	case []graph.Label:
		labels := []string{}
		for _, l := range v {
			labels = append(labels, l.String())
		}
		return labels
	}
	return value
}

// printJSON prints v for people and programs.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
