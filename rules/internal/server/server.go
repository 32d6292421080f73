// Package server starts the native server that a specification describes: a
// gateway process with its workers, on given CPUs, probed until it is ready. A
// sample and a validation start the same server in the same way.
package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"assay/engine/supervise"
	"assay/rules/internal/gateway"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/llama"
	"assay/rules/internal/openai"
	"assay/rules/internal/upstream"
	"assay/rules/internal/worker"
)

// Engines behind the gateway.
const (
	LlamaCPP   = "llama.cpp"      // in the worker's process, through xllamacpp
	LlamaHTTP  = "llama.cpp-http" // its own HTTP server, which the gateway starts
	OpenAIHTTP = "openai-http"    // a server that runs already, at a URL
	Scripted   = "scripted"       // timing and faults from a file, for tests
)

// Engines lists the engines, the default first.
var Engines = []string{LlamaCPP, LlamaHTTP, OpenAIHTTP, Scripted}

// LlamaAdapter is the adapter of LlamaHTTP. That of OpenAIHTTP is chosen.
const LlamaAdapter = "llama-server"

// NeedsPython says whether an engine runs in a Python environment.
func NeedsPython(engine string) bool { return engine == LlamaCPP || engine == LlamaHTTP }

// Spec specifies a server: all that decides how it behaves. Durations are in
// seconds.
type Spec struct {
	Version int    `json:"version"`
	Engine  string `json:"engine"`
	// Adapter is the one of an engine that is reached over HTTP, and Verified names
	// what Assay's tests ran it against, empty if nothing.
	Adapter      string   `json:"adapter,omitempty"`
	Verified     string   `json:"adapter_verified_against,omitempty"`
	Model        string   `json:"model"` // the name under which it is served
	Endpoints    []string `json:"endpoints"`
	Replicas     int      `json:"replicas"` // lanes
	Threads      int      `json:"threads"`  // of each replica
	Context      int      `json:"context"`  // tokens
	PromptCache  bool     `json:"prompt_cache"`
	RequestLimit float64  `json:"request_timeout_seconds"`
	StartLimit   float64  `json:"startup_timeout_seconds"`
	CancelGrace  float64  `json:"cancel_grace_seconds"`
	MaxBodyBytes int64    `json:"max_body_bytes"`
	MaxOutput    int      `json:"max_output_tokens"`
}

// External says that the model is somebody else's server's: what it loaded is not
// ours to check.
func (s Spec) External() bool { return s.Engine == OpenAIHTTP }

// Unverified says that Assay's tests have not run the adapter against its engine.
func (s Spec) Unverified() bool { return s.Adapter != "" && s.Verified == "" }

// Verification says what the adapter was verified against.
func (s Spec) Verification() string {
	if s.Unverified() {
		return "unverified"
	}
	return "verified against " + s.Verified
}

// Upstream is a server that runs already. It is no part of Spec, which is
// published: a URL names a machine.
type Upstream struct {
	URL   string `json:"url"`
	Model string `json:"model"` // what the model is called there
}

// Place says where and with what a server runs.
type Place struct {
	// Assay is this program, which is also the gateway and the scripted worker.
	Assay string
	// Python runs llama.cpp; Model is the file it loads; Script is the scripted
	// worker's.
	Python, Model, Script string
	// Upstream is for OpenAIHTTP.
	Upstream Upstream
	// Dir gets configuration, records and log.
	Dir string
	// Gateway and Workers are the CPU sets; Workers is split between worker
	// processes.
	Gateway, Workers []int
	// Env is the whole environment of gateway and workers.
	Env []string
}

// Names of the files in Place.Dir.
const (
	RecordsFile = "records.jsonl"
	LogFile     = "server.log"
)

// logTail is how many lines of the log go into an error.
const logTail = 15

// drain is how long requests in flight may take when the server is told to stop.
const drain = 10 * time.Second

// Server is a running server.
type Server struct {
	Port  int
	spec  Spec
	place Place
	proc  *supervise.Process
	log   *os.File
	cpu   time.Duration
}

