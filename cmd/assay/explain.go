package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"assay/cache/cas"
	"assay/engine"
	"assay/starlark/graph"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain KEY|TARGET",
		Short: "Show what a key is made of, its records, and what made them",
		Long:  "Shows the preimage of a key and the records that the cache has of it. The key is named by its first digits, or by the target that was last built with it.",
		Args:  oneArgument("a key or a target"), ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.enter(); err != nil {
				return err
			}
			name := args[0]
			if strings.ContainsAny(name, "/") || strings.HasPrefix(name, ":") {
				label, err := graph.ParseLabel(name, a.workspace.pkg)
				if err != nil {
					return usageError{err}
				}
				name = label.String()
			}
			eng, err := a.engine(false)
			if err != nil {
				return err
			}
			x, err := eng.Explain(name)
			if err != nil {
				return actionError{err}
			}
			return printExplanation(a.stdout, x)
		},
	}
}

func printExplanation(out io.Writer, x *engine.Explanation) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "key\t%s\n", x.Key)
	for _, label := range x.Labels {
		fmt.Fprintf(w, "target\t%s\n", label)
	}
	p := x.Preimage
	fmt.Fprintf(w, "rule\t%s, version %d\n", p.Rule, p.Version)
	for _, name := range slices.Sorted(maps.Keys(p.Attrs)) {
		value, err := json.Marshal(p.Attrs[name])
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "attribute %s\t%s\n", name, value)
	}
	for _, role := range slices.Sorted(maps.Keys(p.Inputs)) {
		from := ""
		if source, ok := x.Sources[role]; ok {
			from = ", from " + source
		}
		fmt.Fprintf(w, "input %s\t%s%s\n", role, p.Inputs[role], from)
	}
	for _, tool := range slices.Sorted(maps.Keys(p.Tools)) {
		fmt.Fprintf(w, "tool %s\t%s\n", tool, p.Tools[tool])
	}
	record := func(what string, output cas.Ref, invocation string, started, finished time.Time) {
		fmt.Fprintf(w, "%s\t%s\n", what, output.Digest)
		fmt.Fprintf(w, "  made by\tbuild %s, %s, in %s\n", invocation, started.Local().Format(time.DateTime), round(finished.Sub(started)))
	}
	if r := x.Result; r != nil {
		what := "result"
		if r.Receipt {
			what = "receipt"
		}
		record(what, r.Output, r.Invocation, r.Started, r.Finished)
	}
	for _, s := range x.Samples {
		record("sample "+s.ID, s.Output, s.Invocation, s.Started, s.Finished)
		for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
			fmt.Fprintf(w, "  %s\t%s\n", name, s.Environment[name])
		}
		if s.Rejected != "" {
			fmt.Fprintf(w, "  rejected\t%s\n", s.Rejected)
		}
	}
	if x.Result == nil && len(x.Samples) == 0 {
		fmt.Fprintln(w, "result\tgone from the store; a build makes it again")
	}
	return w.Flush()
}
