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
	"assay/rules/internal/recordlog"
	"assay/rules/internal/upstream"
	"assay/rules/internal/worker"
)

// Config says what is served, by which engines and within which limits.
type Config struct {
	// Listen is host:port; empty means 127.0.0.1 and a free port.
	Listen string  `json:"listen,omitempty"`
	Models []Model `json:"models"`
	// Records is where the terminal records go, one JSON line each.
	Records Records `json:"records"`
	// APIKeysFile holds the keys, one a line, of which a request must give one;
	// empty means that none is asked for.
	APIKeysFile string `json:"api_keys_file,omitempty"`

	// Limits of time in seconds: a whole request, its header, a worker's start, the
	// end of a cancelled request before its worker is replaced, and the requests in
	// flight when the server is told to stop. 0 means 120, 10, 120, 2 and 10.
	RequestTimeout float64 `json:"request_timeout_seconds,omitempty"`
	HeaderTimeout  float64 `json:"header_timeout_seconds,omitempty"`
	StartupTimeout float64 `json:"startup_timeout_seconds,omitempty"`
	CancelGrace    float64 `json:"cancel_grace_seconds,omitempty"`
	DrainTimeout   float64 `json:"drain_timeout_seconds,omitempty"`

	// MaxBodyBytes limits a request's body, MaxPromptBytes the text in it; 0 means
	// 32 MiB and 1 MiB.
	MaxBodyBytes   int64 `json:"max_body_bytes,omitempty"`
	MaxPromptBytes int   `json:"max_prompt_bytes,omitempty"`
	// MaxOutputTokens is the most a request may ask for, and what it gets if it
	// does not ask; 0 means 1024.
	MaxOutputTokens int `json:"max_output_tokens,omitempty"`
	// MaxConnections is how many connections may be open; 0 means 16384. It is
	// lowered to what the limit of open files allows.
	MaxConnections int `json:"max_connections,omitempty"`

	// Log gets the events of workers and faults of the server; nil means slog's
	// default.
	Log *slog.Logger `json:"-"`
}

// Records says how the terminal records are kept.
type Records struct {
	File string `json:"file"`
	// MaxBytes is the size at which a new file is begun; 0 means never.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Sync says when records are made durable.
	Sync recordlog.SyncPolicy `json:"sync,omitempty"`
}

// Model is one thing that is served, under one or more names, by workers or by an
// upstream engine.
type Model struct {
	Names []string `json:"names"`
	// Endpoints are those offered, "chat" and "completions"; empty means both. A
	// worker that lacks one of them is not taken into service.
	Endpoints []openai.Endpoint `json:"endpoints,omitempty"`
	Workers   []Worker          `json:"workers,omitempty"`
	Upstream  *upstream.Config  `json:"upstream,omitempty"`
	Queue     Queue             `json:"queue,omitzero"`
}

