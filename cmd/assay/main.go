// Command assay builds the qualification of model servers: stages declared in
// Starlark, run when something they depend on changed, and explained.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"assay/engine/supervise"
	"assay/starlark/diag"
)

// Exit codes; they are part of the interface.
const (
	exitOK          = 0
	exitInternal    = 1
	exitUsage       = 2
	exitWorkspace   = 3
	exitAction      = 4
	exitGate        = 5
	exitTimeout     = 6
	exitInterrupted = 130
)

func main() { os.Exit(run()) }

// run is main for the tests, which call it in their own process.
func run() int {
	// Orphans of a process tree then come to this process, which can end them.
	supervise.AdoptOrphans()
	ctx, stop := interruptible(os.Stderr)
	defer stop()
	app := &app{stdout: os.Stdout, stderr: os.Stderr, env: os.Getenv}
	root := app.command()
	root.SetArgs(os.Args[1:])
	err := root.ExecuteContext(ctx)
	if !app.stopped && errors.Is(context.Cause(ctx), errInterrupted) && !errors.Is(err, errInterrupted) {
		err = errors.Join(err, errInterrupted)
	}
	supervise.KillDescendants() // there should be none
	return app.report(err)
}

var errInterrupted = errors.New("interrupted")

// interruptible returns a context that ends at the first interrupt, hang-up or
// termination signal. At the second everything below this process is killed, and
// at the third this process ends whatever is left.
func interruptible(stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			if _, ok := <-signals; !ok {
				return
			}
			switch n {
			case 0:
				fmt.Fprintln(stderr, "assay: told to stop; ending what runs in order (again: kill it)")
				cancel(errInterrupted)
			case 1:
				go func() {
					supervise.KillDescendants()
					os.Exit(exitInterrupted)
				}()
			default:
				os.Exit(exitInterrupted)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel(nil)
	}
}

// app is the command line with its surroundings.
type app struct {
	stdout, stderr io.Writer
	env            func(string) string
	config         []string   // settings of --config
	workspace      *workspace // for excerpts in errors, once it is found
	stopped        bool       // being told to stop is this command's orderly end
}

// usageError marks a mistake on the command line.
type usageError struct{ error }

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:                        "assay",
		Short:                      "A build system for the qualification of model servers",
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			err := fmt.Errorf("unknown command %q", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				err = fmt.Errorf("%w; did you mean %q?", err, near[0])
			}
			return usageError{fmt.Errorf("%w\nhint: %s --help", err, cmd.CommandPath())}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return cmd.Help()
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w\nhint: %s --help", err, cmd.CommandPath())}
	})
	a.configFlag(root)
	root.AddCommand(a.buildCommand(), a.planCommand(), a.whyCommand(), a.flagsCommand(), a.gatewayCommand(), a.workerCommand(), a.bundleCommand(),
		a.testCommand(), a.diffCommand(), a.queryCommand(), a.depsCommand(), a.rdepsCommand(), a.somepathCommand(), a.explainCommand(), a.samplesCommand(),
		a.verifyCommand(), a.logCommand(), a.cacheCommand(), a.doctorCommand(), a.initCommand(), a.auditCommand(), a.statusCommand())
	return root
}

// report prints err and returns the exit code of its class.
func (a *app) report(err error) int {
	var list diag.List
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &list):
		if renderErr := diag.Render(a.stderr, list, a.workspace.source); renderErr != nil {
			fmt.Fprintln(a.stderr, "assay:", renderErr)
		}
		return exitWorkspace
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(a.stderr, "error:", err)
		return exitInterrupted
	}
	fmt.Fprintln(a.stderr, "error:", err)
	var failed actionError
	var gate gateError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errNoWorkspace):
		return exitWorkspace
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case errors.As(err, &failed):
		return exitAction
	case errors.As(err, &gate):
		return exitGate
	}
	return exitInternal
}
