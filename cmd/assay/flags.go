package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"assay/rules"
	"assay/starlark/interp"
)

// configFlag adds --config to all commands below cmd: whatever loads stages
// loads them with the same settings.
func (a *app) configFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().StringArrayVar(&a.config, "config", nil, "set a flag of the workspace, as in --config requests=60; see assay flags")
}

// withWorkspace calls f with what interp needs to evaluate the workspace.
func (a *app) withWorkspace(f func(interp.Options) error) error {
	config, err := parseConfig(a.config)
	if err != nil {
		return usageError{err}
	}
	// A root, so that no link leads out of the workspace.
	dir, err := os.OpenRoot(a.workspace.root)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = f(interp.Options{
		FS: dir.FS(), Rules: rules.Schemas(), Config: config,
		Print: func(text string) { fmt.Fprintln(a.stderr, text) },
	})
	var wrong interp.ConfigError
	if errors.As(err, &wrong) {
		return usageError{fmt.Errorf("--config: %w", err)}
	}
	return err
}

// parseConfig reads settings of the form name=value.
func parseConfig(settings []string) (map[string]string, error) {
	config := map[string]string{}
	var errs []error
	for _, s := range settings {
		name, value, ok := strings.Cut(s, "=")
		_, twice := config[name]
		switch {
		case !ok || name == "":
			errs = append(errs, fmt.Errorf("--config %q: want name=value", s))
		case twice:
			errs = append(errs, fmt.Errorf("--config %q: %s is set already", s, name))
		}
		config[name] = value
	}
	return config, errors.Join(errs...)
}

func (a *app) flagsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "flags",
		Short: "List the flags that the workspace declares, and their values",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listFlags(cmd.Context())
		},
	}
}

func (a *app) listFlags(ctx context.Context) (err error) {
	if a.workspace, err = findWorkspace(); err != nil {
		return err
	}
	return a.withWorkspace(func(o interp.Options) error {
		flags, err := interp.Flags(ctx, o)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
		for _, f := range flags {
			doc := f.Doc
			if len(f.Values) > 0 {
				doc += " One of " + strings.Join(f.Values, ", ") + "."
			}
			if value, fallback := showValue(f.Value), showValue(f.Default); value != fallback {
				doc += " Its default is " + fallback + "."
			}
			fmt.Fprintf(w, "%s=%s\t%s\t%s\n", f.Name, showValue(f.Value), f.Kind, doc)
		}
		return w.Flush()
	})
}

// showValue writes a value as --config takes it.
func showValue(v any) string {
	if list, ok := v.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v)
}
