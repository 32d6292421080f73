// Package exec runs one action in a directory of its own: declared inputs in,
// output into the store, record last.
package exec

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"assay/cache/ac"
	"assay/cache/cas"
	"assay/engine/action"
	"assay/engine/lock"
	"assay/engine/plan"
	"assay/engine/supervise"
)

// logTail is how many lines of an action's log go into its error.
const logTail = 15

// Executor runs actions of one invocation.
type Executor struct {
	Blobs      *cas.Store
	Results    *ac.Store
	Invocation string
	// Work holds the action directories; LogDir the logs of failed actions.
	Work, LogDir string
	// Recovered tells what was found of builds that were killed, a line each.
	Recovered []string

	release   func()
	processes processLog
}

// New makes the invocation's work directory below root and removes those that
// ended invocations left behind: each running one holds a kernel lock.
func New(root, logDir, invocation string, blobs *cas.Store, results *ac.Store) (*Executor, error) {
	old, err := filepath.Glob(filepath.Join(root, "*.lock"))
	if err != nil {
		return nil, err
	}
	var recovered []string
	for _, path := range old {
		if release, ok := lock.Try(path); ok {
			recovered = append(recovered, reap(strings.TrimSuffix(path, ".lock"))...)
			// What cannot be removed now keeps its lock file, to be found again.
			if os.RemoveAll(strings.TrimSuffix(path, ".lock")) == nil {
				os.Remove(path)
			}
			release()
		}
	}
	work := filepath.Join(root, invocation)
	release, err := lock.Acquire(context.Background(), work+".lock", "assay build "+invocation, nil)
	if err != nil {
		return nil, err
	}
	e := &Executor{
		Blobs: blobs, Results: results, Invocation: invocation, Work: work, LogDir: logDir,
		Recovered: recovered, release: release, processes: processLog{path: filepath.Join(work, processesFile)},
	}
	return e, os.MkdirAll(work, 0o755)
}

// Close removes the work directory.
func (e *Executor) Close() error {
	defer e.release()
	return errors.Join(e.processes.err, os.RemoveAll(e.Work), os.Remove(e.Work+".lock"))
}

// Run executes what v says must run and returns its output. A measurement runs
// until it has the samples it needs; made counts those it made, also when one of
// them failed.
func (e *Executor) Run(ctx context.Context, v plan.Verdict, progress func(done, total int, what string)) (output cas.Ref, made int, err error) {
	preimage, err := e.Blobs.PutBytes(v.Preimage)
	if err != nil {
		return cas.Ref{}, 0, fmt.Errorf("store the preimage: %w", err)
	}
	if v.Action.Class != action.Measurement {
		started := time.Now().UTC()
		output, err := e.once(ctx, v, progress)
		if err != nil {
			return cas.Ref{}, 0, err
		}
		return output, 0, e.Results.Put(ac.Result{
			Key: v.Key, Preimage: preimage, Output: output, Receipt: v.Action.Class == action.Effect,
			Invocation: e.Invocation, Started: started, Finished: time.Now().UTC(),
		})
	}
	samples := v.Samples
	for len(samples) < v.Action.Samples {
		started := time.Now().UTC()
		output, err := e.once(ctx, v, progress)
		var rejected *action.RejectedError
		if err != nil && !errors.As(err, &rejected) {
			return cas.Ref{}, made, err
		}
		sample := ac.Sample{
			ID: sampleID(started), Key: v.Key, Preimage: preimage, Output: output,
			Environment: v.Environment, Invocation: e.Invocation,
			Started: started, Finished: time.Now().UTC(),
		}
		if rejected != nil {
			sample.Rejected = rejected.Error()
		}
		if err := errors.Join(err, e.Results.Append(sample)); err != nil {
			return cas.Ref{}, made, err
		}
		samples = append(samples, sample)
		made++
	}
	output, err = plan.Pool(e.Blobs, samples)
	return output, made, err
}

func sampleID(t time.Time) string {
	var b [3]byte
	rand.Read(b[:])
	return t.Format("20060102T150405.000000000Z") + "-" + hex.EncodeToString(b[:])
}

// once runs the action a single time and stores its output. When the action
// rejects its own sample, both the output and the error are returned.
func (e *Executor) once(ctx context.Context, v plan.Verdict, progress func(done, total int, what string)) (output cas.Ref, err error) {
	err = e.Scratch(ctx, v, progress, func(out string) (err error) {
		if output, err = e.Blobs.PutTree(ctx, out); err != nil {
			err = fmt.Errorf("store the output: %w", err)
		}
		return err
	})
	return output, err
}