// Start starts the server and returns when it is ready. The error of a server
// that does not become ready has the end of its log. When ctx ends the server is
// stopped.
func Start(ctx context.Context, spec Spec, place Place) (*Server, error) {
	config, err := configure(spec, place)
	if err != nil {
		return nil, err
	}
	s := &Server{spec: spec, place: place}
	if s.log, err = os.Create(s.logPath()); err != nil {
		return nil, err
	}
	stdout, theirs, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	defer stdout.Close()
	s.proc, err = supervise.Start(ctx, supervise.Spec{
		Path: place.Assay, Args: []string{"gateway", "--config", config},
		Env: place.Env, Dir: place.Dir, Stdout: theirs, Stderr: s.log, CPUs: place.Gateway,
		Grace: s.grace(),
	})
	theirs.Close()
	if err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	limit := seconds(spec.StartLimit) + 10*time.Second // the gateway's own limit comes first
	startCtx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready within %s", limit))
	defer cancel()
	// The end of the context also ends the wait for the first line.
	defer context.AfterFunc(startCtx, func() { stdout.SetReadDeadline(time.Now()) })()
	if err := s.listening(stdout); err != nil {
		return nil, s.failed(startCtx, err)
	}
	if err := s.awaitReady(startCtx); err != nil {
		return nil, s.failed(startCtx, err)
	}
	return s, nil
}

// failed stops a server that did not start and says why.
func (s *Server) failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	stopErr := errors.Join(s.proc.Stop(time.Second), s.log.Close())
	if tail, tailErr := supervise.Tail(s.logPath(), logTail); tailErr == nil && tail != "" {
		err = fmt.Errorf("%w\nlast lines of the server's log:\n%s", err, tail)
	}
	return errors.Join(fmt.Errorf("the server did not start: %w", err), stopErr)
}

// listening reads the line that names the port.
func (s *Server) listening(stdout io.Reader) error {
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the gateway ended before it listened: %w", s.exit(err))
	}
	var hello Listening
	if err := json.Unmarshal(line, &hello); err != nil || hello.Port <= 0 {
		return fmt.Errorf("the gateway's first line is %q", line)
	}
	s.Port = hello.Port
	return nil
}

// Listening is the line that the gateway's process prints when its port is open.
type Listening struct {
	Port int `json:"port"`
}

// exit is the gateway's exit status if it has ended, else err.
func (s *Server) exit(err error) error {
	select {
	case <-s.proc.Done():
		if waitErr := s.proc.Wait(); waitErr != nil {
			return waitErr
		}
		return errors.New("exit status 0")
	case <-time.After(time.Second): // the pipe may close a moment before the process ends
		return err
	}
}

