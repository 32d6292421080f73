package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"assay/cache/cas"
	"assay/engine/plan"
	"assay/rules/compare"
	"assay/rules/join"
	"assay/starlark/graph"
)

func (a *app) diffCommand() *cobra.Command {
	var asJSON, replay bool
	o := compare.Options{MarginPercent: compare.DefaultMargin, Streams: true}
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two joined runs of the same work; measure nothing",
		Long: "Sets the run B beside the run A, if both did the same work; if not, says every way in which it was not and ends with exit code 5. " +
			"A and B are join targets that are built, or folders with the output of a join. Nothing is built or measured.",
		Args: exactArguments(2, "two runs: join targets or folders with the output of a join"), ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !(0 <= o.MarginPercent && o.MarginPercent <= 100) { // NaN too
				return usageError{fmt.Errorf("--margin %g: it is percent, 0 to 100", o.MarginPercent)}
			}
			scratch, err := os.MkdirTemp("", "assay-diff-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(scratch)
			dirs, err := a.joined(cmd.Context(), args, scratch, replay)
			if err != nil {
				return err
			}
			c, err := compare.Folders(cmd.Context(), dirs[0], dirs[1], o)
			if err != nil {
				return actionError{err}
			}
			if asJSON {
				enc := json.NewEncoder(a.stdout)
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				err = enc.Encode(c)
			} else {
				err = printComparison(a.stdout, args, c)
			}
			if err == nil && !c.Comparable {
				err = gateError{fmt.Errorf("%s and %s are not compared: the work was not the same", args[0], args[1])}
			}
			return err
		},
	}
	cmd.Flags().Float64Var(&o.MarginPercent, "margin", compare.DefaultMargin, "what counts as equal, in `PERCENT` of the smaller mean")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	cmd.Flags().BoolVar(&replay, "replay", false, "take recorded samples wherever they were made")
	return cmd
}

// joined finds the folders of runs. What stands for a target comes out of the cache,
// into a folder in scratch.
func (a *app) joined(ctx context.Context, runs []string, scratch string, replay bool) ([]string, error) {
	dirs := make([]string, len(runs))
	var targets []string
	for i, run := range runs {
		if strings.HasPrefix(run, "//") || strings.HasPrefix(run, ":") {
			dirs[i] = filepath.Join(scratch, fmt.Sprint(i))
			targets = append(targets, run)
			continue
		}
		if _, err := os.Stat(filepath.Join(run, join.File)); err != nil {
			return nil, usageError{fmt.Errorf("%s is neither a target (//package:name or :name) nor a folder with the output of a join: %w", run, err)}
		}
		dirs[i] = run
	}
	if targets == nil {
		return dirs, nil
	}
	actions, _, err := a.load(ctx, targets)
	if err != nil {
		return nil, err
	}
	eng, err := a.engine(replay)
	if err != nil {
		return nil, err
	}
	verdicts, err := eng.Plan(ctx, actions)
	if err != nil {
		return nil, err
	}
	found := map[string]plan.Verdict{}
	for _, v := range verdicts {
		found[v.Action.ID] = v
	}
	var errs []error
	for i, run := range runs {
		if dirs[i] == run {
			continue
		}
		label, err := graph.ParseLabel(run, a.workspace.pkg)
		if err != nil {
			return nil, usageError{err}
		}
		switch v := found[label.String()]; {
		case v.Action.Rule != join.Rule.Schema.Name:
			errs = append(errs, usageError{fmt.Errorf("%s is made by %s; a comparison is of joins, which have every request of a run in one ledger", label, v.Action.Rule)})
		case v.State != plan.Cached:
			errs = append(errs, actionError{fmt.Errorf("%s is not built as it is declared now: %s\nhint: assay build %s", label, v.Why.Reason, label)})
		default:
			errs = append(errs, eng.Blobs().Materialise(ctx, cas.Entry{Type: "dir", Digest: v.Output.Digest, Size: v.Output.Size}, dirs[i]))
		}
	}
	return dirs, errors.Join(errs...)
}