// Scratch runs the action a single time in a directory of its own and hands the
// directory of its output to use. It records nothing.
func (e *Executor) Scratch(ctx context.Context, v plan.Verdict, progress func(done, total int, what string), use func(out string) error) (err error) {
	dir, err := os.MkdirTemp(e.Work, v.Action.Rule+"-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	in, out, tmp := filepath.Join(dir, "in"), filepath.Join(dir, "out"), filepath.Join(dir, "tmp")
	for _, d := range []string{in, out, tmp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	digests, err := e.stage(ctx, v, in)
	if err != nil {
		return err
	}
	logPath := filepath.Join(dir, "log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	run := action.NewRun(func(role string) string { return filepath.Join(in, filepath.FromSlash(role)) }, out, tmp, log)
	run.Key, run.Inputs, run.Absent, run.Progress = v.Key, digests, v.Absent, progress
	runErr := call(supervise.WithObserver(ctx, e.processes.started), v.Action.Run, run)
	if err := log.Close(); err != nil {
		return err
	}
	var rejected *action.RejectedError
	if runErr != nil {
		if ctx.Err() != nil { // whatever the action made of it, it was interrupted
			return context.Cause(ctx)
		}
		if full(dir) {
			// The step's own words may not have found room in its log.
			runErr = fmt.Errorf("%w; the file system of %s is full", runErr, e.Work)
		}
		runErr = e.withLog(v, logPath, runErr)
		if !errors.As(runErr, &rejected) {
			return runErr
		}
	}
	if err := use(out); err != nil {
		return err
	}
	return runErr
}

// stage puts the inputs in place. Source files go through the store, so that
// what runs is what was digested even if the workspace changes meanwhile.
func (e *Executor) stage(ctx context.Context, v plan.Verdict, in string) (map[string]digest.Digest, error) {
	digests := map[string]digest.Digest{}
	for role, entry := range v.Inputs {
		digests[role] = entry.Digest
		if err := e.Blobs.Materialise(ctx, entry, filepath.Join(in, filepath.FromSlash(role))); err != nil {
			return nil, fmt.Errorf("input %q: %w", role, err)
		}
	}
	for _, s := range v.Action.Sources {
		ref, err := e.Blobs.PutFile(ctx, s.Path)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", s.Role, err)
		}
		if ref.Digest != v.Sources[s.Role] {
			return nil, fmt.Errorf("input %q: %s changed while the build was running; build again", s.Role, s.Path)
		}
		digests[s.Role] = ref.Digest
		entry := cas.Entry{Name: filepath.Base(s.Path), Type: "file", Digest: ref.Digest, Size: ref.Size}
		if err := e.Blobs.Materialise(ctx, entry, filepath.Join(in, filepath.FromSlash(s.Role))); err != nil {
			return nil, fmt.Errorf("input %q: %w", s.Role, err)
		}
	}
	return digests, nil
}

// call turns a panic of a rule into an error: one bad action must not end the
// invocation and lose what the others measure.
func call(ctx context.Context, f func(context.Context, *action.Run) error, run *action.Run) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: %v\n%s", r, debug.Stack())
		}
	}()
	return f(ctx, run)
}

// withLog keeps the log of a failed action and adds its tail to the error.
func (e *Executor) withLog(v plan.Verdict, path string, err error) error {
	tail, readErr := supervise.Tail(path, logTail)
	if readErr != nil || tail == "" {
		return err
	}
	kept := filepath.Join(e.LogDir, strings.NewReplacer("/", "_", ":", "_").Replace(strings.TrimLeft(v.Action.ID, "/"))+".log")
	if mkErr := os.MkdirAll(e.LogDir, 0o755); mkErr != nil {
		return errors.Join(err, mkErr)
	}
	if renameErr := os.Rename(path, kept); renameErr != nil {
		return errors.Join(err, renameErr)
	}
	return fmt.Errorf("%w\nlast lines of its log (%s):\n%s", err, kept, indent(tail))
}

// full reports whether the file system of dir has no room for even a log.
func full(dir string) bool {
	const least = 64 << 10 // bytes
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Bavail*uint64(fs.Bsize) < least
}

func indent(text string) string {
	return "  | " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  | ")
}
