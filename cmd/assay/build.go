package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"assay/engine"
	"assay/engine/action"
	"assay/engine/event"
)

// actionError marks the failure of an action, as opposed to one of Assay.
type actionError struct{ error }

func (e actionError) Unwrap() error { return e.error }

// gateError marks gates that did not pass where nothing failed.
type gateError struct{ error }

func (e gateError) Unwrap() error { return e.error }

func (a *app) buildCommand() *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "build PATTERN...",
		Short: "Build targets and what they depend on; run only what changed",
		Long: "Builds the targets that the patterns name. A pattern is //package:target, //package (the target named like its folder), " +
			"//package:all or //package/... for a whole subtree.",
		Args:              atLeastOnePattern,
		ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			actions, _, err := a.load(cmd.Context(), args)
			if err != nil {
				return err
			}
			return a.build(cmd.Context(), actions, flags)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&flags.replay, "replay", false, "take recorded samples wherever they were made; never measure")
	return cmd
}

// buildFlags are the flags of the commands that build.
type buildFlags struct {
	console string
	replay  bool
	report  string // file for the report, "-" for the standard output
	events  string // file for the events, likewise
	summary string // file for the Markdown summary, likewise
	// verdicts prints what gates that passed say; one that did not is an error anyway.
	verdicts bool
}

func (f *buildFlags) add(cmd *cobra.Command) {
	f.addConsole(cmd)
	cmd.Flags().StringVar(&f.report, "json", "", "write the report of the build to this `FILE`, - for the standard output")
	cmd.Flags().StringVar(&f.events, "events", "", "write the events of the build to this `FILE` as JSON lines while it runs, - for the standard output")
	cmd.Flags().StringVar(&f.summary, "summary", "", "write a Markdown summary of the build to this `FILE`: what ran and why, gates, and what changed in published numbers; - for the standard output")
}

func (f *buildFlags) addConsole(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.console, "console", "auto", "how progress is shown: "+strings.Join(consoles, ", "))
}

// check finds mistakes before anything is loaded.
func (f *buildFlags) check() error {
	var errs []error
	if !slices.Contains(consoles, f.console) {
		errs = append(errs, fmt.Errorf("--console %q: it is %s", f.console, strings.Join(consoles, ", ")))
	}
	var standard []string
	for _, out := range []struct{ flag, file string }{{"--json -", f.report}, {"--events -", f.events}, {"--summary -", f.summary}} {
		if out.file == "-" {
			standard = append(standard, out.flag)
		}
	}
	if len(standard) > 1 {
		errs = append(errs, fmt.Errorf("%s would mix on the standard output; write all but one to a file", strings.Join(standard, " and ")))
	}
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

func (a *app) build(ctx context.Context, actions []*action.Action, flags buildFlags) error {
	started := time.Now()
	eng, err := a.engine(flags.replay)
	if err != nil {
		return err
	}
	console := newConsole(flags.console, a.stderr)
	sink, events := event.Sink(console), (*eventFile)(nil)
	if flags.events != "" {
		if events, err = a.openEvents(flags.events); err != nil {
			console.Close()
			return err
		}
		sink = event.Tee(sink, events)
	}
	var before publications
	if flags.summary != "" {
		before = a.publications(eng, actions)
	}
	report, err := eng.Build(ctx, actions, sink)
	console.Close()
	err = errors.Join(err, events.Close())
	if report == nil {
		return err
	}
	// What is for programs alone goes to the standard output alone.
	people := a.stdout
	if flags.report == "-" || flags.events == "-" || flags.summary == "-" {
		people = a.stderr
	}
	if published := a.published(eng, report); published != "" {
		fmt.Fprint(people, published)
	}
	if flags.verdicts {
		err = errors.Join(err, a.printVerdicts(people, eng, report))
	}
	closing := summary(report, time.Since(started))
	fmt.Fprintln(people, closing)
	if flags.report != "" {
		err = errors.Join(err, a.writeReport(flags.report, report, started))
	}
	if flags.summary != "" {
		err = errors.Join(err, a.writeSummary(flags.summary, eng, report, before, closing))
	}
	if ctx.Err() != nil {
		return errors.Join(report.Err(), err, context.Cause(ctx))
	}
	if failed := report.Err(); failed != nil {
		if report.Failed() {
			return actionError{errors.Join(failed, err)}
		}
		return gateError{errors.Join(failed, err)}
	}
	return err
}

// summary is the closing line of a build.
func summary(r *engine.Report, elapsed time.Duration) string {
	count := map[event.Status]int{}
	samples := 0
	for _, o := range r.Outcomes {
		count[o.Status]++
		samples += o.Samples
	}
	parts := []string{fmt.Sprintf("%d cached", count[event.Cached])}
	ran := fmt.Sprintf("%d ran", count[event.Ran]+count[event.Reproduced])
	var notes []string
	if n := count[event.Reproduced]; n > 0 {
		notes = append(notes, fmt.Sprintf("%d gave the same bytes", n))
	}
	if samples > 0 {
		notes = append(notes, plural(samples, "new sample"))
	}
	if len(notes) > 0 {
		ran += " (" + strings.Join(notes, ", ") + ")"
	}
	parts = append(parts, ran)
	for _, s := range []event.Status{event.Failed, event.GateFailed, event.Blocked, event.Skipped, event.Interrupted} {
		if n := count[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return fmt.Sprintf("%s: %s, %s", plural(len(r.Outcomes), "target"), strings.Join(parts, ", "), round(elapsed))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// published names what the build's effects left, relative to the workspace.
func (a *app) published(eng *engine.Engine, r *engine.Report) string {
	var b strings.Builder
	for _, o := range r.Outcomes {
		if o.Action.Rule != "publish" || o.Output.Digest == "" {
			continue
		}
		dir, _ := o.Action.Attrs["dir"].(string)
		fmt.Fprintf(&b, "report: %s\n", filepath.Join(dir, "report.md"))
	}
	return b.String()
}

func (a *app) planCommand() *cobra.Command {
	var asJSON, replay bool
	cmd := &cobra.Command{
		Use:   "plan PATTERN...",
		Short: "Say what build would run, and why",
		Args:  atLeastOnePattern, ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			actions, _, err := a.load(cmd.Context(), args)
			if err != nil {
				return err
			}
			eng, err := a.engine(replay)
			if err != nil {
				return err
			}
			verdicts, err := eng.Plan(cmd.Context(), actions)
			if err != nil {
				return err
			}
			if asJSON {
				return a.planJSON(verdicts)
			}
			for _, v := range verdicts {
				line := fmt.Sprintf("%-8s %s", v.State, v.Action.ID)
				if v.Why.Reason != "" {
					line += "  (" + v.Why.Reason + ")"
				}
				fmt.Fprintln(a.stdout, line)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&replay, "replay", false, "plan for build --replay")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the verdicts as JSON")
	return cmd
}

func (a *app) planJSON(verdicts []verdict) error {
	type row struct {
		Target string `json:"target"`
		Rule   string `json:"rule"`
		State  string `json:"state"`
		Reason string `json:"reason,omitempty"`
		Key    string `json:"key,omitempty"`
	}
	rows := []row{}
	for _, v := range verdicts {
		rows = append(rows, row{v.Action.ID, v.Action.Rule, string(v.State), v.Why.Reason, v.Key.String()})
	}
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

func atLeastOnePattern(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s needs at least one target: //package:target, //package:all or a subtree, //package/... (see --help)", cmd.CommandPath())}
	}
	return nil
}