// printComparison is for people: what was compared, each figure, and what to keep
// in mind.
func printComparison(out io.Writer, names []string, c compare.Comparison) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, s := range []compare.Side{c.A, c.B} {
		fmt.Fprintf(w, "%c\t%s\t%s, %s of %s, refused %s\n",
			'a'+i, names[i], s.Name(), plural(s.Samples, "sample"), plural(int(s.Requests), "request"), percentOf(s))
	}
	if o := c.Order; o != nil {
		fmt.Fprintf(w, "order\t%s\tb on average %s after a\n", o.Sequence, time.Duration(o.LaterSeconds*float64(time.Second)).Round(time.Second))
	}
	if !c.Comparable {
		fmt.Fprintln(w, "\nnot the same work:")
		for _, r := range c.Reasons {
			fmt.Fprintf(w, "  %s\t%s\n", r.Code, r.Message)
		}
		return w.Flush()
	}
	fmt.Fprintf(w, "\nthe same work, request by request; b minus a, equal within %g %% of the smaller mean\n\n", c.MarginPercent)
	fmt.Fprintln(w, "\ta\tb\tdifference\tof requests\tof samples\trobust\tb is")
	for _, f := range c.Figures {
		if f.Withheld != nil {
			fmt.Fprintf(w, "%s\t\twithheld: %s\n", f.Title, f.Withheld.Message)
			continue
		}
		fmt.Fprintf(w, "%s, %s\t%.4g%s\t%.4g%s\t%+.3g%s\t%s\t%s\t%s\t%s\n", f.Title, f.Unit,
			*f.A.Mean, spread(f.A.CV), *f.B.Mean, spread(f.B.CV), f.Mean, inPercent(f.Percent), ofRequests(f.Requests), ofSamples(f.Samples), robust(f.Difference), f.Verdict)
	}
	fmt.Fprintln(w)
	for _, f := range c.Figures {
		if f.Difference != nil && f.Why != "" {
			fmt.Fprintf(w, "%s\tcannot tell: %s\n", f.Title, f.Why)
		}
	}
	for _, gap := range c.Gaps {
		fmt.Fprintf(w, "note\t%s\n", gap)
	}
	return w.Flush()
}

func percentOf(s compare.Side) string {
	if s.Rejected.Value == nil {
		return "n/a"
	}
	return fmt.Sprintf("%d of %d (%.1f to %.1f %%)", s.Rejected.Count, s.Rejected.Of, 100**s.Rejected.Low, 100**s.Rejected.High)
}

// spread is the coefficient of variation over samples.
func spread(cv *float64) string {
	if cv == nil {
		return ""
	}
	return fmt.Sprintf(" (CV %.1f %%)", 100**cv)
}

func inPercent(p *float64) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(" (%+.1f %%)", *p)
}

func ofRequests(p *compare.Paired) string {
	if p == nil {
		return "-"
	}
	return bracket(p.Interval, compare.LeastForMean)
}

func ofSamples(s *compare.Sampled) string {
	if s == nil {
		return "no claim"
	}
	return bracket(&s.Judged, compare.LeastSamples)
}

// robust is the shift over samples or, without a claim, over requests.
func robust(d *compare.Difference) string {
	switch {
	case d.Samples != nil:
		return fmt.Sprintf("%+.3g %s", d.Samples.Shift.Value, bracket(d.Samples.Shift.Interval, compare.LeastSamples))
	case d.Requests != nil:
		return fmt.Sprintf("%+.3g %s", d.Requests.Shift.Value, bracket(d.Requests.Shift.Interval, compare.LeastForShift))
	}
	return "-"
}

func bracket(i *compare.Interval, needs int) string {
	if i == nil {
		return fmt.Sprintf("n too small (needs %d)", needs)
	}
	return fmt.Sprintf("[%+.3g, %+.3g]", i.Low, i.High)
}
