// Package conformance checks a worker against the worker protocol: it starts the
// worker's command, plays the gateway's part, well and badly, and reports each
// check in plain words. The protocol is described in docs/worker-protocol.md.
//
// A worker that fails a check in a way that leaves it unusable is killed, and the
// next check gets a new one, so that one fault is reported once. For the same
// reason faults of single lines and frames do not end the check in which they are
// seen; they are findings, and have checks of their own at the end.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"assay/rules/internal/worker"
)

// Command says how to start the worker.
type Command struct {
	Path string
	Args []string // without the program's own name
	Env  []string // nil means this process's
	// Log is the worker's standard error; nil means the null device.
	Log *os.File
}

// Limits bound each wait.
type Limits struct {
	Start  time.Duration // from the start to ready
	Answer time.Duration // from a request to its end
	// End is for what must happen soon: the end of a cancelled request, and of a
	// worker that is told to leave.
	End time.Duration
}

// Verdict is how a check ended.
type Verdict string

// The verdicts. Note is for what a worker may do and its user should know.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	Skip Verdict = "skip"
	Note Verdict = "note"
)

// Result is one check's.
type Result struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Reason says why it did not pass.
	Reason string `json:"reason,omitempty"`
	// Of a failed check: the last lines before the failure, shortened, and what to
	// do about it.
	Sent string `json:"sent,omitempty"`
	Got  string `json:"got,omitempty"`
	Hint string `json:"hint,omitempty"`
}

// Summary counts the results.
type Summary struct {
	// Hello is what the worker said of itself, nil if it did not.
	Hello  *worker.Hello   `json:"hello"`
	Counts map[Verdict]int `json:"counts"`
}

// Run checks a worker and gives report each result as it comes. Whatever the
// worker does is a result; an error means that it could not be checked: the
// command cannot be started, or ctx ended. Nothing of the worker is left when Run
// returns.
func Run(ctx context.Context, command Command, limits Limits, report func(Result)) (Summary, error) {
	s := &session{command: command, limits: limits, asked: map[string]bool{}}
	defer s.discard()
	counts := map[Verdict]int{Pass: 0, Fail: 0, Skip: 0, Note: 0}
	for _, c := range checks {
		s.sent, s.got = "", ""
		err := s.run(ctx, c)
		if ctx.Err() != nil {
			return Summary{}, context.Cause(ctx)
		}
		var start startError
		if errors.As(err, &start) {
			return Summary{}, err
		}
		r := result(c, err)
		if r.Verdict == Fail {
			if r.Sent == "" && r.Got == "" {
				r.Sent, r.Got = s.sent, s.got
			}
			if c.essential && s.unusable == "" {
				s.unusable = fmt.Sprintf("not tried, since this failed: %s", c.name)
			}
		}
		counts[r.Verdict]++
		report(r)
	}
	return Summary{Hello: s.hello, Counts: counts}, nil
}

func (s *session) run(ctx context.Context, c check) error {
	if !c.findings && s.unusable != "" {
		return skip(s.unusable)
	}
	if c.needs != nil {
		if reason := c.needs(s.hello); reason != "" {
			return skip(reason)
		}
	}
	err := c.run(ctx, s)
	var broken brokenError
	if errors.As(err, &broken) {
		s.discard()
	}
	if err == nil && c.findings && s.unusable != "" {
		return skip(s.unusable) // too little was seen to say that there is nothing
	}
	return err
}

func result(c check, err error) Result {
	r := Result{Check: c.name, Verdict: Fail, Hint: c.hint}
	var found *finding
	var skipped skip
	var noted note
	switch {
	case err == nil:
		return Result{Check: c.name, Verdict: Pass}
	case errors.As(err, &skipped):
		return Result{Check: c.name, Verdict: Skip, Reason: string(skipped)}
	case errors.As(err, &noted):
		return Result{Check: c.name, Verdict: Note, Reason: string(noted)}
	case errors.As(err, &found):
		r.Sent, r.Got = found.sent, found.got
	}
	r.Reason = err.Error()
	return r
}

// skip is the result of a check that does not apply, note that of one which found
// something to know and no fault.
type (
	skip string
	note string
)

func (s skip) Error() string { return string(s) }
func (n note) Error() string { return string(n) }
