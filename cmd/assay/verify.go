package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"assay/starlark/graph"
)

func (a *app) verifyCommand() *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "verify PATTERN...",
		Short: "Run pure targets again and compare with what was recorded",
		Long: "Runs pure targets again in a scratch place, on the recorded outputs of what they need, and compares each file byte for byte. " +
			"No record is changed. What is not pure, or was never built, is named and passed over; if nothing was compared, that is an error.",
		Args: atLeastOnePattern, ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			actions, labels, err := a.load(cmd.Context(), args)
			if err != nil {
				return err
			}
			eng, err := a.engine(false)
			if err != nil {
				return err
			}
			wanted := idsOf(labels)
			console := newConsole(flags.console, a.stderr)
			checks, err := eng.Verify(cmd.Context(), actions, func(id string) bool { return wanted[id] }, console)
			console.Close()
			if err != nil {
				return err
			}
			same, differ := 0, 0
			var failed []error
			for _, c := range checks {
				switch {
				case c.Skipped != "":
					fmt.Fprintf(a.stdout, "skipped  %s  (%s)\n", c.Action.ID, c.Skipped)
				case c.Err != nil:
					fmt.Fprintf(a.stdout, "failed   %s\n", c.Action.ID)
					failed = append(failed, fmt.Errorf("%s: %s failed: %w", c.Action.Where, c.Action.ID, c.Err))
				case len(c.Differences) > 0:
					differ++
					fmt.Fprintf(a.stdout, "differs  %s\n", c.Action.ID)
					for _, d := range c.Differences {
						fmt.Fprintf(a.stdout, "         %s %s\n", d.Path, d.What)
					}
				default:
					same++
					fmt.Fprintf(a.stdout, "same     %s  %s\n", c.Action.ID, round(c.Elapsed))
				}
			}
			if differ > 0 {
				failed = append(failed, fmt.Errorf("%s made other bytes than recorded: its rule is not pure, or the machine changed something it does not declare", plural(differ, "target")))
			}
			if same+differ == 0 && len(failed) == 0 {
				failed = append(failed, errors.New("nothing was compared; build the targets first"))
			}
			if len(failed) > 0 {
				return actionError{errors.Join(failed...)}
			}
			return nil
		},
	}
	flags.addConsole(cmd)
	return cmd
}

func idsOf(labels []graph.Label) map[string]bool {
	ids := map[string]bool{}
	for _, l := range labels {
		ids[l.String()] = true
	}
	return ids
}
