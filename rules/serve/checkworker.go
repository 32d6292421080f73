package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"assay/rules/internal/conformance"
)

// WorkerCheck says how CheckWorker checks a worker.
type WorkerCheck struct {
	Command []string // program and arguments, in this process's environment
	// Limits of a start, of an answer, and of the end after a cancel or when the
	// worker is told to leave.
	Startup, Answer, End time.Duration
	JSON                 bool     // one JSON object instead of lines
	Log                  *os.File // the worker's standard error
}

// workerReport is the JSON object.
type workerReport struct {
	Schema  int      `json:"schema"`
	Command []string `json:"command"`
	conformance.Summary
	Checks []conformance.Result `json:"checks"`
}

// CheckWorker checks a worker against the worker protocol, prints the results and
// returns how many checks failed. An error means that it could not be checked.
func CheckWorker(ctx context.Context, w WorkerCheck, stdout io.Writer) (failed int, err error) {
	report := workerReport{Schema: 1, Command: w.Command}
	command := conformance.Command{Path: w.Command[0], Args: w.Command[1:], Log: w.Log}
	limits := conformance.Limits{Start: w.Startup, Answer: w.Answer, End: w.End}
	report.Summary, err = conformance.Run(ctx, command, limits, func(r conformance.Result) {
		report.Checks = append(report.Checks, r)
		if !w.JSON {
			printResult(stdout, r)
		}
	})
	if err != nil {
		return 0, err
	}
	counts := report.Counts
	if w.JSON {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return counts[conformance.Fail], enc.Encode(report)
	}
	name := strings.Join(w.Command, " ")
	if h := report.Hello; h != nil {
		name = fmt.Sprintf("%s, protocol %d, engine %s %s", h.Worker, h.Protocol, h.Engine.Name, h.Engine.Version)
	}
	fmt.Fprintf(stdout, "%s: %d passed, %d failed, %d skipped, %d noted\n", strings.TrimSpace(name),
		counts[conformance.Pass], counts[conformance.Fail], counts[conformance.Skip], counts[conformance.Note])
	return counts[conformance.Fail], nil
}

func printResult(out io.Writer, r conformance.Result) {
	verdict := string(r.Verdict)
	if r.Verdict == conformance.Fail {
		verdict = "FAIL" // to be seen
	}
	line := verdict + "  " + r.Check
	if r.Reason != "" {
		line += ": " + strings.ReplaceAll(r.Reason, "\n", "; ")
	}
	fmt.Fprintln(out, line)
	for _, detail := range []struct{ name, text string }{{"sent", r.Sent}, {"got", r.Got}, {"do", r.Hint}} {
		if detail.text != "" {
			fmt.Fprintf(out, "      %-5s %s\n", detail.name+":", detail.text)
		}
	}
}
