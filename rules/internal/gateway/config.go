package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"assay/rules/internal/jsonfile"
	"assay/rules/internal/openai"
	"assay/rules/internal/worker"
)

// Config says what is served, by which workers and within which limits.
type Config struct {
	// Listen is host:port; empty means 127.0.0.1 and a free port.
	Listen string `json:"listen,omitempty"`
	// Models are the names a request may use. All mean the same workers.
	Models []string `json:"models"`
	// Endpoints are those offered, "chat" and "completions"; empty means both. A
	// worker that lacks one of them is not taken into service.
	Endpoints []openai.Endpoint `json:"endpoints,omitempty"`
	Workers   []Worker          `json:"workers"`
	// Records is the file that gets the terminal records, one JSON line each. It
	// is appended to.
	Records string `json:"records"`

	// Limits of time in seconds: a whole request, a worker's start, the end of a
	// cancelled request before its worker is replaced, and the requests in
	// flight when the server is told to stop. 0 means 120, 120, 2 and 10.
	RequestTimeout float64 `json:"request_timeout_seconds,omitempty"`
	StartupTimeout float64 `json:"startup_timeout_seconds,omitempty"`
	CancelGrace    float64 `json:"cancel_grace_seconds,omitempty"`
	DrainTimeout   float64 `json:"drain_timeout_seconds,omitempty"`

	// MaxBodyBytes limits a request's body; 0 means 32 MiB.
	MaxBodyBytes int64 `json:"max_body_bytes,omitempty"`
	// MaxOutputTokens is the most a request may ask for, and what it gets if it
	// does not ask; 0 means 1024.
	MaxOutputTokens int `json:"max_output_tokens,omitempty"`

	// Log gets the events of workers and faults of the server; nil means slog's
	// default.
	Log *slog.Logger `json:"-"`
}

// Worker is a command that speaks the worker protocol. Its standard error is
// the gateway's.
type Worker struct {
	Command []string `json:"command"`
	// Env is added to the gateway's environment, as NAME=value.
	Env []string `json:"env,omitempty"`
	// CPUs limits the worker to these CPUs; empty means no limit. All replicas
	// of an entry share them: for sets of their own, write an entry for each.
	CPUs []int `json:"cpus,omitempty"`
	// Count is the number of replicas, each a lane; 0 means 1.
	Count int `json:"count,omitempty"`
}

// bodyReserve is the room that a generate frame needs beside the body.
const bodyReserve = 64 << 10

// ParseConfig reads a configuration strictly.
func ParseConfig(data []byte) (Config, error) {
	var c Config
	err := jsonfile.Decode(data, &c)
	return c, err
}

// complete fills in defaults and reports all that is wrong.
func (c *Config) complete() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if len(c.Endpoints) == 0 {
		c.Endpoints = []openai.Endpoint{openai.Chat, openai.Completions}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if len(c.Models) == 0 || slices.Contains(c.Models, "") {
		bad("models: at least one name is needed, and no empty one")
	}
	for _, endpoint := range c.Endpoints {
		if endpoint != openai.Chat && endpoint != openai.Completions {
			bad("endpoints: unknown endpoint %q, not %q or %q", endpoint, openai.Chat, openai.Completions)
		}
	}
	if c.Records == "" {
		bad("records: a file for the terminal records is needed")
	}
	if len(c.Workers) == 0 {
		bad("workers: at least one is needed")
	}
	for i := range c.Workers {
		w := &c.Workers[i]
		if len(w.Command) == 0 || w.Command[0] == "" {
			bad("workers[%d].command is empty", i)
		}
		for _, variable := range w.Env {
			if name, _, ok := strings.Cut(variable, "="); !ok || name == "" {
				bad("workers[%d].env: %q is not NAME=value", i, variable)
			}
		}
		if w.Count < 0 {
			bad("workers[%d].count is negative", i)
		}
		w.Count = max(w.Count, 1)
	}
	for _, limit := range []struct {
		name  string
		value *float64
		usual float64
	}{
		{"request_timeout_seconds", &c.RequestTimeout, 120},
		{"startup_timeout_seconds", &c.StartupTimeout, 120},
		{"cancel_grace_seconds", &c.CancelGrace, 2},
		{"drain_timeout_seconds", &c.DrainTimeout, 10},
	} {
		const most = 1e6 // far from the end of time.Duration
		if *limit.value == 0 {
			*limit.value = limit.usual
		}
		if !(*limit.value > 0 && *limit.value <= most) {
			bad("%s: %v is not between 0 and %v", limit.name, *limit.value, most)
		}
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 32 << 20
	}
	if most := int64(worker.MaxRequest - bodyReserve); c.MaxBodyBytes < 0 || c.MaxBodyBytes > most {
		bad("max_body_bytes: %d is not between 1 and %d", c.MaxBodyBytes, most)
	}
	if c.MaxOutputTokens == 0 {
		c.MaxOutputTokens = 1024
	}
	if c.MaxOutputTokens < 0 {
		bad("max_output_tokens is negative")
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("gateway configuration: %w", err)
	}
	return nil
}

// lanes lists one worker for each lane.
func (c *Config) lanes() []worker.Spec {
	endpoints := make([]string, len(c.Endpoints))
	for i, endpoint := range c.Endpoints {
		endpoints[i] = string(endpoint)
	}
	var specs []worker.Spec
	for _, w := range c.Workers {
		spec := worker.Spec{Command: w.Command, Env: append(os.Environ(), w.Env...), CPUs: w.CPUs, Endpoints: endpoints}
		specs = append(specs, slices.Repeat([]worker.Spec{spec}, w.Count)...)
	}
	return specs
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
