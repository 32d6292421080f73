package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"assay/cache/cas"
	"assay/engine/action"
	"assay/engine/event"
	"assay/engine/exec"
	"assay/engine/lock"
	"assay/engine/plan"
)

// Check is what Verify found of one action.
type Check struct {
	Action *action.Action
	// Skipped says why there was nothing to compare; empty if it was compared.
	Skipped string
	// Differences name each file that differs; none if the output is what the
	// record says.
	Differences []Difference
	// Err says that the action failed this time.
	Err     error
	Elapsed time.Duration
}

// Difference is one file of an output, slash-separated, and how it differs.
type Difference struct{ Path, What string }

// Verify runs the recorded pure ones among the wanted actions again, in a scratch
// place, and compares byte for byte. It changes no record. actions are in
// dependency order and hold what the wanted ones need; wanted picks by ID.
func (e *Engine) Verify(ctx context.Context, actions []*action.Action, wanted func(id string) bool, sink event.Sink) ([]Check, error) {
	release, err := e.use(ctx, sink)
	if err != nil {
		return nil, err
	}
	defer release()
	verdicts, err := e.planner().All(ctx, actions)
	if err != nil {
		return nil, err
	}
	invocation := newInvocation(time.Now())
	executor, err := exec.New(e.cache.Work(), filepath.Join(e.cache.Logs(), invocation), invocation, e.blobs, e.results)
	if err != nil {
		return nil, err
	}
	var checks []Check
	for _, v := range verdicts {
		if !wanted(v.Action.ID) {
			continue
		}
		c := e.check(ctx, executor, v, sink)
		if ctx.Err() != nil {
			break
		}
		checks = append(checks, c)
	}
	return checks, errors.Join(context.Cause(ctx), executor.Close(), e.sources.Save())
}

func (e *Engine) check(ctx context.Context, executor *exec.Executor, v plan.Verdict, sink event.Sink) Check {
	c := Check{Action: v.Action}
	switch {
	case v.Action.Class != action.Pure:
		c.Skipped = fmt.Sprintf("a %s is not pure: running it again would be another one", v.Action.Class)
		return c
	case v.State != plan.Cached:
		c.Skipped = "there is no result to compare with: " + v.Why.Reason
		return c
	}
	progress := func(done, total int, what string) {
		sink.Handle(event.Event{Time: time.Now().UTC(), Kind: event.Progress, Action: v.Action.ID, Done: done, Total: total, What: what})
	}
	mode := lock.Shared
	if v.Action.Exclusive {
		mode = lock.Exclusive
	}
	unlock, err := lock.AcquireMode(ctx, e.machineLock, mode, "assay verify "+v.Action.ID, func(holder string) { progress(0, 0, "waiting for "+holder) })
	if err != nil {
		c.Err = err
		return c
	}
	defer unlock()
	sink.Handle(event.Event{Time: time.Now().UTC(), Kind: event.Started, Action: v.Action.ID, Rule: v.Action.Rule, Reason: "to compare with its record"})
	started := time.Now()
	c.Err = executor.Scratch(ctx, v, progress, func(out string) (err error) {
		c.Differences, err = e.differences(ctx, v.Output, out, "")
		return err
	})
	c.Elapsed = time.Since(started)
	return c
}

// differences compares the directory at dir with a stored tree.
func (e *Engine) differences(ctx context.Context, ref cas.Ref, dir, below string) ([]Difference, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t, err := e.blobs.Tree(ref)
	if err != nil {
		return nil, err
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []Difference
	differ := func(name, format string, args ...any) {
		found = append(found, Difference{below + name, fmt.Sprintf(format, args...)})
	}
	here := map[string]os.DirEntry{}
	for _, de := range names {
		here[de.Name()] = de
	}
	for _, want := range t.Entries {
		de, ok := here[want.Name]
		delete(here, want.Name)
		path := filepath.Join(dir, want.Name)
		switch {
		case !ok:
			differ(want.Name, "is in the record and was not made again")
			continue
		case de.IsDir() != (want.Type == "dir"), !de.IsDir() && !de.Type().IsRegular():
			differ(want.Name, "is a %s in the record and is not now", want.Type)
			continue
		case de.IsDir():
			inner, err := e.differences(ctx, want.Ref(), path, below+want.Name+"/")
			if err != nil {
				return nil, err
			}
			found = append(found, inner...)
			continue
		}
		info, err := de.Info()
		if err != nil {
			return nil, err
		}
		if executable := info.Mode()&0o100 != 0; executable != want.Executable {
			differ(want.Name, "has another mode: executable is %t, was %t", executable, want.Executable)
		}
		what, err := e.compare(want.Ref(), path)
		if err != nil {
			return nil, err
		}
		if what != "" {
			differ(want.Name, "%s", what)
		}
	}
	for _, de := range names {
		if _, extra := here[de.Name()]; extra {
			differ(de.Name(), "is not in the record")
		}
	}
	return found, nil
}

// compare says where the file differs from the blob; empty if it does not.
func (e *Engine) compare(ref cas.Ref, path string) (string, error) {
	was, err := e.blobs.Open(ref)
	if err != nil {
		return "", err
	}
	defer was.Close()
	is, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer is.Close()
	const chunk = 64 << 10
	var a, b [chunk]byte
	for offset := int64(0); ; offset += chunk {
		n, err := io.ReadFull(was, a[:])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return "", err
		}
		m, err := io.ReadFull(is, b[:])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return "", err
		}
		for i := range min(n, m) {
			if a[i] != b[i] {
				return fmt.Sprintf("differs from byte %d on", offset+int64(i)), nil
			}
		}
		if n != m {
			info, err := is.Stat()
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("has %d bytes, had %d", info.Size(), ref.Size), nil
		}
		if n < chunk {
			return "", nil
		}
	}
}
