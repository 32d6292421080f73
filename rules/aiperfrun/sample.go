package aiperfrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/engine/supervise"
	"assay/rules/bundle"
	"assay/rules/internal/aiperf"
	"assay/rules/internal/host"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/measured"
	"assay/rules/internal/pyenv"
	"assay/rules/internal/server"
	"assay/rules/internal/testbed"
	"assay/rules/pythonenv"
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
	// DatasetDir has the data set's header and plan, if there is one.
	DatasetDir = "dataset"
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
	// ServedFile is the file that the engine loaded, empty if the server is
	// somebody else's; BundleAfter is the digest of the bundle after the run,
	// before it it is Bundle.Digest.
	ServedFile  digest.Digest `json:"served_file"`
	BundleAfter digest.Digest `json:"bundle_after"`
	// Commands are those of the load generator and of the server.
	Commands   map[string][]string `json:"commands"`
	ClientExit int                 `json:"client_exit"`
	// Packages are the recorded wheels of the client and of the runtime.
	Packages    []pythonenv.Wheel `json:"packages"`
	Interpreter string            `json:"interpreter"` // implementation and version of Python
	Host        host.Facts        `json:"host"`
	CPUs        testbed.CPUs      `json:"cpus"`
	Network     string            `json:"network"`
	Quiet       host.Quiet        `json:"quiet"`
	// ClientBusy are readings of the load generator's CPUs while AIPerf ran.
	ClientBusy []host.Busy   `json:"client_busy,omitempty"`
	Revision   host.Revision `json:"revision"`
	// Validation is the verdict that the sample was made under, nil if none was
	// required.
	Validation *Validation `json:"validation,omitempty"`
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
	plan      testbed.Plan
	workspace string
	workload  Workload
	validated bool          // there is a validation to compare with
	deadline  time.Duration // from the server's start
	requests  string        // the data set's file for AIPerf, "" if there is none
}

