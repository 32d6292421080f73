// Package inventory is the rules `inventory_row` and `inventory`: the matrix of what
// is to be qualified, a row for each checkpoint, profile and workload, with a status
// that is computed from the row's evidence.
package inventory

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"assay/engine/action"
	"assay/rules/internal/host"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/rule"
	"assay/rules/internal/status"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// File is the output, an Inventory.
const File = "inventory.json"

// Inventory is inventory.json: all rows, and what they say of their groups.
type Inventory struct {
	Version int     `json:"version"`
	Rows    []Row   `json:"rows"` // those of a group one after the other
	Groups  []Group `json:"groups"`
}

// Revision is the state of the sources that an inventory is reconciled with.
type Revision = host.Revision

// ReadRevision asks git about a workspace.
func ReadRevision(ctx context.Context, workspace string) Revision {
	return host.ReadRevision(ctx, workspace)
}

// Group is all rows of one workload.
type Group struct {
	Name string `json:"name"`
	// Workload is that of the matrix's rows; the others may have their own.
	Workload Workload `json:"workload,omitempty"`
	// Complete says that every supported row of the matrix is qualified, and that
	// there is one.
	Complete bool `json:"complete"`
	// Verdict says so in words, with what is missing.
	Verdict string `json:"verdict"`
	// Supported and Qualified count rows of the matrix, Others the rows that never
	// count: pilots, fixtures, smoke runs, demonstrations.
	Supported int `json:"supported"`
	Qualified int `json:"qualified"`
	Others    int `json:"others"`
	// Counts are the rows of the matrix by state, OtherCounts the others.
	Counts      map[status.State]int `json:"counts"`
	OtherCounts map[status.State]int `json:"other_counts"`
}

// Of orders rows by their groups, which come as they first appear, and judges each.
func Of(rows []Row) Inventory {
	inv := Inventory{Version: 1, Rows: []Row{}, Groups: []Group{}}
	var names []string
	for _, r := range rows {
		if !slices.Contains(names, r.Group) {
			names = append(names, r.Group)
		}
	}
	for _, name := range names {
		g := Group{Name: name, Counts: map[status.State]int{}, OtherCounts: map[status.State]int{}}
		for _, r := range rows {
			if r.Group != name {
				continue
			}
			inv.Rows = append(inv.Rows, r)
			switch {
			case r.Role != Matrix:
				g.Others++
				g.OtherCounts[r.Status.State]++
				continue
			case r.Status.State == status.Qualified:
				g.Qualified++
			}
			g.Workload = r.Workload
			if r.Status.State != status.Unsupported {
				g.Supported++
			}
			g.Counts[r.Status.State]++
		}
		g.Complete = g.Supported > 0 && g.Qualified == g.Supported
		g.Verdict = g.verdict()
		inv.Groups = append(inv.Groups, g)
	}
	return inv
}

func (g Group) verdict() string {
	switch {
	case len(g.Counts) == 0:
		return "incomplete: no row counts for it"
	case g.Supported == 0:
		return "incomplete: no row is supported"
	}
	verdict := "incomplete"
	if g.Complete {
		verdict = "complete"
	}
	verdict += fmt.Sprintf(": %d of %d supported rows are qualified", g.Qualified, g.Supported)
	if n := g.Counts[status.Unsupported]; n > 0 { // whoever calls a row unsupported makes its group smaller
		verdict += fmt.Sprintf("; unsupported: %d", n)
	}
	return verdict
}

// InGroup are the rows of a group, in their order.
func (inv Inventory) InGroup(group string) []Row {
	return slices.DeleteFunc(slices.Clone(inv.Rows), func(r Row) bool { return r.Group != group })
}

// Counts are all rows by state.
func (inv Inventory) Counts() map[status.State]int {
	counts := map[status.State]int{}
	for _, r := range inv.Rows {
		counts[r.Status.State]++
	}
	return counts
}

// Rule is the rule `inventory`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "inventory", Version: 1,
		Doc: "The matrix of what is to be qualified: all rows with their status, and a verdict on each group.",
		Attrs: []schema.Attr{
			{Name: "rows", Kind: schema.LabelList, Required: true, Rules: []string{"inventory_row"}, Doc: "The rows. No two may be of the same checkpoint, profile and workload."},
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	rows := t.Labels("rows")
	var problems []schema.Problem
	seen, workloads := map[string]graph.Label{}, map[string]graph.Label{}
	for i, label := range rows {
		a.Deps = append(a.Deps, action.Dep{Role: role(i), ID: label.String(), Path: RowFile})
		row, _ := c.Graph.Target(label)
		d := Declare(row.Attrs)
		if first, taken := seen[d.identity()]; taken {
			problems = append(problems, schema.Problem{Attr: "rows",
				Message: fmt.Sprintf("%s and %s are the same row: %s, %s, %s in group %s", first, label, d.Checkpoint, d.Profile, d.Workload, d.Group),
				Hint:    "a variant has a profile of its own; a workload says all in which it differs"})
		}
		seen[d.identity()] = label
		if d.Role != Matrix {
			continue
		}
		first, ok := workloads[d.Group]
		if !ok {
			workloads[d.Group] = label
			continue
		}
		if other, _ := c.Graph.Target(first); !maps.Equal(Declare(other.Attrs).Workload, d.Workload) {
			problems = append(problems, schema.Problem{Attr: "rows",
				Message: fmt.Sprintf("group %s has the workload %q in %s and %q in %s; a group is all rows of one workload", d.Group, Declare(other.Attrs).Workload.String(), first, d.Workload.String(), label)})
		}
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		list := make([]Row, len(rows))
		for i := range list {
			if err := jsonfile.Read(run.Input(role(i)), &list[i]); err != nil {
				return err
			}
		}
		return jsonfile.Write(filepath.Join(run.Out, File), Of(list))
	}
	return problems
}

func role(i int) string { return fmt.Sprintf("rows/%03d", i) }

// Tally is the rows by state in words, from the highest rung down.
func (inv Inventory) Tally() string {
	counts := inv.Counts()
	var parts []string
	for _, state := range status.States {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}
