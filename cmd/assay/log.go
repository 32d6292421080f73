package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"assay/engine/event"
	"assay/engine/journal"
	"assay/engine/layout"
)

func (a *app) logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Look into the logs of builds",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.reading("list", "List the builds of this workspace, the latest first", nil),
		a.reading("show [BUILD]", "Print what a build said; the last one if none is named", a.logShow),
		a.reading("what-ran [BUILD]", "List what ran in a build, why, and how long", a.logWhatRan),
		a.reading("critical-path [BUILD]", "Show the chain of actions that a build had to wait for", a.logCriticalPath),
	)
	return cmd
}

// reading makes a command on the log of one build; without show it lists them.
func (a *app) reading(use, short string, show func(*journal.Build) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%s takes at most one build, by its name or the start of it; got %d", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.enter(); err != nil {
				return err
			}
			cache, err := a.cacheDir()
			if err != nil {
				return err
			}
			logs, checkout := layout.Dir(cache).Logs(), layout.Checkout(a.workspace.root)
			if show == nil {
				return a.logList(logs, checkout)
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			b, err := journal.Open(logs, name, checkout)
			if err != nil {
				return actionError{err}
			}
			return show(b)
		},
	}
}

func (a *app) logList(logs, checkout string) error {
	names, err := journal.Names(logs)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, name := range names {
		b, err := journal.Read(logs, name)
		if err != nil || b.Checkout() != checkout {
			continue // another workspace's, or one that log show tells about
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d ran\n", name, b.Events[0].Time.Local().Format(time.DateTime), round(b.Span()), len(b.Ran()))
	}
	return w.Flush()
}

func (a *app) logShow(b *journal.Build) error {
	for _, e := range b.Events {
		at := e.Time.Local().Format("15:04:05.000")
		var err error
		switch e.Kind {
		case event.Begin:
			_, err = fmt.Fprintf(a.stdout, "%s build %s of %s\n", at, b.Invocation, plural(e.Total, "target"))
		case event.Note:
			_, err = fmt.Fprintf(a.stdout, "%s note %s\n", at, e.What)
		case event.Started:
			_, err = fmt.Fprintf(a.stdout, "%s started %s  (%s)\n", at, e.Action, e.Reason)
		case event.Progress:
			what := e.What
			if e.Total > 0 {
				what = fmt.Sprintf("%d/%d %s", e.Done, e.Total, e.What)
			}
			_, err = fmt.Fprintf(a.stdout, "%s %s: %s\n", at, e.Action, what)
		case event.Finished:
			reason := ""
			if e.Status == event.Skipped {
				reason = "  (" + e.Reason + ")"
			}
			_, err = fmt.Fprintf(a.stdout, "%s %s %s%s\n", at, e.Status, e.Action, reason)
			if err == nil && e.Error != "" {
				_, err = fmt.Fprintf(a.stdout, "  %s\n", e.Error)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) logWhatRan(b *journal.Build) error {
	return a.printRun(b.Ran(), "nothing ran in build "+b.Invocation)
}

func (a *app) logCriticalPath(b *journal.Build) error {
	path := b.CriticalPath()
	if err := a.printRun(path, "nothing ran in build "+b.Invocation); err != nil || len(path) == 0 {
		return err
	}
	sum := 0.0
	for _, e := range path {
		sum += e.Seconds
	}
	_, err := fmt.Fprintf(a.stdout, "%s of the %s that the build took\n", seconds(sum), round(b.Span()))
	return err
}

func (a *app) printRun(ran []event.Event, none string) error {
	if len(ran) == 0 {
		_, err := fmt.Fprintln(a.stdout, none)
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, e := range ran {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Status, seconds(e.Seconds), e.Action, e.Reason)
	}
	return w.Flush()
}

func seconds(s float64) time.Duration { return round(time.Duration(s * float64(time.Second))) }