func (s sampler) run(ctx context.Context, run *action.Run) (err error) {
	bed, err := testbed.New(ctx, s.plan, run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	if s.workload.Dataset != nil {
		if s.workload, s.requests, err = s.prepare(run, bed); err != nil {
			return err
		}
	}
	client, err := bed.Environment(ctx, clientRole)
	if err != nil {
		return err
	}
	if _, err := os.Stat(client.Bin(Client)); err != nil {
		return fmt.Errorf("the client environment is damaged: %w; remove %s, and the next build makes it again", err, client.Dir)
	}
	sample := &Sample{
		Version: 1, Workload: s.workload, Server: bed.Spec, Bundle: bed.Bundle, ServedFile: bed.ServedFile,
		Commands: server.Commands(bed.Spec), Packages: bed.Packages, Interpreter: bed.Interpreter,
		Host: host.Observe(bed.CPUs.Allowed), CPUs: bed.CPUs, Network: "host, loopback only by address",
		Revision: host.ReadRevision(ctx, s.workspace),
	}
	if bed.Spec.External() {
		sample.Network = "host; the way to the upstream server is not known"
	}
	sample.MeasuredPath.Version, sample.MeasuredPath.Sources = measured.Version, measured.Sources
	for _, name := range []string{ClientDir, ServerDir} {
		if err := os.Mkdir(filepath.Join(run.Out, name), 0o755); err != nil {
			return err
		}
	}
	return s.measure(ctx, run, sample, bed, client)
}

// measure runs the process tree: server, load generator, stop. What the run left
// is in the output even if the sample has to be rejected.
func (s sampler) measure(ctx context.Context, run *action.Run, sample *Sample, bed *testbed.Testbed, client pyenv.Env) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.deadline, fmt.Errorf("the sample did not end within %s: %w", s.deadline, context.DeadlineExceeded))
	defer cancel()
	// Read before the server starts: its whole CPU time is taken off later.
	before := host.ReadLoad()
	srv, err := bed.Start(ctx)
	if err != nil {
		return err
	}
	sample.Started = time.Now().UTC()
	var clientCPU time.Duration
	var runErr error
	if s.validated {
		runErr = s.probe(ctx, run, sample, srv.URL(), bed)
	}
	if runErr == nil {
		clientCPU, runErr = s.load(ctx, run, sample, srv, bed, client)
	}
	sample.Finished = time.Now().UTC()
	stopErr := srv.Stop()
	sample.Quiet = host.ReadLoad().Since(before, srv.CPUTime()+clientCPU)
	sample.BundleAfter, err = bed.BundleDigest()

	keepErr := errors.Join(err,
		keep(bed.ServerDir(), filepath.Join(run.Out, ServerDir), server.RecordsFile, server.LogFile),
		onlyFiles(filepath.Join(run.Out, ClientDir)),
		jsonfile.Write(filepath.Join(run.Out, SampleFile), sample),
	)
	var rejected *action.RejectedError
	switch {
	case keepErr != nil:
		return errors.Join(keepErr, runErr, stopErr)
	case errors.As(runErr, &rejected) && stopErr == nil:
		return rejected
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
func (s sampler) load(ctx context.Context, run *action.Run, sample *Sample, srv *server.Server, bed *testbed.Testbed, client pyenv.Env) (time.Duration, error) {
	command := s.workload.command(bed.Spec.Model, bed.Family.Parameters())
	sample.Commands["client"] = command
	args := server.Fill(command, map[string]string{
		"env": client.Dir, "port": strconv.Itoa(srv.Port),
		"tokenizer": bed.Tokenizer, "out": filepath.Join(run.Out, ClientDir), "dataset": s.requests,
	})
	logPath := filepath.Join(run.Out, clientLog)
	log, err := os.Create(logPath)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	proc, err := supervise.Start(ctx, supervise.Spec{
		Path: args[0], Args: args[1:], Env: bed.Environ(), Dir: bed.Home(),
		Stdout: log, Stderr: log, CPUs: sample.CPUs.Client, Grace: clientGrace,
	})
	if err != nil {
		return 0, err
	}
	var ended error
	records := lineCounter{path: srv.Records()}
	var busy host.BusyLog
	defer func() { sample.ClientBusy = busy.Readings }()
	probes := 0
	if sample.Validation != nil {
		probes = sample.Validation.Probes
	}
	for running := true; running; {
		select {
		case <-proc.Done():
			running = false
		case <-srv.Done():
			ended, running = errors.New("the server ended during the run"), false
		case <-time.After(progressInterval):
			run.Progress(max(0, records.count()-probes), s.workload.Planned(), "requests")
			if reading, ok := host.ReadBusy(sample.CPUs.Client); ok {
				busy.Add(reading)
			}
		}
	}
	if err := proc.Stop(clientGrace); err != nil {
		return 0, errors.Join(ended, err) // it cannot be waited for either
	}
	exit := &exec.ExitError{}
	if err := proc.Wait(); errors.As(err, &exit) {
		sample.ClientExit = exit.ExitCode()
		if sample.ClientExit < 0 && ended == nil {
			// What it exported by then may look whole and is not.
			ended = fmt.Errorf("AIPerf was killed by something else: %w", err)
		}
	}
	switch _, err := aiperf.RawFiles(os.DirFS(filepath.Join(run.Out, ClientDir))); {
	case ctx.Err() != nil:
		ended = context.Cause(ctx)
	case err != nil && ended == nil:
		ended = fmt.Errorf("AIPerf ended with exit status %d: %w", sample.ClientExit, err)
		if tail, _ := supervise.Tail(logPath, logTail); tail != "" {
			ended = fmt.Errorf("%w; last lines of its log:\n%s", ended, tail)
		}
	}
	return proc.CPUTime(), ended
}

const (
	progressInterval = 500 * time.Millisecond
	logTail          = 15
)

// lineCounter counts the lines of a file that grows, reading each byte once.
type lineCounter struct {
	path   string
	offset int64
	lines  int
}

// count returns the lines so far; a file that is not there yet has none.
func (c *lineCounter) count() int {
	f, err := os.Open(c.path)
	if err != nil {
		return c.lines
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, c.offset, math.MaxInt64-c.offset))
	if err == nil {
		c.offset += int64(len(data))
		c.lines += bytes.Count(data, []byte("\n"))
	}
	return c.lines
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
