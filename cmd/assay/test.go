package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"assay/engine"
	"assay/engine/action"
	"assay/engine/event"
	"assay/rules/validatefamily"
)

func (a *app) testCommand() *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "test PATTERN...",
		Short: "Build the gates among targets, and only what these need",
		Long: "Builds the gates that the patterns name: targets whose result is a verdict. Nothing is measured for them. " +
			"Ends with exit code 5 if a gate ran and did not pass.",
		Args: atLeastOnePattern, ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			actions, labels, err := a.load(cmd.Context(), args)
			if err != nil {
				return err
			}
			gates := idsOf(labels)
			for _, x := range actions {
				if x.Verdict == nil {
					delete(gates, x.ID)
				}
			}
			if len(gates) == 0 {
				_, err := fmt.Fprintf(a.stdout, "no gate in %s: nothing to test\n", strings.Join(args, " "))
				return err
			}
			flags.verdicts = true
			return a.build(cmd.Context(), needed(actions, gates), flags)
		},
	}
	flags.add(cmd)
	return cmd
}

// printVerdicts prints what validations that passed say.
func (a *app) printVerdicts(w io.Writer, eng *engine.Engine, r *engine.Report) error {
	for _, o := range r.Outcomes {
		if o.Action.Rule != validatefamily.Rule.Schema.Name || o.Output.Digest == "" || o.Status == event.GateFailed {
			continue
		}
		v, err := validatefamily.ReadVerdict(o.Output, eng.Blobs())
		if err != nil {
			return fmt.Errorf("%s: %w", o.Action.ID, err)
		}
		fmt.Fprintf(w, "%s: %s\n", o.Action.ID, v.Summary())
	}
	return nil
}

// needed keeps the wanted actions and what they depend on; actions are in
// dependency order.
func needed(actions []*action.Action, wanted map[string]bool) []*action.Action {
	var kept []*action.Action
	for _, x := range slices.Backward(actions) {
		if !wanted[x.ID] {
			continue
		}
		for _, d := range x.Deps {
			wanted[d.ID] = true
		}
		kept = append(kept, x)
	}
	slices.Reverse(kept)
	return kept
}
