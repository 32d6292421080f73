package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"assay/engine"
	"assay/engine/action"
)

func (a *app) samplesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "samples",
		Short: "List, reject and add samples of a measurement",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.samplesListCommand(), a.samplesRejectCommand(), a.samplesAddCommand())
	return cmd
}

func (a *app) samplesListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list TARGET",
		Short: "List the samples of a measurement: used, not used, rejected",
		Long:  "Lists the samples of a measurement as it is declared now, those of its key, with what becomes of each.",
		Args:  oneArgument("a measurement"), ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, s, err := a.series(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, sample := range s.All {
				state := "not used"
				switch {
				case sample.Rejected != "":
					state = "rejected: " + sample.Rejected
				case s.Used(sample.ID):
					state = "used"
				}
				took := sample.Finished.Sub(sample.Started)
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", sample.ID, sample.Started.Local().Format(time.DateTime), round(took), state)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %s, %d of %d wanted used\n", s.Action.ID, plural(len(s.All), "sample"), len(s.Samples), s.Action.Samples)
			return err
		},
	}
}

func (a *app) samplesRejectCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "reject TARGET SAMPLE --reason TEXT",
		Short: "Reject a sample for good; the next build measures another",
		Long: "Rejects a sample, named by its ID or the start of it. The sample is kept as it is, with the reason beside it, and is never pooled again. " +
			"A rejection cannot be taken back: a sample that was once doubted stays doubted.",
		Args:              exactArguments(2, "a measurement and a sample"),
		ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usageError{fmt.Errorf("%s needs --reason: whoever reads the samples later must know why this one does not count", cmd.CommandPath())}
			}
			eng, s, err := a.series(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			sample, err := eng.Reject(cmd.Context(), s, args[1], reason)
			if err != nil {
				return actionError{err}
			}
			_, err = fmt.Fprintf(a.stdout, "sample %s of %s is rejected: %s\n", sample.ID, s.Action.ID, reason)
			return err
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why the sample may not be used")
	return cmd
}

func (a *app) samplesAddCommand() *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "add TARGET [N]",
		Short: "Measure more samples than the target asks for",
		Long: "Builds a measurement and then measures N samples more, 1 if not said. The key is what it was, so they join the same series. " +
			"The target pools the oldest it asks for: raise its attribute samples to use them all.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageError{fmt.Errorf("%s takes a measurement and, if wanted, a number; got %d arguments", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			more := 1
			if len(args) == 2 {
				n, err := strconv.Atoi(args[1])
				if err != nil || n < 1 || n > 100 {
					return usageError{fmt.Errorf("%q is not a number of samples from 1 to 100", args[1])}
				}
				more = n
			}
			if err := flags.check(); err != nil {
				return err
			}
			return a.addSamples(cmd.Context(), args[0], more, flags)
		},
	}
	flags.addConsole(cmd)
	return cmd
}

// addSamples builds the measurement as declared first, so that what is added
// comes on top of what is wanted.
func (a *app) addSamples(ctx context.Context, target string, more int, flags buildFlags) error {
	actions, m, err := a.measurement(ctx, target)
	if err != nil {
		return err
	}
	if err := a.build(ctx, actions, flags); err != nil {
		return err
	}
	eng, err := a.engine(false)
	if err != nil {
		return err
	}
	// As many as there could be tells how many there are.
	wanted := m.Samples
	m.Samples = int(^uint(0) >> 1)
	s, err := eng.Samples(ctx, actions, m.ID)
	if err != nil {
		return actionError{err}
	}
	m.Samples = len(s.Samples) + more
	if err := a.build(ctx, actions, flags); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s has %s to use and pools %d; its attribute samples says how many\n", m.ID, plural(m.Samples, "sample"), wanted)
	return err
}

// measurement loads one target that measures, with what it needs.
func (a *app) measurement(ctx context.Context, target string) ([]*action.Action, *action.Action, error) {
	actions, wanted, err := a.load(ctx, []string{target})
	if err != nil {
		return nil, nil, err
	}
	if len(wanted) != 1 {
		return nil, nil, usageError{fmt.Errorf("%s names %d targets; name one measurement", target, len(wanted))}
	}
	i := slices.IndexFunc(actions, func(x *action.Action) bool { return x.ID == wanted[0].String() })
	if m := actions[i]; m.Class != action.Measurement {
		return nil, nil, usageError{fmt.Errorf("%s is made by %s, which measures nothing: it has a result and no samples", m.ID, m.Rule)}
	}
	return actions, actions[i], nil
}

func (a *app) series(ctx context.Context, target string) (*engine.Engine, *engine.Series, error) {
	actions, m, err := a.measurement(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	eng, err := a.engine(false)
	if err != nil {
		return nil, nil, err
	}
	s, err := eng.Samples(ctx, actions, m.ID)
	if err != nil {
		return nil, nil, actionError{err}
	}
	return eng, s, nil
}

// exactArguments is the check of a command that takes n.
func exactArguments(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("%s takes %s; got %s", cmd.CommandPath(), what, plural(len(args), "argument"))}
		}
		return nil
	}
}
