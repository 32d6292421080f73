package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"assay/rules/bundle"
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
	return cmd
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
