package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"assay/rules/serve"
)

func (a *app) checkWorkerCommand() *cobra.Command {
	check := serve.WorkerCheck{Log: os.Stderr}
	cmd := &cobra.Command{
		Use:   "check-worker [FLAG...] -- COMMAND [ARG...]",
		Short: "Check a worker against the worker protocol",
		Long: "Starts the worker, plays the gateway's part, and prints a line for each check: what must hold, and if it does not, what was sent, what came and what to do. " +
			"Exit code 5 if a check failed. docs/worker-protocol.md describes the protocol; examples/worker is a worker to start from.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("check-worker needs the worker's command: assay gateway check-worker -- COMMAND [ARG...]")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if check.Startup <= 0 || check.Answer <= 0 || check.End <= 0 {
				return usageError{errors.New("check-worker: --startup-timeout, --timeout and --grace must be positive")}
			}
			check.Command = args
			failed, err := serve.CheckWorker(cmd.Context(), check, a.stdout)
			if err != nil {
				return actionError{err}
			}
			if failed == 0 {
				return nil
			}
			checks := "checks"
			if failed == 1 {
				checks = "check"
			}
			return gateError{fmt.Errorf("the worker does not keep the protocol: %d %s failed", failed, checks)}
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the command is its own
	cmd.Flags().BoolVar(&check.JSON, "json", false, "print one JSON object")
	cmd.Flags().DurationVar(&check.Startup, "startup-timeout", 2*time.Minute, "limit from a start to ready")
	cmd.Flags().DurationVar(&check.Answer, "timeout", time.Minute, "limit of one answer")
	cmd.Flags().DurationVar(&check.End, "grace", 10*time.Second, "limit of the end after a cancel, the end of the input or a shutdown")
	return cmd
}
