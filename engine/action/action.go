// Package action defines the unit of work of the engine: declared inputs, a
// class that says how its result is kept, and the code that produces it.
package action

import (
	"context"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
)

// Class says how an action's result is kept; it is a property of the rule.
type Class int

const (
	// Pure actions have one result per key; running one again gives the same bytes.
	Pure Class = iota
	// Measurement actions have a series of immutable samples per key.
	Measurement
	// Effect actions change something outside the store and leave a receipt.
	Effect
)

func (c Class) String() string {
	return [...]string{"pure", "measurement", "effect"}[c]
}

// Action is one node of the build.
type Action struct {
	ID      string // the target's label: names the action to people, not in the key
	Where   string // file:line:col of the target's declaration
	Rule    string
	Version int
	Class   Class

	Attrs   map[string]any
	Sources []Source
	Deps    []Dep
	Tools   map[string]string

	// CPUs is how many CPUs the action keeps busy; 0 means 1.
	CPUs int
	// Exclusive actions run alone on the machine, as measurements always do.
	Exclusive bool

	// Run writes the output. It may leave the output partly written on error.
	Run func(context.Context, *Run) error
	// Samples is how many accepted samples a measurement needs.
	Samples int
	// Environment observes what a measurement depends on without declaring it.
	Environment func() (map[string]string, error)
	// Check asks the target of an effect whether tree is still in place; the
	// error says what is not.
	Check func(ctx context.Context, tree cas.Ref, store *cas.Store) error
	// Verdict makes the action a gate: it reads the output and returns a
	// *GateError if what was judged did not pass. The output is a result all the
	// same, and is kept.
	Verdict func(tree cas.Ref, store *cas.Store) error
	// Stop makes the action a stop rule: it reads the output and says why what
	// waits for its decision is skipped; empty lets that run.
	Stop func(tree cas.Ref, store *cas.Store) (why string, err error)
}

// GateError says that something ran and did not qualify.
type GateError struct{ Reason string }

func (e *GateError) Error() string { return e.Reason }

// Source is a file of the workspace.
type Source struct {
	Role string // its name among the inputs; may contain slashes
	Path string // absolute
}

// Dep is the output of another action, or the part of it at Path.
type Dep struct {
	Role string
	ID   string
	Path string // slash-separated, below the output; empty for all of it
	// Gate makes the dependency a condition instead of a component: the action
	// runs only if the gate passed, sees its output, and has a key without it.
	Gate bool
	// Stop makes the dependency the decision of a stop rule: if it says stop the
	// action is skipped, and so is all that needs its output. The action does not see
	// the rule's output and has a key without it.
	Stop bool
	// Optional lets the action run also when the dependency has failed or was skipped:
	// its role is then not among the inputs, and Run.Absent and the key say why.
	Optional bool
}

// Absence says why an action has no output.
type Absence struct {
	Skipped bool   // a stop rule decided so; otherwise something failed
	By      string // ID of the stop rule, or of the action that failed
	Reason  string // short, and the same each time
}

func (a Absence) String() string {
	if a.Skipped {
		return "skipped by " + a.By + ": " + a.Reason
	}
	return a.By + ": " + a.Reason
}

// Run is what an action sees while it runs.
type Run struct {
	// Out is an empty directory; what it holds at the end is the output.
	Out string
	// Tmp is an empty directory that goes away afterwards.
	Tmp string
	// Log receives what a person reads when the action fails.
	Log io.Writer
	// Key is the action's key, Inputs the digests of its inputs by role.
	Key    digest.Digest
	Inputs map[string]digest.Digest
	// Absent are the optional inputs that are not there, by role.
	Absent map[string]Absence
	// Progress reports how much is done; total is 0 while unknown.
	Progress func(done, total int, what string)

	input func(role string) string
}

// NewRun is for the engine and for tests of rules.
func NewRun(input func(role string) string, out, tmp string, log io.Writer) *Run {
	return &Run{Out: out, Tmp: tmp, Log: log, input: input, Progress: func(int, int, string) {}}
}

// Input is the path at which the input with this role is materialised,
// read-only. An undeclared role is a mistake in the rule.
func (r *Run) Input(role string) string { return r.input(role) }

// RejectedError makes the engine keep a measurement's output as a rejected
// sample: what was measured is not lost, and not used.
type RejectedError struct {
	Reason string
	Err    error // what led to it, nil if the measurement itself says so
}

func (e *RejectedError) Error() string {
	if e.Err == nil {
		return "sample rejected: " + e.Reason
	}
	return fmt.Sprintf("sample rejected: %s: %v", e.Reason, e.Err)
}

func (e *RejectedError) Unwrap() error { return e.Err }
