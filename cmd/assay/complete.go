package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"assay/starlark/graph"
)

// completeTargets completes labels from the stages of the workspace. Trouble
// with them gives no completions: the command itself will tell of it.
func (a *app) completeTargets(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	quiet := &app{stdout: io.Discard, stderr: io.Discard, env: a.env, config: a.config}
	if quiet.enter() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	patterns := []graph.Pattern{{Recursive: true}}
	if strings.HasPrefix(typed, ":") {
		patterns = []graph.Pattern{{Package: quiet.workspace.pkg}}
	}
	g, err := quiet.graph(cmd.Context(), patterns)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var labels []string
	for _, t := range g.Targets() {
		label := t.Label.String()
		if strings.HasPrefix(typed, ":") {
			label = ":" + t.Label.Name
		}
		if strings.HasPrefix(label, typed) {
			labels = append(labels, label+"\t"+t.Rule.Name)
		}
	}
	return labels, cobra.ShellCompDirectiveNoFileComp
}
