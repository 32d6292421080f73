// Package event is what the engine says while it works: typed events, written to
// the log of the invocation and shown by a console.
package event

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

// Kind names an event.
type Kind string

const (
	Begin    Kind = "begin"    // the build begins; Invocation names it, Total counts its actions
	Note     Kind = "note"     // What tells of something that belongs to no action
	Started  Kind = "started"  // an action runs; Reason says why
	Progress Kind = "progress" // Done of Total, What says of what
	Finished Kind = "finished" // an action has a result; Status says how
)

// Status is how an action ended.
type Status string

const (
	Cached      Status = "cached"      // its result was there
	Ran         Status = "ran"         // it was run now
	Reproduced  Status = "reproduced"  // it was run now and gave the bytes it gave before
	Failed      Status = "failed"      // Error says why
	GateFailed  Status = "gate failed" // it has a result, and that is a verdict that did not pass
	Blocked     Status = "blocked"     // an input failed, or a gate did not pass
	Skipped     Status = "skipped"     // a stop rule decided that it is not needed
	Interrupted Status = "interrupted" // stopped before it had a result
)

// Schema is the version of the events' form; the first event of a build has it.
const Schema = 1

// Event is one thing that happened, mostly to one action.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"kind"`
	Action string    `json:"action,omitempty"`
	Rule   string    `json:"rule,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Status Status    `json:"status,omitempty"`
	Error  string    `json:"error,omitempty"`
	Done   int       `json:"done,omitempty"`
	Total  int       `json:"total,omitempty"`
	What   string    `json:"what,omitempty"`
	// Seconds is how long the action ran.
	Seconds float64 `json:"seconds,omitempty"`

	// Key is the key of a finished action; Needs are the actions whose outputs it
	// takes.
	Key   digest.Digest `json:"key,omitempty"`
	Needs []string      `json:"needs,omitempty"`

	// Of the first event: the form, the build's name, and the checkout it is of.
	Schema     int    `json:"schema,omitempty"`
	Invocation string `json:"invocation,omitempty"`
	Checkout   string `json:"checkout,omitempty"`
}

// Sink receives events; it must be safe for concurrent use and not block for long.
type Sink interface{ Handle(Event) }

// SinkFunc makes a function a Sink.
type SinkFunc func(Event)

func (f SinkFunc) Handle(e Event) { f(e) }

// Tee sends every event to all sinks.
func Tee(sinks ...Sink) Sink {
	return SinkFunc(func(e Event) {
		for _, s := range sinks {
			s.Handle(e)
		}
	})
}

// Log writes events as JSON lines. The first write error is kept for Err: a
// broken log must not stop a build.
type Log struct {
	mu  sync.Mutex
	enc *json.Encoder
	err error
}

// NewLog returns a Log on w.
func NewLog(w io.Writer) *Log { return &Log{enc: json.NewEncoder(w)} }

func (l *Log) Handle(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.enc.Encode(e)
	}
}

// Err is the first error of the log.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
