package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"assay/engine/action"
	"assay/engine/supervise"
)

// step is a command that can be run.
type step struct {
	program string // absolute; empty if the program is an input
	argv    []string
	env     map[string]string // with placeholders
	allowed map[string]string // taken over as they are
	inputs  names
	outputs []string
	timeout time.Duration
}

// run runs the program in the folder that holds the inputs and the outputs.
// Arguments are relative to it, so that they are the same in each run.
func (s step) run(ctx context.Context, run *action.Run) error {
	dir := filepath.Dir(run.Out)
	place, err := s.place(dir, run)
	if err != nil {
		return err
	}
	for role := range s.inputs {
		if err := unshare(ctx, run.Input(role)); err != nil {
			return fmt.Errorf("input %q: %w", role, err)
		}
	}
	// The log has no name, so that the program cannot come across it.
	log, err := os.CreateTemp(run.Tmp, "log")
	if err != nil {
		return err
	}
	defer log.Close()
	if err := os.Remove(log.Name()); err != nil {
		return err
	}

	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("it did not end within %s: %w", s.timeout, context.DeadlineExceeded))
	defer cancel()
	runErr := s.supervise(limited, dir, log, run.Tmp, place)
	if limited.Err() != nil {
		runErr = context.Cause(limited)
	}
	if _, err := log.Seek(0, io.SeekStart); err != nil {
		return errors.Join(runErr, err)
	}
	if _, err := io.Copy(run.Log, log); err != nil {
		return errors.Join(runErr, err)
	}
	if runErr != nil {
		return fmt.Errorf("%s: %w", s.argv[0], runErr)
	}
	return collect(run.Out, s.outputs)
}

// place returns what placeholders stand for.
func (s step) place(dir string, run *action.Run) (func(name string) string, error) {
	paths := map[string]string{"out": run.Out, "tmp": run.Tmp}
	for role := range s.inputs {
		paths["in:"+role] = run.Input(role)
	}
	for name, path := range paths {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, err
		}
		paths[name] = rel
	}
	return func(name string) string { return paths[name] }, nil
}

// supervise runs the program to its end. What it leaves running is killed, so
// that nothing writes to the outputs any more.
func (s step) supervise(ctx context.Context, dir string, log *os.File, tmp string, place func(string) string) error {
	argv := make([]string, len(s.argv))
	for i, arg := range s.argv {
		argv[i] = fill(arg, place)
	}
	env := []string{"HOME=" + tmp, "TMPDIR=" + tmp}
	// Of two values for one name the later counts: an allowed PATH is the PATH.
	for name, value := range s.env {
		env = append(env, name+"="+fill(value, place))
	}
	for name, value := range s.allowed {
		env = append(env, name+"="+value)
	}
	program := s.program
	if program == "" {
		program = filepath.Join(dir, argv[0])
	}
	proc, err := supervise.Start(ctx, supervise.Spec{
		Path: program, Args: argv[1:], Env: env, Dir: dir, Stdout: log, Stderr: log,
	})
	if err != nil {
		return err
	}
	waitErr := proc.Wait()
	if ctx.Err() != nil {
		// The context's own stop is under way: it gives time to end in order.
		return proc.Stop(stopGrace)
	}
	return errors.Join(waitErr, proc.Stop(0))
}

// stopGrace is what the group gets once its leader has ended on a signal.
const stopGrace = 2 * time.Second

// unshare makes the files of an input the step's own. Where the file system
// cannot clone they are hard links into the store, and a program that may
// ignore their read-only mode would write to a stored sample.
func unshare(ctx context.Context, input string) error {
	return filepath.WalkDir(input, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 1 {
			return nil
		}
		return replaceByCopy(path, info.Mode())
	})
}

func replaceByCopy(path string, mode fs.FileMode) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := os.Remove(path); err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chmod(mode.Perm()), to.Close())
}

// collect checks that out holds the declared outputs and nothing else.
func collect(out string, declared []string) error {
	found := map[string]bool{}
	var errs []error
	err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(out, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		found[name] = true
		covers := func(o string) bool { return name == o || below(name, o) }
		leadsTo := func(o string) bool { return name == "." || below(o, name) }
		switch {
		case !d.IsDir() && !d.Type().IsRegular():
			errs = append(errs, fmt.Errorf("the program left %s, which is a %s; outputs are regular files and folders", name, typeName(d.Type())))
		case slices.ContainsFunc(declared, covers):
		case d.IsDir() && (name == "." || slices.ContainsFunc(declared, leadsTo)):
		default:
			errs = append(errs, fmt.Errorf("the program wrote %s, which is not among the outputs; declare it, or write it to {tmp}", name))
			if d.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	for _, o := range declared {
		if !found[o] {
			errs = append(errs, fmt.Errorf("the output %s is missing%s", o, misplaced(filepath.Dir(out), o)))
		}
	}
	return errors.Join(append(errs, err)...)
}

// misplaced helps with the usual slip: writing to the folder the step runs in.
func misplaced(dir, name string) string {
	if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
		return ""
	}
	return "; the program wrote it to the folder it ran in, not to {out}/" + name
}

func typeName(t fs.FileMode) string {
	switch {
	case t&fs.ModeSymlink != 0:
		return "symbolic link"
	case t&fs.ModeNamedPipe != 0:
		return "named pipe"
	case t&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}
