package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"assay/engine/history"
	"assay/engine/plan"
)

type verdict = plan.Verdict

func (a *app) whyCommand() *cobra.Command {
	var replay bool
	cmd := &cobra.Command{
		Use:   "why TARGET",
		Short: "Say why a target would run now, or why it last ran",
		Args:  oneArgument("a target such as //examples/quickstart:report"), ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			actions, wanted, err := a.load(cmd.Context(), args)
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
			w := why{history: eng.History(), verdicts: map[string]verdict{}}
			for _, v := range verdicts {
				w.verdicts[v.Action.ID] = v
			}
			for _, label := range wanted {
				w.explain(label.String(), 0)
			}
			fmt.Fprint(a.stdout, w.out.String())
			return nil
		},
	}
	cmd.Flags().BoolVar(&replay, "replay", false, "explain for build --replay")
	return cmd
}

// why follows reasons from a target to the component that started it all.
type why struct {
	history  *history.Store
	verdicts map[string]verdict
	out      strings.Builder
}

func (w *why) explain(id string, depth int) {
	v := w.verdicts[id]
	switch v.State {
	case plan.Unknown:
		w.line(depth, "%s waits for %s", id, v.WaitsFor)
		w.explain(v.WaitsFor, depth+1)
	case plan.Skipped:
		w.line(depth, "%s is skipped by %s: %s", id, v.Skip.By, v.Skip.Reason)
	case plan.Run:
		w.line(depth, "%s would run: %s", id, v.Why.Reason)
		w.changes(v.Why, depth)
	case plan.Cached:
		last, ok := w.history.Last(id)
		if !ok || last.LastRun == nil || last.LastRun.Key != v.Key {
			w.line(depth, "%s is up to date; its result was found in the store", id)
			return
		}
		w.line(depth, "%s is up to date; it last ran %s: %s", id, last.LastRun.Time.Local().Format("2006-01-02 15:04:05"), last.LastRun.Why.Reason)
		w.changes(last.LastRun.Why, depth)
		w.causes(last.LastRun, depth)
	}
}

// changes lists what the reason's one line leaves out.
func (w *why) changes(y history.Why, depth int) {
	for i, c := range y.Changes {
		if i > 0 {
			w.line(depth+1, "%s", c.String())
		}
	}
}

// causes goes on with the targets whose changed output was the reason, as far
// as they ran in the same build.
func (w *why) causes(ran *history.Ran, depth int) {
	seen := map[string]bool{}
	for _, c := range ran.Why.Changes {
		if c.From == "" || seen[c.From] {
			continue
		}
		seen[c.From] = true
		last, ok := w.history.Last(c.From)
		if !ok || last.LastRun == nil || last.LastRun.Invocation != ran.Invocation {
			continue
		}
		w.line(depth+1, "%s ran then: %s", c.From, last.LastRun.Why.Reason)
		w.changes(last.LastRun.Why, depth+1)
		w.causes(last.LastRun, depth+1)
	}
}

func (w *why) line(depth int, format string, args ...any) {
	fmt.Fprintf(&w.out, strings.Repeat("  ", depth)+format+"\n", args...)
}
