// Package diag holds the mistakes found in a user's text: what is wrong, where,
// how execution got there, and what to do about it.
//
// A load or an analysis collects diagnostics instead of stopping at the first
// one, so that a user sees every mistake in one go.
package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Frame is one position in the user's text.
type Frame struct {
	File string // relative to the workspace, with slashes
	Line int    // from 1; 0 when only the file is known
	Col  int    // from 1, in code points; 0 when only the line is known
	Func string // the function that was executing, "<toplevel>" outside of any
}

// String returns the position as file:line:col, as far as it is known.
func (f Frame) String() string {
	switch {
	case f.Line == 0:
		return f.File
	case f.Col == 0:
		return fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Col)
}

// A Note points to a second place that matters for a diagnostic.
type Note struct {
	Frame Frame
	Text  string
}

// A Diagnostic is one mistake.
type Diagnostic struct {
	Message string
	Stack   []Frame // innermost first; empty when no text is to blame
	Notes   []Note
	Hint    string // what to do about it; may be empty
}

// A List is an error that holds every mistake found.
type List []Diagnostic

// Error returns one line for each diagnostic, without source text.
func (l List) Error() string {
	var b strings.Builder
	for i, d := range l {
		if i > 0 {
			b.WriteByte('\n')
		}
		if len(d.Stack) > 0 {
			b.WriteString(d.Stack[0].String() + ": ")
		}
		b.WriteString(d.Message)
		if d.Hint != "" {
			b.WriteString(" (" + d.Hint + ")")
		}
	}
	return b.String()
}

// A Collector accumulates diagnostics in any order. Its zero value is empty.
type Collector struct {
	list List
}

// Add appends diagnostics.
func (c *Collector) Add(d ...Diagnostic) { c.list = append(c.list, d...) }

// Empty reports whether nothing was added.
func (c *Collector) Empty() bool { return len(c.list) == 0 }

// List returns what was collected, ordered by position and then by message.
// A mistake in a loop is made once for each round; equal ones are listed once.
func (c *Collector) List() List {
	l := slices.Clone(c.list)
	slices.SortStableFunc(l, compare)
	return slices.CompactFunc(l, func(a, b Diagnostic) bool { return compare(a, b) == 0 })
}

// Err returns the list as an error, or nil when it is empty.
func (c *Collector) Err() error {
	if c.Empty() {
		return nil
	}
	return c.List()
}

func compare(a, b Diagnostic) int {
	return cmp.Or(
		slices.CompareFunc(a.Stack, b.Stack, compareFrames),
		cmp.Compare(a.Message, b.Message),
		slices.CompareFunc(a.Notes, b.Notes, func(x, y Note) int {
			return cmp.Or(compareFrames(x.Frame, y.Frame), cmp.Compare(x.Text, y.Text))
		}),
		cmp.Compare(a.Hint, b.Hint),
	)
}

func compareFrames(a, b Frame) int {
	return cmp.Or(
		cmp.Compare(a.File, b.File),
		cmp.Compare(a.Line, b.Line),
		cmp.Compare(a.Col, b.Col),
		cmp.Compare(a.Func, b.Func),
	)
}
