package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"assay/engine/action"
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
			return a.build(cmd.Context(), needed(actions, gates), flags)
		},
	}
	flags.add(cmd)
	return cmd
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
