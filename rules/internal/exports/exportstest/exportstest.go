// Package exportstest writes folders in the form of AIPerf 0.13.0, for tests of
// what reads them: one streamed chat run, in a closed loop of one.
package exportstest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// End is how a request ends.
type End int

const (
	Well     End = iota // ten tokens, as they are generated
	Broken              // the stream ends after its first token; AIPerf calls it a success
	Rejected            // 429
	Empty               // it ends well, without content
)

// Run is what a folder tells. The zero Run has one warm-up and ten measured
// requests, all of which end well.
type Run struct {
	ID       string // of the run; the ids of its requests begin with it
	Start    time.Time
	Warmup   int
	Measured int
	Ends     []End // of the measured requests; those beyond end well
	// Slower is added to every latency.
	Slower time.Duration
}

func (r Run) filled() Run {
	if r.ID == "" {
		r.ID = "a1b2c3d4"
	}
	if r.Start.IsZero() {
		r.Start = time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	}
	if r.Warmup+r.Measured == 0 {
		r.Warmup, r.Measured = 1, 10
	}
	return r
}

const (
	tokens    = 10
	first     = 20 * time.Millisecond // to the first token
	gap       = 5 * time.Millisecond
	apart     = 100 * time.Millisecond // from one dispatch to the next
	perfZero  = 4_000_000_000_000
	noAnswer  = "InvalidInferenceResultError"
	modelName = "test/model"
)

type object = map[string]any

// request is one request on its way into the files.
type request struct {
	run     Run
	phase   string
	session int // in the phase
	place   int // in the run
	end     End
}

func (r Run) requests() []request {
	var all []request
	for i := range r.Warmup {
		all = append(all, request{r, "warmup", i, i, Well})
	}
	for i := range r.Measured {
		end := Well
		if i < len(r.Ends) {
			end = r.Ends[i]
		}
		all = append(all, request{r, "profiling", i, r.Warmup + i, end})
	}
	return all
}

func (q request) id() string        { return fmt.Sprintf("%s-%04d", q.run.ID, q.place) }
func (q request) start() int64      { return q.run.Start.Add(time.Duration(q.place) * apart).UnixNano() }
func (q request) startPerf() int64  { return perfZero + int64(q.place)*int64(apart) }
func (q request) ttft() int64       { return int64(first + q.run.Slower) }
func (q request) success() bool     { return q.end == Well || q.end == Broken }
func (q request) text(i int) string { return fmt.Sprintf(" w%d", i) }

// latency is dispatch to last content, in ns.
func (q request) latency() int64 {
	if q.end == Well {
		return q.ttft() + (tokens-1)*int64(gap)
	}
	return q.ttft()
}

func (q request) metadata() object {
	m := object{
		"session_num": q.session, "x_request_id": q.id(), "x_correlation_id": "c-" + q.id(), "conversation_id": fmt.Sprintf("session_%06d", q.place), "turn_index": 0,
		"credit_issued_ns": q.start() - 1e6, "request_start_ns": q.start(), "request_end_ns": q.start(),
		"benchmark_phase": q.phase, "was_cancelled": false,
	}
	if q.end != Rejected {
		m["request_end_ns"] = q.start() + q.latency()
	}
	return m
}

func (q request) payload() object {
	return object{"model": modelName, "stream": true, "max_completion_tokens": tokens, "messages": []object{{"role": "user", "content": "question " + q.id()}}}
}

func (q request) fault() object {
	switch q.end {
	case Rejected:
		return object{"code": 429, "type": "Too Many Requests", "message": "busy"}
	case Empty:
		return object{"type": noAnswer, "message": noAnswer}
	}
	return nil
}

func (q request) raw() object {
	rec := object{"metadata": q.metadata(), "start_perf_ns": q.startPerf(), "payload": q.payload(), "status": 200}
	var responses []object
	event := func(after int64, data string) {
		responses = append(responses, object{"perf_ns": q.startPerf() + after, "packets": []object{{"name": "data", "value": data}}})
	}
	chunk := func(choice object, usage object) string {
		b, _ := json.Marshal(object{"object": "chat.completion.chunk", "choices": []object{choice}, "usage": usage})
		return string(b)
	}
	words := map[End]int{Well: tokens, Broken: 1}[q.end]
	for i := range words {
		event(q.ttft()+int64(i)*int64(gap), chunk(object{"index": 0, "delta": object{"content": q.text(i)}}, nil))
	}
	if q.end == Well || q.end == Empty {
		event(q.latency(), chunk(object{"index": 0, "delta": object{}, "finish_reason": "stop"}, object{"prompt_tokens": 8, "completion_tokens": words}))
		event(q.latency(), "[DONE]")
	}
	if q.end == Rejected {
		rec["status"] = 429
	}
	if f := q.fault(); f != nil {
		rec["error"] = f
	}
	rec["responses"] = responses
	return rec
}

