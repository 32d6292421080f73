package aiperfrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/engine/supervise"
	"assay/rules/bundle"
	"assay/rules/family"
	"assay/rules/internal/aiperf"
	"assay/rules/internal/host"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/measured"
	"assay/rules/internal/pyenv"
	"assay/rules/internal/rule"
	"assay/rules/internal/server"
	"assay/rules/pythonenv"
	"assay/rules/serve"
)

// Places in the output.
const (
	SampleFile = "sample.json"
	ClientDir  = "client" // AIPerf's artifact directory
	ServerDir  = "server"
	// Records are the server's terminal records.
	Records = ServerDir + "/" + server.RecordsFile
	// Figures and Summary are AIPerf's own; it writes no summary when all
	// requests failed.
	Figures = ClientDir + "/profile_export.jsonl"
	Summary = ClientDir + "/profile_export_aiperf.json"
)

// clientLog is what AIPerf printed.
const clientLog = ClientDir + "/aiperf.log"

// Times that the client gets to end: after an interrupt it writes what it has.
const clientGrace = 10 * time.Second

// Sample is sample.json: what was run, with what, where and when. Paths appear
// as placeholders only.
type Sample struct {
	Version  int         `json:"version"`
	Workload Workload    `json:"workload"`
	Server   server.Spec `json:"server"`
	Bundle   bundle.Info `json:"bundle"`
	// ServedFile is the file that the engine loaded, BundleAfter the digest of
	// the bundle after the run; before it, it is Bundle.Digest.
	ServedFile  digest.Digest `json:"served_file"`
	BundleAfter digest.Digest `json:"bundle_after"`
	// Commands are those of the load generator and of the server.
	Commands   map[string][]string `json:"commands"`
	ClientExit int                 `json:"client_exit"`
	// Packages are the recorded wheels of the client and of the runtime.
	Packages    []pythonenv.Wheel `json:"packages"`
	Interpreter string            `json:"interpreter"` // implementation and version of Python
	Host        host.Facts        `json:"host"`
	CPUs        CPUs              `json:"cpus"`
	Network     string            `json:"network"`
	Quiet       host.Quiet        `json:"quiet"`
	Revision    host.Revision     `json:"revision"`
	// MeasuredPath identifies the code of gateway, workers and runner.
	MeasuredPath struct {
		Version string `json:"version"`
		Sources string `json:"sources"`
	} `json:"measured_path"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
}

// sampler makes one sample.
type sampler struct {
	host      rule.Host
	workspace string
	workload  Workload
	threads   int
	deadline  time.Duration
}

func (s sampler) run(ctx context.Context, run *action.Run) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.deadline, fmt.Errorf("the sample did not end within %s: %w", s.deadline, context.DeadlineExceeded))
	defer cancel()
	sample := Sample{Version: 1, Workload: s.workload, Network: "host, loopback only by address"}
	sample.MeasuredPath.Version, sample.MeasuredPath.Sources = measured.Version, measured.Sources
	var fam family.Serving
	err = errors.Join(
		jsonfile.Read(filepath.Join(run.Input("server"), serve.SpecFile), &sample.Server),
		jsonfile.Read(filepath.Join(run.Input("bundle"), bundle.InfoFile), &sample.Bundle),
		jsonfile.Read(filepath.Join(run.Input("family"), filepath.Base(family.ServingFile)), &fam),
	)
	if err != nil {
		return err
	}
	sample.Commands = server.Commands(sample.Server)
	if sample.CPUs, err = split(s.threads); err != nil {
		return err
	}
	sample.Host = host.Observe(sample.CPUs.Allowed)
	sample.Revision = host.ReadRevision(ctx, s.workspace)

	dirs := map[string]string{}
	for _, name := range []string{"model", "home", "tokenizer"} {
		dirs[name] = filepath.Join(run.Tmp, name)
		if err := os.Mkdir(dirs[name], 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{ClientDir, ServerDir} {
		if err := os.Mkdir(filepath.Join(run.Out, name), 0o755); err != nil {
			return err
		}
	}
	if dirs["tmp"], err = shortTemp(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dirs["tmp"])) }()

	place, err := s.prepare(ctx, run, &sample, dirs)
	if err != nil {
		return err
	}
	client, err := s.environment(ctx, run, "client", &sample)
	if err != nil {
		return err
	}
	return s.measure(ctx, run, &sample, place, client, fam, dirs)
}

// shortTemp makes a temporary directory with a short path. AIPerf makes sockets
// some 50 bytes below it, and the name of a socket has 107 at most.
func shortTemp() (string, error) {
	const longest = 40
	parent := os.TempDir()
	if len(parent) > longest {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "assay-")
}

// prepare unpacks the bundle and readies what the server needs.
func (s sampler) prepare(ctx context.Context, run *action.Run, sample *Sample, dirs map[string]string) (server.Place, error) {
	self, err := os.Executable()
	if err != nil {
		return server.Place{}, err
	}
	place := server.Place{
		Assay: self, Dir: filepath.Join(run.Tmp, "server"),
		Gateway: sample.CPUs.Client, Workers: sample.CPUs.Server,
		Model:  filepath.Join(dirs["model"], bundle.Checkpoint),
		Script: filepath.Join(run.Input("server"), serve.ScriptFile),
		Env:    environ(dirs),
	}
	if err := os.Mkdir(place.Dir, 0o755); err != nil {
		return place, err
	}
	if sample.Server.Engine == server.LlamaCPP {
		env, err := s.environment(ctx, run, "runtime", sample)
		if err != nil {
			return place, err
		}
		place.Python = env.Python()
	}
	path := filepath.Join(run.Input("bundle"), bundle.File)
	if got, err := fileDigest(path); err != nil || got != sample.Bundle.Digest {
		return place, errors.Join(err, fmt.Errorf("the bundle has digest %s, its description says %s", got, sample.Bundle.Digest))
	}
	f, b, err := bundle.Open(path)
	if err != nil {
		return place, err
	}
	defer f.Close()
	if sample.ServedFile, err = bundle.Extract(b, bundle.Checkpoint, place.Model); err != nil {
		return place, err
	}
	for _, section := range []string{bundle.Tokenizer, bundle.TokenizerConfig} {
		if _, err := bundle.Extract(b, section, filepath.Join(dirs["tokenizer"], section)); err != nil {
			return place, err
		}
	}
	return place, nil
}

// environment makes the Python environment of an input and notes its wheels.
func (s sampler) environment(ctx context.Context, run *action.Run, role string, sample *Sample) (pyenv.Env, error) {
	var wheels []pythonenv.Wheel
	if err := jsonfile.Read(filepath.Join(run.Input(role), pythonenv.Wheels), &wheels); err != nil {
		return pyenv.Env{}, err
	}
	requirements, err := os.ReadFile(filepath.Join(run.Input(role), pythonenv.Requirements))
	if err != nil {
		return pyenv.Env{}, err
	}
	env, err := pyenv.Realise(ctx, s.host, requirements, func(what string) { run.Progress(0, 0, what) })
	if err != nil {
		return pyenv.Env{}, fmt.Errorf("environment %q: %w", role, err)
	}
	sample.Packages = append(sample.Packages, wheels...)
	sample.Interpreter = env.Interpreter.Implementation + " " + env.Interpreter.Version
	return env, nil
}

// environ is the whole environment of the run's processes: what the caller's
// shell holds must not change what is measured. HF_HUB_OFFLINE stays unset:
// with it AIPerf takes a tokenizer's directory for a hub id.
func environ(dirs map[string]string) []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TZ=UTC",
		"HOME=" + dirs["home"], "TMPDIR=" + dirs["tmp"],
	}
}

// measure runs the process tree: server, load generator, stop. What the run left
// is in the output even if the sample has to be rejected.
func (s sampler) measure(ctx context.Context, run *action.Run, sample *Sample, place server.Place, client pyenv.Env, fam family.Serving, dirs map[string]string) error {
	run.Progress(0, 0, "starting the server")
	srv, err := server.Start(ctx, sample.Server, place)
	if err != nil {
		return err
	}
	before := host.ReadLoad()
	sample.Started = time.Now().UTC()
	clientCPU, runErr := s.load(ctx, run, sample, srv, client, fam, dirs)
	sample.Finished = time.Now().UTC()
	stopErr := srv.Stop()
	sample.Quiet = host.ReadLoad().Since(before, srv.CPUTime()+clientCPU)

	sample.BundleAfter, err = fileDigest(filepath.Join(run.Input("bundle"), bundle.File))
	keepErr := errors.Join(err,
		keep(place.Dir, filepath.Join(run.Out, ServerDir), server.RecordsFile, server.LogFile),
		onlyFiles(filepath.Join(run.Out, ClientDir)),
		jsonfile.Write(filepath.Join(run.Out, SampleFile), sample),
	)
	switch {
	case keepErr != nil:
		return errors.Join(keepErr, runErr, stopErr)
	case runErr != nil:
		return &action.RejectedError{Reason: "the run did not end well", Err: errors.Join(runErr, stopErr)}
	case stopErr != nil:
		return &action.RejectedError{Reason: "the server did not end well", Err: stopErr}
	case sample.BundleAfter != sample.Bundle.Digest:
		return &action.RejectedError{Reason: fmt.Sprintf("the bundle's digest was %s before the run and is %s after it", sample.Bundle.Digest, sample.BundleAfter)}
	}
	return nil
}

// load runs AIPerf to its end and returns its CPU time. An exit status other
// than 0 is recorded, not an error: AIPerf ends with 1 also when the server
// refused every request, and then the exports say so.
func (s sampler) load(ctx context.Context, run *action.Run, sample *Sample, srv *server.Server, client pyenv.Env, fam family.Serving, dirs map[string]string) (time.Duration, error) {
	command := s.workload.command(sample.Server.Model, fam.Generation)
	sample.Commands["client"] = command
	args := server.Fill(command, map[string]string{
		"env": client.Dir, "port": strconv.Itoa(srv.Port),
		"tokenizer": dirs["tokenizer"], "out": filepath.Join(run.Out, ClientDir),
	})
	logPath := filepath.Join(run.Out, clientLog)
	log, err := os.Create(logPath)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	proc, err := supervise.Start(ctx, supervise.Spec{
		Path: args[0], Args: args[1:], Env: environ(dirs), Dir: dirs["home"],
		Stdout: log, Stderr: log, CPUs: sample.CPUs.Client, Grace: clientGrace,
	})
	if err != nil {
		return 0, err
	}
	var ended error
	for running := true; running; {
		select {
		case <-proc.Done():
			running = false
		case <-srv.Done():
			ended, running = errors.New("the server ended during the run"), false
		case <-time.After(progressInterval):
			run.Progress(countLines(srv.Records()), s.workload.Planned(), "requests")
		}
	}
	stopErr := proc.Stop(clientGrace)
	exit := &exec.ExitError{}
	if err := proc.Wait(); errors.As(err, &exit) {
		sample.ClientExit = exit.ExitCode()
	}
	switch _, err := aiperf.RawFiles(os.DirFS(filepath.Join(run.Out, ClientDir))); {
	case ctx.Err() != nil:
		ended = context.Cause(ctx)
	case err != nil && ended == nil:
		tail, _ := supervise.Tail(logPath, logTail)
		ended = fmt.Errorf("AIPerf ended with exit status %d: %w; last lines of its log:\n%s", sample.ClientExit, err, tail)
	}
	return proc.CPUTime(), errors.Join(ended, stopErr)
}

const (
	progressInterval = 500 * time.Millisecond
	logTail          = 15
)

// countLines counts the records so far; a file that is not there has none.
func countLines(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return bytes.Count(data, []byte("\n"))
}

// keep copies files that exist; a server that failed early has not written all.
func keep(from, to string, names ...string) error {
	var errs []error
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o644)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// onlyFiles removes what is no content: sockets and links that AIPerf may leave.
func onlyFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type().IsRegular() {
			return err
		}
		return os.Remove(path)
	})
}

func fileDigest(path string) (digest.Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digest.FromReader(f)
}
