package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"assay/cache/cas"
	"assay/engine"
	"assay/engine/action"
	"assay/engine/key"
	"assay/engine/plan"
	"assay/rules/inventory"
)

// statusSchema is the version of the form of status --json; docs/status.md
// describes it.
const statusSchema = 1

// statusReport is what status --json prints.
type statusReport struct {
	Schema int `json:"schema"`
	// Revision is that of the sources which the rows are set against.
	Revision    inventory.Revision `json:"revision"`
	Inventories []inventoryStatus  `json:"inventories"`
}

type inventoryStatus struct {
	Target string `json:"target"`
	inventory.Inventory
}

func (a *app) statusCommand() *cobra.Command {
	var asJSON, replay bool
	cmd := &cobra.Command{
		Use:   "status [PATTERN...]",
		Short: "Show how far each row of an inventory has come; build and measure nothing",
		Long: "Computes the status of each row of the inventories that the patterns name, of all in the workspace if none is given, from the evidence there is for the stages as they are now. " +
			"What rests on other inputs does not count; what it had come to is shown beside it, with the source revision and time of its samples. Nothing is built or measured.",
		ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := a.status(cmd.Context(), args, replay)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(report)
			}
			return printStatus(a.stdout, report)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the rows, with all their reasons, as JSON")
	cmd.Flags().BoolVar(&replay, "replay", false, "count recorded samples wherever they were made")
	return cmd
}

func (a *app) status(ctx context.Context, patterns []string, replay bool) (*statusReport, error) {
	where := strings.Join(patterns, " ")
	if where == "" {
		where, patterns = "this workspace", []string{"//..."}
	}
	actions, wanted, err := a.load(ctx, patterns)
	if err != nil {
		return nil, err
	}
	inventories := idsOf(wanted)
	for _, x := range actions {
		if x.Rule != inventory.Rule.Schema.Name {
			delete(inventories, x.ID)
		}
	}
	if len(inventories) == 0 {
		return nil, usageError{fmt.Errorf("no inventory in %s: only an inventory has a status", where)}
	}
	actions = needed(actions, inventories)
	eng, err := a.engine(replay)
	if err != nil {
		return nil, err
	}
	verdicts, err := eng.Plan(ctx, actions)
	if err != nil {
		return nil, err
	}
	w := standing{eng: eng, workspace: a.workspace.root, verdicts: map[string]plan.Verdict{}}
	for _, v := range verdicts {
		w.verdicts[v.Action.ID] = v
	}
	report := &statusReport{Schema: statusSchema, Revision: inventory.ReadRevision(ctx, w.workspace)}
	var errs []error
	for _, x := range actions {
		if x.Rule != inventory.Rule.Schema.Name {
			continue
		}
		var rows []inventory.Row
		for _, d := range x.Deps {
			row, err := w.row(w.verdicts[d.ID].Action)
			rows, errs = append(rows, row), append(errs, err)
		}
		report.Inventories = append(report.Inventories, inventoryStatus{x.ID, inventory.Of(rows)})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, actionError{err}
	}
	return report, nil
}

// standing sets rows against the evidence of the stages as they are now.
type standing struct {
	eng       *engine.Engine
	workspace string
	verdicts  map[string]plan.Verdict
}

func (w standing) row(x *action.Action) (inventory.Row, error) {
	declared := inventory.Declare(x.Attrs)
	row, err := inventory.Judge(declared, func(role string) ([]byte, error) { return w.now(x, role) })
	if err != nil {
		return row, fmt.Errorf("%s: %s: %w", x.Where, x.ID, err)
	}
	row.Target = x.ID
	for _, d := range x.Deps {
		if v := w.verdicts[d.ID]; v.State != plan.Cached {
			row.Missing = append(row.Missing, inventory.Missing{Role: d.Role, Why: w.why(v)})
		}
	}
	if row.Missing == nil {
		return row, nil
	}
	before := inventory.Before(declared, func(role string) ([]byte, error) { return w.before(x, role) })
	if before != nil && (before.Status.State.Rung() > row.Status.State.Rung() || before.Measured != nil && row.Measured == nil) {
		before.Changed = w.changed(x)
		row.Earlier = before
	}
	return row, nil
}

// now reads the evidence with a role, if its key is that of the stages as they are.
func (w standing) now(x *action.Action, role string) ([]byte, error) {
	for _, d := range x.Deps {
		if v := w.verdicts[d.ID]; d.Role == role && v.State == plan.Cached {
			return w.read(v.Output, d.Path)
		}
	}
	return nil, nil
}

// before reads the evidence that the last build left, whatever its key.
func (w standing) before(x *action.Action, role string) ([]byte, error) {
	for _, d := range x.Deps {
		if last, ok := w.eng.History().Last(d.ID); d.Role == role && ok {
			return w.read(last.Output, d.Path)
		}
	}
	return nil, nil
}

func (w standing) read(output cas.Ref, path string) ([]byte, error) {
	entry, err := w.eng.Blobs().Lookup(output, path)
	if err != nil {
		return nil, err
	}
	return w.eng.Blobs().Bytes(entry.Ref())
}

// why says why there is no evidence, going back to where it begins.
func (w standing) why(v plan.Verdict) string {
	if v.State == plan.Unknown {
		from := w.verdicts[v.WaitsFor]
		for from.State == plan.Unknown {
			from = w.verdicts[from.WaitsFor]
		}
		return fmt.Sprintf("not known before %s is built (%s)", from.Action.ID, from.Why.Reason)
	}
	return v.Why.Reason
}

// changed names the inputs below x that are others than when it was last built:
// files by their names, all else by the component of the key.
func (w standing) changed(x *action.Action) []string {
	var list []string
	for id := range w.below(x, map[string]bool{}) {
		v := w.verdicts[id]
		for _, c := range v.Why.Changes {
			if c.From != "" {
				continue // its own inputs say it, or it was built since
			}
			what := id + " " + c.Component
			for _, s := range v.Action.Sources {
				if c.Component != key.Path("inputs", s.Role) {
					continue
				}
				if file, err := filepath.Rel(w.workspace, s.Path); err == nil {
					what = filepath.ToSlash(file)
				}
			}
			list = append(list, what)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// below are the evidence of x and all that it needs.
func (w standing) below(x *action.Action, seen map[string]bool) map[string]bool {
	for _, d := range x.Deps {
		if !seen[d.ID] {
			seen[d.ID] = true
			w.below(w.verdicts[d.ID].Action, seen)
		}
	}
	return seen
}

// printStatus is for people: a table for each group, and how many rows are where.
func printStatus(out io.Writer, r *statusReport) error {
	for i, inv := range r.Inventories {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s at source revision %s\n", inv.Target, r.Revision)
		for _, g := range inv.Groups {
			fmt.Fprintf(out, "\n%s: %s\n", g.Name, g.Verdict)
			if len(g.Workload) > 0 {
				fmt.Fprintf(out, "  %s\n", g.Workload)
			}
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			for _, row := range inv.InGroup(g.Name) {
				name, lines := cmp.Or(row.Checkpoint, "–"), row.Explained()
				if row.Role != inventory.Matrix { // the others have a workload of their own
					name += fmt.Sprintf(" (%s)", row.Role)
					lines = slices.Insert(lines, 0, row.Workload.String())
				}
				fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", name, row.Profile, row.Status, strings.Join(lines, "\n  \t\t\t"))
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "\n%s: %s\n", plural(len(inv.Rows), "row"), inv.Tally())
	}
	return nil
}