func (q request) figures() object {
	rec := object{"metadata": q.metadata()}
	metric := func(v any, unit string) object { return object{"value": v, "unit": unit} }
	if f := q.fault(); f != nil {
		rec["error"], rec["metrics"] = f, object{"error_isl": metric(8, "tokens")}
		return rec
	}
	rec["metrics"] = object{
		"request_latency": metric(ms(q.latency()), "ms"), "time_to_first_token": metric(ms(q.ttft()), "ms"),
		"input_sequence_length": metric(8, "tokens"), "output_sequence_length": metric(tokens, "tokens"),
	}
	return rec
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

func (r Run) summary() object {
	latency, successes, failures := 0.0, 0, 0
	var low, high float64
	for _, q := range r.requests() {
		switch v := ms(q.latency()); {
		case q.phase != "profiling":
		case q.success():
			if successes == 0 || v < low {
				low = v
			}
			successes++
			latency, high = latency+v, max(high, v)
		default:
			failures++
		}
	}
	if successes == 0 {
		return nil
	}
	phases := []object{{"name": "profiling", "kind": "profiling", "type": "concurrency", "requests": r.Measured, "concurrency": 1}}
	if r.Warmup > 0 {
		phases = append([]object{{"name": "warmup", "kind": "warmup", "type": "concurrency", "requests": r.Warmup, "concurrency": 1}}, phases...)
	}
	from, to := r.window("profiling")
	const form = "2006-01-02T15:04:05.000000"
	s := object{
		"schema_version": "1.4", "aiperf_version": "0.13.0", "benchmark_id": r.ID, "was_cancelled": false, "is_complete": true,
		"start_time": time.Unix(0, from).UTC().Format(form), "end_time": time.Unix(0, to).UTC().Format(form),
		"request_count":   object{"unit": "requests", "avg": float64(successes)},
		"request_latency": object{"unit": "ms", "avg": latency / float64(successes), "p50": high, "p99": high, "min": low, "max": high, "count": successes, "sum": latency},
		"input_config": object{
			"models":   object{"items": []object{{"name": modelName}}},
			"endpoint": object{"type": "chat", "streaming": true},
			"datasets": []object{{"random_seed": 7, "prompts": object{"isl": object{"mean": 8.0}, "osl": object{"mean": float64(tokens)}}}},
			"phases":   phases,
		},
	}
	if failures > 0 {
		s["error_request_count"] = object{"unit": "requests", "avg": float64(failures)}
	}
	return s
}

// window is from the first credit to a millisecond behind the last answer, Unix ns.
func (r Run) window(phase string) (from, to int64) {
	for _, q := range r.requests() {
		if q.phase != phase {
			continue
		}
		if from == 0 {
			from = q.start() - 1e6
		}
		to = q.start() + q.latency() + 1e6
	}
	return from, to
}

// Write makes the folder, with the times that AIPerf would give its files.
func (r Run) Write(t testing.TB, dir string) {
	t.Helper()
	r = r.filled()
	var raw, figures, log bytes.Buffer
	var inputs []object
	for _, q := range r.requests() {
		line(t, &raw, q.raw())
		line(t, &figures, q.figures())
		inputs = append(inputs, object{"session_id": q.metadata()["conversation_id"], "payloads": []object{q.payload()}})
	}
	fmt.Fprintf(&log, "aiperf.cli_runner - INFO - Starting AIPerf System\n")
	var phases []object
	for i, phase := range []string{"warmup", "profiling"} {
		n := []int{r.Warmup, r.Measured}[i]
		from, to := r.window(phase)
		if n > 0 {
			fmt.Fprintf(&log, "PhaseRunner - NOTICE - Phase %s (%s) started | phase_index=%d | target: %d requests\n", phase, phase, i, n)
			phases = append(phases, object{"phase_kind": phase, "start_ns": from, "end_ns": to, "total_request_count": n})
		}
	}
	files := map[string][]byte{
		"profile_export_raw.jsonl": raw.Bytes(), "profile_export.jsonl": figures.Bytes(), "logs/aiperf.log": log.Bytes(),
		"inputs.json": encode(t, object{"data": inputs}),
	}
	if s := r.summary(); s != nil {
		files["profile_export_aiperf.json"] = encode(t, s)
	}
	if r.Warmup > 0 {
		files["phase_manifest.json"] = encode(t, object{"schema_version": 1, "phases": phases})
		files["phases/profiling/profile_export_aiperf.json"] = encode(t, object{"benchmark_id": r.ID})
	}
	_, end := r.window("profiling")
	written := time.Unix(0, end).Add(2 * time.Second)
	for name, data := range files {
		Put(t, dir, name, data)
		if err := os.Chtimes(filepath.Join(dir, name), written, written); err != nil {
			t.Fatal(err)
		}
	}
}

// Records are the server's terminal records of the run.
func (r Run) Records(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, q := range r.filled().requests() {
		rec := object{
			"schema": 1, "request_id": q.id(), "id_source": "client", "endpoint": "chat", "stream": true, "model": modelName, "status": 200, "outcome": "completed",
			"received_wall_ns": q.start() + 1e6, "boot_id": "b", "total_ns": q.latency() - 1e6,
		}
		words := 0
		switch q.end {
		case Well:
			words = tokens
		case Broken:
			words = 1
			rec["outcome"], rec["reason"] = "failed", "broken_stream"
		case Rejected:
			rec["status"], rec["outcome"] = 429, "rejected"
		}
		if q.end == Well || q.end == Empty {
			var text strings.Builder
			for i := range words {
				text.WriteString(q.text(i))
			}
			rec["task"] = object{
				"scope": "public_task_call_wall", "wall_ns": q.latency() - 2e6, "first_increment_ns": q.ttft() - 2e6, "increments": words, "prompt_tokens": 8, "completion_tokens": words,
				"finish_reason": "stop", "text_sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(text.String()))),
			}
		}
		line(t, &out, rec)
	}
	return out.Bytes()
}

// Put writes a file and the folders above it.
func Put(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func line(t testing.TB, to *bytes.Buffer, v object) {
	t.Helper()
	to.Write(append(encode(t, v), '\n'))
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
