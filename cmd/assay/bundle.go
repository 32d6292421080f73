package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"assay/rules/bundle"
	"assay/starlark/graph"
)

func (a *app) bundleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Look into bundle files",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "inspect FILE",
		Short: "Check a bundle file and list its sections and provenance",
		Args:  oneArgument("a bundle file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := bundle.Inspect(cmd.Context(), args[0])
			if err != nil {
				return actionError{err}
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "family\t%s\ntask\t%s\ndigest\t%s\nsize\t%d bytes\n", c.Family, c.Task, c.Digest, c.Size)
			for _, s := range c.Sections {
				fmt.Fprintf(w, "section %s\t%s\t%d bytes\n", s.Name, s.Digest, s.Size)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "%s\n", c.Provenance)
			return err
		},
	})
	cmd.AddCommand(&cobra.Command{
		Use:   "verify FILE [TARGET]",
		Short: "Check a bundle file as a whole, and against a bundle target",
		Long: "Checks the form of the file, that no section is missing, that the weights are what the provenance says and the tokenizer is theirs. " +
			"With a target, also that family, tasks, checkpoint and profile are those that the target declares; nothing is built for it.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return usageError{fmt.Errorf("assay bundle verify takes a bundle file and maybe a target; got %d arguments", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var want *bundle.Info
			if len(args) == 2 {
				info, err := a.declaredBundle(cmd.Context(), args[1])
				if err != nil {
					return err
				}
				want = &info
			}
			if err := bundle.Verify(cmd.Context(), args[0], want); err != nil {
				return actionError{err}
			}
			said := "ok"
			if want != nil {
				said = fmt.Sprintf("ok: what %s declares, built from %s", args[1], want.Model)
			}
			_, err := fmt.Fprintf(a.stdout, "%s: %s\n", args[0], said)
			return err
		},
	})
	return cmd
}

// declaredBundle is what a bundle target says, without building it.
func (a *app) declaredBundle(ctx context.Context, target string) (bundle.Info, error) {
	w, err := findWorkspace()
	if err != nil {
		return bundle.Info{}, err
	}
	a.workspace = w
	p, err := graph.ParsePattern(target, w.pkg)
	if err != nil {
		return bundle.Info{}, usageError{err}
	}
	g, err := a.graph(ctx, []graph.Pattern{p})
	if err != nil {
		return bundle.Info{}, err
	}
	wanted, err := g.Match([]graph.Pattern{p})
	if err != nil {
		return bundle.Info{}, err
	}
	if len(wanted) != 1 {
		return bundle.Info{}, usageError{fmt.Errorf("%s names %d targets; a bundle is verified against one", target, len(wanted))}
	}
	t, _ := g.Target(wanted[0])
	if t.Rule.Name != bundle.Rule.Schema.Name {
		return bundle.Info{}, usageError{fmt.Errorf("%s is a %s target; a bundle is verified against a bundle target", t.Label, t.Rule.Name)}
	}
	dep := func(attr string) *graph.Target { // the graph was finalized, so it is there
		label, _ := t.LabelOf(attr)
		d, _ := g.Target(label)
		return d
	}
	return bundle.Declared(t, dep("checkpoint"), dep("family"), func(file string) (string, error) {
		f, err := os.Open(filepath.Join(w.root, filepath.FromSlash(file)))
		if err != nil {
			return "", err
		}
		defer f.Close()
		sum, err := digest.FromReader(f)
		return sum.Encoded(), err
	})
}

// oneArgument is the check of a command that takes exactly one.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError{fmt.Errorf("%s takes one argument, %s; got %d", cmd.CommandPath(), what, len(args))}
		}
		return nil
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no argument, got %q", cmd.CommandPath(), args)}
	}
	return nil
}