func (s *Server) awaitReady(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := s.URL() + "/health/ready"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			var state gateway.Readiness
			err := json.NewDecoder(resp.Body).Decode(&state)
			resp.Body.Close()
			if ready, err := allLanes(state, err); ready || err != nil {
				return err
			}
		}
		select {
		case <-s.proc.Done():
			return fmt.Errorf("it ended before it was ready: %w", s.exit(nil))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// allLanes reports whether every lane is in service: a server that lost one is not
// the one that was specified.
func allLanes(state gateway.Readiness, err error) (bool, error) {
	if err != nil || !state.Ready {
		return false, nil // not an answer yet; the deadline ends the wait
	}
	for _, lane := range state.Lanes {
		switch lane.State {
		case worker.Out:
			return false, fmt.Errorf("lane %d is out of service: %s", lane.Lane, lane.Reason)
		case worker.Idle:
		default:
			return false, nil
		}
	}
	return true, nil
}

// Done is closed when the server has ended, which it does by itself only if
// something is wrong.
func (s *Server) Done() <-chan struct{} { return s.proc.Done() }

// Records is the file with the terminal records, complete after Stop.
func (s *Server) Records() string { return filepath.Join(s.place.Dir, RecordsFile) }

func (s *Server) logPath() string { return filepath.Join(s.place.Dir, LogFile) }

func (s *Server) grace() time.Duration {
	return drain + seconds(s.spec.CancelGrace) + 5*time.Second
}

// Stop ends the server in order; nothing of it is left afterwards. The error
// tells of a server that had ended by itself or did not end well.
func (s *Server) Stop() error {
	if err := s.proc.Stop(s.grace()); err != nil {
		return errors.Join(err, s.log.Close()) // it cannot be waited for either
	}
	s.cpu = s.proc.CPUTime()
	return errors.Join(s.proc.Wait(), s.log.Close())
}

// CPUTime is the CPU time of gateway and workers, known after Stop.
func (s *Server) CPUTime() time.Duration { return s.cpu }

// URL is the server's address.
func (s *Server) URL() string { return "http://127.0.0.1:" + strconv.Itoa(s.Port) }

// configure writes the gateway's configuration and what the engine needs.
func configure(spec Spec, place Place) (path string, err error) {
	model := gateway.Model{Names: []string{spec.Model}}
	for _, endpoint := range spec.Endpoints {
		model.Endpoints = append(model.Endpoints, openai.Endpoint(endpoint))
	}
	command, err := engineCommand(spec, place)
	if err != nil {
		return "", err
	}
	switch spec.Engine {
	case LlamaHTTP:
		model.Upstream = &upstream.Config{
			Adapter: spec.Adapter, Model: spec.Model, Lanes: spec.Replicas, PromptCache: spec.PromptCache,
			Command: command, CPUs: place.Workers,
		}
	case OpenAIHTTP:
		model.Upstream = &upstream.Config{
			Adapter: spec.Adapter, URL: place.Upstream.URL, Model: place.Upstream.Model, Lanes: spec.Replicas, PromptCache: spec.PromptCache,
		}
	default:
		for replica := range spec.Replicas {
			model.Workers = append(model.Workers, gateway.Worker{Command: command, CPUs: share(place.Workers, replica, spec.Threads)})
		}
	}
	path = filepath.Join(place.Dir, "gateway.json")
	return path, jsonfile.Write(path, gateway.Config{
		Models:         []gateway.Model{model},
		Records:        gateway.Records{File: filepath.Join(place.Dir, RecordsFile)},
		RequestTimeout: spec.RequestLimit, StartupTimeout: spec.StartLimit,
		CancelGrace: spec.CancelGrace, DrainTimeout: drain.Seconds(),
		MaxBodyBytes: spec.MaxBodyBytes, MaxOutputTokens: spec.MaxOutput,
	})
}

// share is the replica's part of the CPUs; all of them where there are too few.
func share(cpus []int, replica, threads int) []int {
	if end := (replica + 1) * threads; end <= len(cpus) {
		return cpus[end-threads : end]
	}
	return cpus
}

// Names of the commands of a server.
const (
	gatewayCommand = "gateway"
	workerCommand  = "worker" // of each lane
	serverCommand  = "server" // of the engine that all lanes share
)

// Commands are the command lines of the processes, with placeholders for paths.
func Commands(spec Spec) map[string][]string {
	commands := map[string][]string{gatewayCommand: {"{assay}", "gateway", "--config", "{gateway.json}"}}
	switch spec.Engine {
	case Scripted:
		commands[workerCommand] = []string{"{assay}", "scripted-worker", "--script", "{script}"}
	case LlamaCPP:
		commands[workerCommand] = []string{"{python}", "-I", "{worker.py}", "--config", "{worker.json}"}
	case LlamaHTTP:
		commands[serverCommand] = []string{"{python}", "-I", "{server.py}", "--config", "{server.json}", "--port", "{port}"}
	}
	return commands
}

// engineCommand fills the placeholders of the engine's command, {port} excepted,
// and makes the files they stand for. Nothing is started for OpenAIHTTP.
func engineCommand(spec Spec, place Place) ([]string, error) {
	in := func(name string) string { return filepath.Join(place.Dir, name) }
	places := map[string]string{
		"assay": place.Assay, "script": place.Script, "python": place.Python,
		"worker.py": in("worker.py"), "worker.json": in("worker.json"), "server.py": in("server.py"), "server.json": in("server.json"),
	}
	commands := Commands(spec)
	switch spec.Engine {
	case Scripted:
		return Fill(commands[workerCommand], places), nil
	case LlamaCPP:
		return Fill(commands[workerCommand], places), errors.Join(
			os.WriteFile(places["worker.py"], llama.Worker, 0o644),
			jsonfile.Write(places["worker.json"], llama.Config{
				Model: place.Model, Threads: spec.Threads, Context: spec.Context, PromptCache: spec.PromptCache,
			}),
		)
	case LlamaHTTP:
		return Fill(commands[serverCommand], places), errors.Join(
			os.WriteFile(places["server.py"], llama.Server, 0o644),
			jsonfile.Write(places["server.json"], llama.ServerConfig{
				Model: place.Model, Name: spec.Model, Threads: spec.Threads * spec.Replicas, Slots: spec.Replicas,
				Context: spec.Context, PromptCache: spec.PromptCache,
			}),
		)
	case OpenAIHTTP:
		return nil, nil
	}
	return nil, fmt.Errorf("there is no engine %q", spec.Engine)
}

// Fill replaces the placeholders {name} of a command. A command is kept with its
// placeholders, so that it is exact, comparable and free of paths.
func Fill(command []string, places map[string]string) []string {
	pairs := make([]string, 0, 2*len(places))
	for name, value := range places {
		pairs = append(pairs, "{"+name+"}", value)
	}
	r := strings.NewReplacer(pairs...)
	filled := make([]string, len(command))
	for i, arg := range command {
		filled[i] = r.Replace(arg)
	}
	return filled
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
