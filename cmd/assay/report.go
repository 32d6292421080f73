package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/durable"
	"assay/engine"
	"assay/engine/event"
	"assay/engine/history"
)

// reportSchema is the version of the build report's form; docs/commands.md
// describes it.
const reportSchema = 1

// buildReport is what --json writes.
type buildReport struct {
	Schema     int            `json:"schema"`
	Invocation string         `json:"invocation"`
	Started    time.Time      `json:"started"`
	Seconds    float64        `json:"seconds"`
	Counts     map[string]int `json:"counts"` // targets by status
	NewSamples int            `json:"new_samples"`
	Targets    []targetReport `json:"targets"`
}

type targetReport struct {
	Target  string           `json:"target"`
	Rule    string           `json:"rule"`
	Class   string           `json:"class"`
	Status  event.Status     `json:"status"`
	Reason  string           `json:"reason,omitempty"`
	Changes []history.Change `json:"changes,omitempty"`
	Key     digest.Digest    `json:"key,omitempty"`
	Output  digest.Digest    `json:"output,omitempty"`
	Samples int              `json:"new_samples,omitempty"`
	Seconds float64          `json:"seconds,omitempty"`
	Error   string           `json:"error,omitempty"`
}

func newBuildReport(r *engine.Report, started time.Time) buildReport {
	b := buildReport{
		Schema: reportSchema, Invocation: r.Invocation, Started: started.UTC(), Seconds: r.Elapsed.Seconds(),
		Counts: map[string]int{}, Targets: []targetReport{},
	}
	for _, o := range r.Outcomes {
		t := targetReport{
			Target: o.Action.ID, Rule: o.Action.Rule, Class: o.Action.Class.String(), Status: o.Status,
			Reason: o.Why.Reason, Changes: o.Why.Changes, Key: o.Key, Output: o.Output.Digest,
			Samples: o.Samples, Seconds: o.Elapsed.Seconds(),
		}
		if o.Err != nil {
			t.Error = o.Err.Error()
		}
		b.Counts[string(o.Status)]++
		b.NewSamples += o.Samples
		b.Targets = append(b.Targets, t)
	}
	return b
}

func (a *app) writeReport(file string, r *engine.Report, started time.Time) error {
	report := newBuildReport(r, started)
	if file == "-" {
		return a.printJSON(report)
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(file, append(data, '\n'), 0o644)
}

// eventFile is the log that --events asks for. A nil one is none.
type eventFile struct {
	*event.Log
	file io.Closer // nil for the standard output
}

func (a *app) openEvents(file string) (*eventFile, error) {
	if file == "-" {
		return &eventFile{Log: event.NewLog(a.stdout)}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	return &eventFile{event.NewLog(f), f}, nil
}

// Close returns the first error of the log.
func (f *eventFile) Close() error {
	if f == nil {
		return nil
	}
	err := f.Err()
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
	}
	return err
}