// Queue lets requests wait for a lane, in order of arrival.
type Queue struct {
	Length int `json:"length,omitempty"` // how many; 0 means none
	// WaitSeconds is for how long; 0 means as long as the request may take.
	WaitSeconds float64 `json:"wait_seconds,omitempty"`
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

const (
	// bodyReserve is the room that a generate frame needs beside the body.
	bodyReserve = 64 << 10
	// maxSeconds is far from the end of time.Duration.
	maxSeconds = 1e6
)

// ParseConfig reads a configuration strictly.
func ParseConfig(data []byte) (Config, error) {
	var c Config
	err := jsonfile.Decode(data, &c)
	return c, err
}

// faults collects what is wrong with a configuration.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// complete fills in defaults and reports all that is wrong.
func (c *Config) complete() error {
	var bad faults
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Records.File == "" {
		bad.add("records.file: a file for the terminal records is needed")
	}
	if c.Records.MaxBytes < 0 {
		bad.add("records.max_bytes is negative")
	}
	if len(c.Models) == 0 {
		bad.add("models: at least one is needed")
	}
	named := map[string]int{}
	for i := range c.Models {
		for _, name := range c.Models[i].Names {
			if other, twice := named[name]; twice {
				bad.add("models[%d].names: %q is a name of models[%d] too", i, name, other)
			}
			named[name] = i
		}
		c.Models[i].complete(&bad, fmt.Sprintf("models[%d]", i))
	}
	for _, limit := range []struct {
		name  string
		value *float64
		usual float64
	}{
		{"request_timeout_seconds", &c.RequestTimeout, 120},
		{"header_timeout_seconds", &c.HeaderTimeout, 10},
		{"startup_timeout_seconds", &c.StartupTimeout, 120},
		{"cancel_grace_seconds", &c.CancelGrace, 2},
		{"drain_timeout_seconds", &c.DrainTimeout, 10},
	} {
		if *limit.value == 0 {
			*limit.value = limit.usual
		}
		if !(*limit.value > 0 && *limit.value <= maxSeconds) {
			bad.add("%s: %v is not between 0 and %v", limit.name, *limit.value, maxSeconds)
		}
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 32 << 20
	}
	if most := int64(worker.MaxRequest - bodyReserve); c.MaxBodyBytes < 0 || c.MaxBodyBytes > most {
		bad.add("max_body_bytes: %d is not between 1 and %d", c.MaxBodyBytes, most)
	}
	for _, limit := range []struct {
		name  string
		value *int
		usual int
	}{
		{"max_prompt_bytes", &c.MaxPromptBytes, 1 << 20},
		{"max_output_tokens", &c.MaxOutputTokens, 1024},
		{"max_connections", &c.MaxConnections, 16384},
	} {
		if *limit.value == 0 {
			*limit.value = limit.usual
		}
		if *limit.value < 0 {
			bad.add("%s is negative", limit.name)
		}
	}
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("gateway configuration: %w", err)
	}
	return nil
}

func (m *Model) complete(bad *faults, at string) {
	if len(m.Endpoints) == 0 {
		m.Endpoints = []openai.Endpoint{openai.Chat, openai.Completions}
	}
	if len(m.Names) == 0 || slices.Contains(m.Names, "") {
		bad.add("%s.names: at least one name is needed, and no empty one", at)
	}
	for _, endpoint := range m.Endpoints {
		if endpoint != openai.Chat && endpoint != openai.Completions {
			bad.add("%s.endpoints: unknown endpoint %q, not %q or %q", at, endpoint, openai.Chat, openai.Completions)
		}
	}
	if (len(m.Workers) == 0) == (m.Upstream == nil) {
		bad.add("%s: either workers or an upstream is needed, and not both", at)
	}
	if m.Queue.Length < 0 {
		bad.add("%s.queue.length is negative", at)
	}
	if !(m.Queue.WaitSeconds >= 0 && m.Queue.WaitSeconds <= maxSeconds) {
		bad.add("%s.queue.wait_seconds: %v is not between 0 and %v", at, m.Queue.WaitSeconds, maxSeconds)
	}
	if m.Queue.WaitSeconds == 0 {
		m.Queue.WaitSeconds = maxSeconds // the request's own limit comes first
	}
	for i := range m.Workers {
		w := &m.Workers[i]
		if len(w.Command) == 0 || w.Command[0] == "" {
			bad.add("%s.workers[%d].command is empty", at, i)
		}
		for _, variable := range w.Env {
			if name, _, ok := strings.Cut(variable, "="); !ok || name == "" {
				bad.add("%s.workers[%d].env: %q is not NAME=value", at, i, variable)
			}
		}
		if w.Count < 0 {
			bad.add("%s.workers[%d].count is negative", at, i)
		}
		w.Count = max(w.Count, 1)
	}
}

// lanes lists one worker for each lane.
func (m *Model) lanes(log *slog.Logger) ([]worker.Spec, error) {
	endpoints := make([]string, len(m.Endpoints))
	for i, endpoint := range m.Endpoints {
		endpoints[i] = string(endpoint)
	}
	var specs []worker.Spec
	for _, w := range m.Workers {
		spec := worker.Spec{Command: w.Command, Env: append(os.Environ(), w.Env...), CPUs: w.CPUs, Endpoints: endpoints}
		specs = append(specs, slices.Repeat([]worker.Spec{spec}, w.Count)...)
	}
	if m.Upstream != nil {
		engine, err := upstream.New(*m.Upstream, log)
		if err != nil {
			return nil, err
		}
		spec := worker.Spec{Handler: engine.Handler(), Endpoints: endpoints}
		specs = slices.Repeat([]worker.Spec{spec}, max(m.Upstream.Lanes, 1))
	}
	return specs, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
