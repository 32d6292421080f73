package aiperfrun

import (
	"strconv"
	"time"

	"assay/starlark/graph"
)

// Workload is what the load generator is asked to do.
type Workload struct {
	Endpoint     string  `json:"endpoint"`
	Streaming    bool    `json:"streaming"`
	InputTokens  int64   `json:"input_tokens"`  // of each prompt, without the template's
	OutputTokens int64   `json:"output_tokens"` // at most
	Concurrency  int64   `json:"concurrency"`
	RequestRate  float64 `json:"request_rate"` // per second; 0 is a closed loop
	Arrival      string  `json:"arrival"`      // at a request rate
	Requests     int64   `json:"requests"`     // measured
	Warmup       int64   `json:"warmup_requests"`
	Seed         int64   `json:"seed"`
	TimeoutS     float64 `json:"request_timeout_seconds"`
	// Dataset is what was sent instead of synthetic prompts; the tokens and the
	// seed are 0 then, and Requests and Warmup are those of its plan.
	Dataset *Dataset `json:"dataset,omitempty"`
}

func workload(t *graph.Target) Workload {
	w := Workload{
		Endpoint: t.String("endpoint"), Streaming: t.Bool("streaming"),
		InputTokens: t.Int("input_tokens"), OutputTokens: t.Int("output_tokens"),
		Concurrency: t.Int("concurrency"), RequestRate: t.Float("request_rate"), Arrival: t.String("arrival"), Requests: t.Int("requests"), Warmup: t.Int("warmup_requests"),
		Seed: t.Int("seed"), TimeoutS: t.Float("request_timeout_seconds"),
	}
	if _, ok := t.LabelOf("dataset"); ok {
		w.InputTokens, w.OutputTokens, w.Requests, w.Warmup, w.Seed = 0, 0, 0, 0, 0
		w.Dataset = &Dataset{WarmupConversations: t.Int("warmup_conversations")}
	}
	return w
}

// Planned is the number of requests AIPerf is asked to send.
func (w Workload) Planned() int { return int(w.Requests + w.Warmup) }

// command is AIPerf's command line: {env} is the client environment, {port} the
// gateway's port, {tokenizer} and {out} directories, {dataset} the data set's requests file. Every prompt is distinct:
// there are as many data set entries as requests, in order, since AIPerf would
// otherwise send the warm-ups' prompts again. The family's sampling parameters go
// as the JSON they are.
func (w Workload) command(model string, parameters string) []string {
	args := []string{
		"{env}/bin/aiperf", "profile",
		"--model", model,
		"--url", "http://127.0.0.1:{port}",
		"--endpoint-type", w.Endpoint,
	}
	if w.Streaming {
		args = append(args, "--streaming")
	}
	args = append(args, "--tokenizer", "{tokenizer}")
	if w.Dataset != nil {
		args = append(args, w.Dataset.command()...)
	} else {
		args = append(args, w.synthetic()...)
	}
	if w.Dataset == nil || !w.Dataset.Scheduled {
		args = append(args, "--concurrency", text(w.Concurrency), "--dataset-sampling-strategy", "sequential")
	}
	if w.RequestRate > 0 {
		args = append(args, "--request-rate", strconv.FormatFloat(w.RequestRate, 'f', -1, 64), "--arrival-pattern", w.Arrival)
	}
	args = append(args,
		"--random-seed", text(w.Seed),
		"--request-timeout-seconds", strconv.FormatFloat(w.TimeoutS, 'f', -1, 64),
	)
	if parameters != "" {
		args = append(args, "--extra-inputs", parameters)
	}
	return append(args,
		"--export-level", "raw",
		"--artifact-dir", "{out}",
		"--ui", "none", "--no-gpu-telemetry", "--no-server-metrics", "--no-auto-plot",
	)
}

// synthetic asks for prompts that AIPerf makes up.
func (w Workload) synthetic() []string {
	args := []string{
		"--isl", text(w.InputTokens), "--isl-stddev", "0",
		"--osl", text(w.OutputTokens), "--osl-stddev", "0",
		"--request-count", text(w.Requests),
		"--num-dataset-entries", strconv.Itoa(w.Planned()),
	}
	if w.Warmup > 0 {
		args = append(args, "--warmup-request-count", text(w.Warmup))
	}
	return args
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
