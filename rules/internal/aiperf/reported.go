package aiperf

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Reported is what profile_export_aiperf.json says of the run beyond its counts:
// the configuration, and AIPerf's own figures. Unlike ReadSummary, which the
// ledger rests on, it takes what it understands and names the rest, so that the
// summary of another version still says as much as it can.
type Reported struct {
	Schema, Version, BenchmarkID string
	// Start and End are local times without a zone, as AIPerf writes them.
	Start, End string

	Model     string
	Endpoint  string
	Streaming bool
	Phases    []PlannedPhase
	// InputTokens and OutputTokens are the means that were asked for, Seed that of
	// the data set.
	InputTokens, OutputTokens, Seed *float64

	// Times are in ms, over the measured requests that AIPerf calls successes.
	Latency, TTFT, ITL *Spread
	DurationS          *float64 // first start to last end of the successes
	RequestsPerS       *float64
	OutputTokensPerS   *float64

	// Strange are keys whose value has another form than in AIPerf 0.13.0, in the
	// order of their names.
	Strange []string
}

// PlannedPhase is a phase as it was configured. Whole numbers may be written as
// floats.
type PlannedPhase struct {
	Kind     string   `json:"kind"` // Warmup or Profiling
	Type     string   `json:"type"` // concurrency, constant, poisson, fixed_schedule, …
	Requests *float64 `json:"requests"`
	// Duration and Sessions bound the phase too, whichever comes first; nil if not
	// set. Their form is not looked at.
	Duration    any      `json:"duration"`
	Sessions    any      `json:"sessions"`
	Concurrency *float64 `json:"concurrency"`
	Rate        *float64 `json:"rate"` // per second
}

// Planned is how many requests the phase was to send, false if something else
// than their number ended it.
func (p *PlannedPhase) Planned() (int, bool) {
	if p.Requests == nil || p.Duration != nil || p.Sessions != nil {
		return 0, false
	}
	return int(*p.Requests), true
}

// Measured is the measured phase, nil if there is not exactly one.
func (r *Reported) Measured() *PlannedPhase {
	var found *PlannedPhase
	for i := range r.Phases {
		if r.Phases[i].Kind != Profiling {
			continue
		}
		if found != nil {
			return nil
		}
		found = &r.Phases[i]
	}
	return found
}

// Spread is a figure over several requests.
type Spread struct {
	Count *float64 `json:"count"`
	Sum   *float64 `json:"sum"`
	Avg   *float64 `json:"avg"`
	P50   *float64 `json:"p50"`
	P99   *float64 `json:"p99"`
}

// ReadReported reads the summary of a run. Only what is no JSON object is an
// error. name stands for the file in errors.
func ReadReported(r io.Reader, name string) (*Reported, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSummary+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > maxSummary {
		return nil, fmt.Errorf("%s: larger than %d bytes: not a summary of AIPerf", name, maxSummary)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rep := &Reported{}
	take := func(key string, to any) {
		if raw, ok := keys[key]; ok && json.Unmarshal(raw, to) != nil {
			rep.Strange = append(rep.Strange, key)
		}
	}
	take("schema_version", &rep.Schema)
	take("aiperf_version", &rep.Version)
	take("benchmark_id", &rep.BenchmarkID)
	take("start_time", &rep.Start)
	take("end_time", &rep.End)
	take("request_latency", &rep.Latency)
	take("time_to_first_token", &rep.TTFT)
	take("inter_token_latency", &rep.ITL)
	for key, to := range map[string]**float64{
		"benchmark_duration": &rep.DurationS, "request_throughput": &rep.RequestsPerS, "output_token_throughput": &rep.OutputTokensPerS,
	} {
		var s Spread
		take(key, &s)
		*to = s.Avg
	}
	var config runConfig
	take("input_config", &config)
	config.into(rep)
	slices.Sort(rep.Strange)
	return rep, nil
}

// runConfig is the run's configuration, as far as it says what was planned.
type runConfig struct {
	Models struct {
		Items []struct {
			Name string `json:"name"`
		} `json:"items"`
	} `json:"models"`
	Endpoint struct {
		Type      string `json:"type"`
		Streaming bool   `json:"streaming"`
	} `json:"endpoint"`
	Datasets []struct {
		Seed    *float64 `json:"random_seed"`
		Prompts struct {
			ISL tokens `json:"isl"`
			OSL tokens `json:"osl"`
		} `json:"prompts"`
	} `json:"datasets"`
	Phases []PlannedPhase `json:"phases"`
}

// tokens is how long prompts or answers were asked to be.
type tokens struct {
	Mean *float64 `json:"mean"`
}

func (c runConfig) into(r *Reported) {
	if len(c.Models.Items) == 1 { // of several none is the run's
		r.Model = c.Models.Items[0].Name
	}
	r.Endpoint, r.Streaming, r.Phases = c.Endpoint.Type, c.Endpoint.Streaming, c.Phases
	if len(c.Datasets) == 1 {
		d := c.Datasets[0]
		r.Seed, r.InputTokens, r.OutputTokens = d.Seed, d.Prompts.ISL.Mean, d.Prompts.OSL.Mean
	}
}

// Manifest is phase_manifest.json, which AIPerf writes when a run had several
// phases.
type Manifest struct {
	Phases []RunPhase `json:"phases"`
}

// RunPhase is a phase as it was run. Times are Unix time in ns.
type RunPhase struct {
	Kind     string `json:"phase_kind"` // Warmup or Profiling
	StartNS  *int64 `json:"start_ns"`
	EndNS    *int64 `json:"end_ns"`
	Requests *int64 `json:"total_request_count"`
}

// maxManifest bounds the manifest in bytes; real ones have some KiB.
const maxManifest = 4 << 20

// ReadManifest reads phase_manifest.json. name stands for the file in errors.
func ReadManifest(r io.Reader, name string) (*Manifest, error) {
	var m Manifest
	if err := json.NewDecoder(io.LimitReader(r, maxManifest)).Decode(&m); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &m, nil
}

// ReadConversations hands the id of every conversation in inputs.json to each. It
// holds one conversation at a time. name stands for the file in errors.
func ReadConversations(r io.Reader, name string, each func(id string)) error {
	dec := json.NewDecoder(bufio.NewReaderSize(r, 256<<10))
	fail := func(err error) error { return fmt.Errorf("%s: byte %d: %w", name, dec.InputOffset(), err) }
	for _, want := range []json.Token{json.Delim('{'), "data", json.Delim('[')} {
		if t, err := dec.Token(); err != nil {
			return fail(err)
		} else if t != want {
			return fail(fmt.Errorf("%v instead of %v: not the inputs of AIPerf", t, want))
		}
	}
	for dec.More() {
		var c struct {
			ID string `json:"session_id"`
		}
		if err := dec.Decode(&c); err != nil {
			return fail(err)
		}
		each(c.ID)
	}
	if _, err := dec.Token(); err != nil {
		return fail(err)
	}
	return nil
}
