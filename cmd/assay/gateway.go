package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"assay/rules/serve"
)

func (a *app) gatewayCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "gateway --config FILE",
		Short: "Run the native server by itself",
		Long: "Runs the native server that a configuration file describes, until it is told to stop. " +
			"When its port is open it prints one line, {\"port\": N}; /health/ready tells when it is ready.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if config == "" {
				return usageError{errors.New("gateway needs --config FILE")}
			}
			err := serve.Gateway(cmd.Context(), config, a.stdout, a.stderr)
			if err != nil {
				return actionError{err}
			}
			a.stopped = true
			return nil
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "the configuration, JSON (docs/gateway.md)")
	cmd.AddCommand(a.checkWorkerCommand())
	return cmd
}

func (a *app) workerCommand() *cobra.Command {
	var script string
	cmd := &cobra.Command{
		Use:    "scripted-worker --script FILE",
		Short:  "Run the scripted worker: timing and faults from a file",
		Hidden: true, // the gateway starts it
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if script == "" {
				return usageError{errors.New("scripted-worker needs --script FILE")}
			}
			return serve.ScriptedWorker(cmd.Context(), script, os.Stdin, a.stdout)
		},
	}
	cmd.Flags().StringVar(&script, "script", "", "what it does (docs/worker-protocol.md)")
	return cmd
}
