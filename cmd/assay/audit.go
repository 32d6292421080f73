package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"assay/rules/audit"
)

func (a *app) auditCommand() *cobra.Command {
	var o audit.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit DIR",
		Short: "Check a run of AIPerf that is there already",
		Long: "Closes the ledger on the files that AIPerf left in DIR (a run with --export-level raw), joins them with the server's records if there are any, " +
			"and sets AIPerf's own summary beside the ledger. Needs no workspace and writes nothing that it is not asked for. " +
			"Ends with exit code 5 if a finding blocks, and 4 if the run cannot be read. docs/audit.md tells what it checks.",
		Args: oneArgument("the folder that AIPerf wrote"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Context < 0 {
				return usageError{fmt.Errorf("audit: --context is %d tokens; it must be positive", o.Context)}
			}
			o.Dir = args[0]
			report, err := audit.Audit(cmd.Context(), o)
			if err != nil {
				return actionError{err}
			}
			if asJSON {
				enc := json.NewEncoder(a.stdout)
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				err = enc.Encode(report)
			} else {
				err = report.Write(a.stdout, a.columns())
			}
			if err != nil || report.Blocking == 0 {
				return err
			}
			var codes []string
			for _, f := range report.Ledger.Findings[:report.Blocking] { // the worst come first
				codes = append(codes, string(f.Code))
			}
			return gateError{fmt.Errorf("%s: %s", plural(report.Blocking, "blocking finding"), strings.Join(codes, ", "))}
		},
	}
	cmd.Flags().StringVar(&o.Records, "records", "", "the file of the server's records (records.jsonl in DIR, if it is there)")
	cmd.Flags().Int64Var(&o.Context, "context", 0, "the server's context window in tokens, to tell cut prompts")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().StringVar(&o.Ledger, "ledger", "", "write the ledger, a line of JSON a request, to this file, which must not exist")
	return cmd
}

// columns is the width of the terminal, 0 if there is none.
func (a *app) columns() int {
	if f, ok := a.stdout.(*os.File); ok {
		if cols, _, err := term.GetSize(int(f.Fd())); err == nil {
			return cols
		}
	}
	return 0
}
