package interp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"assay/starlark/diag"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// dialect is standard Starlark, plus loops and sets, which a matrix of targets
// is easiest to write with. Without recursion and while every program ends.
var dialect = &syntax.FileOptions{Set: true, TopLevelControl: true}

// packageKey is where a thread keeps its *openPackage.
const packageKey = "package"

// openPackage is the package whose file a thread executes. Threads that execute
// modules or the workspace file have none.
type openPackage struct {
	path       string
	refersTo   map[string]bool // packages that its labels name
	incomplete bool            // a target was dropped
}

func packageOf(thread *starlark.Thread) *openPackage {
	p, _ := thread.Local(packageKey).(*openPackage)
	return p
}

// errReported ends the execution of a file for a reason that is among the
// problems already.
var errReported = errors.New("already reported")

// A problem is an error of a builtin that comes with advice.
type problem struct{ message, hint string }

func (p *problem) Error() string { return p.message }

// exec executes a file in its own thread. pkg is nil unless it is a package
// file. Mistakes are recorded; the error only says that there were some, or
// that ctx ended.
func (l *loader) exec(ctx context.Context, file string, src []byte, env starlark.StringDict, pkg *openPackage) (starlark.StringDict, error) {
	tooMany := false
	thread := &starlark.Thread{
		Name:  file,
		Print: func(_ *starlark.Thread, msg string) { l.opts.Print(msg) },
		Load: func(thread *starlark.Thread, module string) (starlark.StringDict, error) {
			return l.module(ctx, thread, file, module)
		},
		OnMaxSteps: func(thread *starlark.Thread) {
			tooMany = true
			thread.Cancel("too many steps")
		},
	}
	thread.SetMaxExecutionSteps(l.opts.MaxSteps)
	if pkg != nil {
		thread.SetLocal(packageKey, pkg)
	}
	defer context.AfterFunc(ctx, func() { thread.Cancel("interrupted") })()

	globals, execErr := starlark.ExecFileOptions(dialect, thread, file, src, env)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case execErr == nil:
		return globals, nil
	case errors.Is(execErr, errReported):
	case tooMany:
		l.problems.Add(diag.Diagnostic{
			Message: fmt.Sprintf("%s takes more than %d steps", file, l.opts.MaxSteps),
			Stack:   evalStack(execErr),
			Hint:    "is one of the loops around this line larger than meant?",
		})
	default:
		l.problems.Add(describe(execErr, env)...)
	}
	return nil, errReported
}

func (l *loader) read(file string) ([]byte, *problem) {
	src, err := fs.ReadFile(l.opts.FS, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p := &problem{message: file + " does not exist"}
		if near := diag.Suggest(path.Base(file), l.filesIn(path.Dir(file))); near != "" {
			p.hint = fmt.Sprintf("did you mean %s?", path.Join(path.Dir(file), near))
		}
		return nil, p
	case err != nil:
		return nil, &problem{message: fmt.Sprintf("cannot read %s: %v", file, bare(err))}
	}
	return src, nil
}

// folder returns the folder of a file; that of a file at the root is "".
func folder(file string) string {
	if dir := path.Dir(file); dir != "." {
		return dir
	}
	return ""
}

// bare strips the operation and the path, which the message has already.
func bare(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// describe turns an error of the Starlark implementation into diagnostics.
func describe(err error, env starlark.StringDict) []diag.Diagnostic {
	switch err := err.(type) {
	case syntax.Error:
		return []diag.Diagnostic{{Message: err.Msg, Stack: []diag.Frame{frame(err.Pos, "")}}}
	case resolve.ErrorList:
		list := make([]diag.Diagnostic, len(err))
		for i, e := range err {
			list[i] = describeResolve(e, env)
		}
		return list
	case *starlark.EvalError:
		d := diag.Diagnostic{Message: err.Msg, Stack: evalStack(err)}
		if p, ok := errors.AsType[*problem](err); ok {
			d.Message, d.Hint = p.message, p.hint
		}
		if top := err.CallStack; len(top) > 0 && top.At(0).Name == "fail" {
			d.Message = strings.TrimPrefix(d.Message, "fail: ")
		}
		return []diag.Diagnostic{d}
	}
	return []diag.Diagnostic{{Message: err.Error()}}
}

// describeResolve adds what the resolver cannot: suggestions among the rules
// and the builtins.
func describeResolve(e resolve.Error, env starlark.StringDict) diag.Diagnostic {
	d := diag.Diagnostic{Message: e.Msg, Stack: []diag.Frame{frame(e.Pos, "")}}
	undefined, ok := strings.CutPrefix(e.Msg, "undefined: ")
	if !ok {
		return d
	}
	name, near, _ := strings.Cut(strings.TrimSuffix(undefined, "?)"), " (did you mean ")
	d.Message = "undefined: " + name
	if near == "" {
		near = diag.Suggest(name, append(env.Keys(), starlark.Universe.Keys()...))
	}
	if near != "" {
		d.Hint = fmt.Sprintf("did you mean %q?", near)
	}
	return d
}

func evalStack(err error) []diag.Frame {
	if evalErr, ok := errors.AsType[*starlark.EvalError](err); ok {
		return stackOf(evalErr.CallStack)
	}
	return nil
}

// stackOf returns the frames of the user's text, innermost first.
func stackOf(calls starlark.CallStack) []diag.Frame {
	frames := make([]diag.Frame, 0, len(calls))
	for _, c := range slices.Backward(calls) {
		if c.Pos.Line > 0 { // builtins have no position
			frames = append(frames, frame(c.Pos, c.Name))
		}
	}
	return frames
}

func frame(pos syntax.Position, function string) diag.Frame {
	return diag.Frame{File: pos.Filename(), Line: int(pos.Line), Col: int(pos.Col), Func: function}
}
