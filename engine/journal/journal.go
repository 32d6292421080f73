// Package journal reads back the event logs that builds leave: which builds there
// were, what ran in one of them, and what it had to wait for.
package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"assay/engine/event"
)

// File is the name of the log in the folder of its build.
const File = "events.jsonl"

// Build is one build and what it said.
type Build struct {
	Invocation string
	Events     []event.Event
}

// Names lists the builds with a log below dir, the latest first.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, de := range entries { // a name starts with the time of the build
		if de.IsDir() {
			names = append(names, de.Name())
		}
	}
	slices.Reverse(names)
	return names, nil
}

// Open reads the log of the build whose name starts with prefix; with an empty
// prefix that of the last build of the checkout.
func Open(dir, prefix, checkout string) (*Build, error) {
	names, err := Names(dir)
	if err != nil {
		return nil, err
	}
	if prefix == "" {
		for _, name := range names {
			// A log that cannot be read is not the one that is looked for.
			if b, err := Read(dir, name); err == nil && b.Checkout() == checkout {
				return b, nil
			}
		}
		return nil, errors.New("there is no log of a build of this workspace; run assay build first")
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	switch len(names) {
	case 0:
		return nil, fmt.Errorf("no build is called %s…; assay log list names them", prefix)
	case 1:
		return Read(dir, names[0])
	}
	return nil, fmt.Errorf("%d builds are called %s…: %s", len(names), prefix, strings.Join(names, ", "))
}

// Read reads the log of one build. A last line that a killed build left torn is
// passed over.
func Read(dir, invocation string) (*Build, error) {
	path := filepath.Join(dir, invocation, File)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("log of build %s: %w", invocation, err)
	}
	defer f.Close()
	b := &Build{Invocation: invocation}
	lines := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, fmt.Errorf("log of build %s: %w", invocation, err)
		}
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if e.Schema > event.Schema {
			return nil, fmt.Errorf("%s:%d: the log has form %d, this assay knows %d; use a newer one", path, n, e.Schema, event.Schema)
		}
		b.Events = append(b.Events, e)
	}
}

// Checkout names the workspace that was built; empty if the log does not say.
func (b *Build) Checkout() string {
	for _, e := range b.Events {
		if e.Kind == event.Begin {
			return e.Checkout
		}
	}
	return ""
}

// Ran lists how each action that ran ended, in the order of its end. One that
// started and has no end in the log is Interrupted.
func (b *Build) Ran() []event.Event {
	started := map[string]event.Event{}
	var order []string
	var ran []event.Event
	for _, e := range b.Events {
		switch e.Kind {
		case event.Started:
			started[e.Action] = e
			order = append(order, e.Action)
		case event.Finished:
			if s, ok := started[e.Action]; ok {
				e.Reason = s.Reason // also that of a failure
				ran = append(ran, e)
				delete(started, e.Action)
			}
		}
	}
	for _, id := range order {
		if e, ok := started[id]; ok {
			e.Status = event.Interrupted
			ran = append(ran, e)
		}
	}
	return ran
}

// Span is the time between the first event and the last.
func (b *Build) Span() time.Duration {
	if len(b.Events) == 0 {
		return 0
	}
	return b.Events[len(b.Events)-1].Time.Sub(b.Events[0].Time)
}

// CriticalPath is the chain of actions, each needing the one before, whose run
// times add up to most: with any number of CPUs the build had to take that long.
// What took no time is left out.
func (b *Build) CriticalPath() []event.Event {
	finished := map[string]event.Event{}
	for _, e := range b.Events {
		if e.Kind == event.Finished {
			finished[e.Action] = e
		}
	}
	type best struct {
		seconds float64 // of the chain that ends here
		before  string
	}
	chains := map[string]best{}
	var longest func(id string) float64
	longest = func(id string) float64 {
		if c, ok := chains[id]; ok {
			return c.seconds
		}
		chains[id] = best{} // a cycle, which only a damaged log has, ends here
		e := finished[id]
		var c best
		for _, need := range e.Needs {
			if s := longest(need); s > c.seconds {
				c = best{s, need}
			}
		}
		c.seconds += e.Seconds
		chains[id] = c
		return c.seconds
	}
	last := ""
	for _, e := range b.Events {
		if e.Kind == event.Finished && longest(e.Action) > longest(last) {
			last = e.Action
		}
	}
	var path []event.Event
	for id := last; id != ""; id = chains[id].before {
		if e := finished[id]; e.Seconds > 0 {
			path = append(path, e)
		}
	}
	slices.Reverse(path)
	return path
}
