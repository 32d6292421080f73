// Package interp executes the Starlark files of a workspace and returns the
// graph of targets they declare.
//
// Execution is hermetic: files see the language core, the rules, and the folder
// tree of the workspace, and nothing else. Loading is sequential, so the result
// and the order of messages depend on the text alone.
package interp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"assay/starlark/diag"
	"assay/starlark/graph"
	"assay/starlark/schema"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// WorkspaceFile is the name of the file at the root of a workspace.
const WorkspaceFile = "workspace.star"

// defaultMaxSteps is far above what a large matrix needs and takes about a
// second to reach.
const defaultMaxSteps = 10_000_000

// Options say what to load and with which rules.
type Options struct {
	// FS is the root of the workspace. It must refuse to follow links out of the
	// workspace, as that of os.Root does.
	FS fs.FS
	// Rules can be called in package files and by functions of modules.
	Rules []*schema.Rule
	// Config holds values of flags of the workspace, as text, by name.
	Config map[string]string
	// MaxSteps bounds the work of each file; 0 stands for 10 million.
	MaxSteps uint64
	// Print receives the arguments of print; nil drops them.
	Print func(msg string)
}

// Load executes the packages that the patterns select and all packages that
// their targets depend on, and returns the finalized graph.
//
// The error is a [diag.List] with every mistake of the user's text, a
// [ConfigError] with those of opts.Config, or that of ctx when it ended first.
func Load(ctx context.Context, opts Options, patterns []graph.Pattern) (*graph.Graph, error) {
	return newLoader(opts).load(ctx, patterns)
}

func newLoader(opts Options) *loader {
	if opts.MaxSteps == 0 {
		opts.MaxSteps = defaultMaxSteps
	}
	if opts.Print == nil {
		opts.Print = func(string) {}
	}
	l := &loader{
		opts:    opts,
		env:     starlark.StringDict{"struct": starlark.NewBuiltin("struct", starlarkstruct.Make)},
		graph:   graph.New(),
		queued:  make(map[string]bool),
		modules: make(map[string]starlark.StringDict),
	}
	l.env["glob"] = starlark.NewBuiltin("glob", l.glob)
	l.env["config"] = starlark.NewBuiltin("config", l.config)
	for _, r := range opts.Rules {
		l.env[r.Name] = l.rule(r)
	}
	return l
}

// loader is the state of one call of Load.
type loader struct {
	opts     Options
	env      starlark.StringDict // what package files and modules see
	graph    *graph.Graph
	problems diag.Collector
	flags    []Flag // of the workspace, as declared

	queue  []string // packages to execute
	queued map[string]bool

	modules map[string]starlark.StringDict // executed modules; nil for one that failed
	loading []loadStep                     // load statements being executed, outermost first
}

func (l *loader) load(ctx context.Context, patterns []graph.Pattern) (*graph.Graph, error) {
	if err := l.workspace(ctx); err != nil {
		return nil, err
	}
	for _, p := range patterns {
		if err := l.enqueuePattern(ctx, p); err != nil {
			return nil, err
		}
	}
	for len(l.queue) > 0 {
		pkg := l.queue[0]
		l.queue = l.queue[1:]
		if err := l.loadPackage(ctx, pkg); err != nil {
			return nil, err
		}
	}
	l.problems.Add(l.graph.Finalize()...)
	if err := l.problems.Err(); err != nil {
		return nil, err
	}
	return l.graph, nil
}

// enqueue plans to execute a package, once.
func (l *loader) enqueue(pkg string) {
	if !l.queued[pkg] {
		l.queued[pkg] = true
		l.queue = append(l.queue, pkg)
	}
}

func (l *loader) enqueuePattern(ctx context.Context, p graph.Pattern) error {
	if !p.Recursive && l.isPackage(p.Package) {
		l.enqueue(p.Package)
		return nil
	}
	root := "."
	if p.Recursive && p.Package != "" {
		root = p.Package
	}
	found, err := l.packagesBelow(ctx, root)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		l.problems.Add(diag.Diagnostic{Message: fmt.Sprintf("%s: %v", p, err)})
	case !p.Recursive:
		d := diag.Diagnostic{Message: fmt.Sprintf("%s: %s does not exist", p, packageFile(p.Package))}
		if near := diag.Suggest(p.Package, found); near != "" {
			d.Hint = fmt.Sprintf("did you mean package %q?", "//"+near)
		}
		l.problems.Add(d)
	case len(found) == 0:
		l.problems.Add(diag.Diagnostic{
			Message: fmt.Sprintf("%s: no folder below holds a %s", p, graph.PackageFile),
		})
	}
	if !p.Recursive {
		return nil
	}
	for _, pkg := range found {
		if err := graph.CheckPackage(pkg); err != nil {
			l.problems.Add(diag.Diagnostic{Message: fmt.Sprintf("%s: %v", packageFile(pkg), err), Hint: "rename the folder"})
			continue
		}
		l.enqueue(pkg)
	}
	return nil
}

// packagesBelow returns the packages in root and its folders. Hidden folders,
// folders called testdata, and the output folder of the workspace are not the
// user's stages, and are skipped unless root itself is one.
func (l *loader) packagesBelow(ctx context.Context, root string) ([]string, error) {
	var found []string
	err := fs.WalkDir(l.opts.FS, root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case d.IsDir():
			if file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || file == "out") {
				return fs.SkipDir
			}
		case d.Name() == graph.PackageFile:
			found = append(found, folder(file))
		}
		return nil
	})
	return found, err
}

func packageFile(pkg string) string { return path.Join(pkg, graph.PackageFile) }

func (l *loader) isPackage(pkg string) bool {
	info, err := fs.Stat(l.opts.FS, packageFile(pkg))
	return err == nil && info.Mode().IsRegular()
}

// loadPackage executes a package file and plans the packages it refers to.
func (l *loader) loadPackage(ctx context.Context, pkg string) error {
	l.graph.AddPackage(pkg)
	p := &openPackage{path: pkg, refersTo: make(map[string]bool)}
	if src, unread := l.read(packageFile(pkg)); unread != nil {
		l.problems.Add(diag.Diagnostic{Message: unread.message, Hint: unread.hint})
		p.incomplete = true
	} else if _, err := l.exec(ctx, packageFile(pkg), src, l.env, p); err != nil {
		p.incomplete = true
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.incomplete {
		l.graph.MarkIncomplete(pkg)
	}
	for _, to := range slices.Sorted(maps.Keys(p.refersTo)) {
		// One that does not exist is reported with the label, by Finalize.
		if l.isPackage(to) {
			l.enqueue(to)
		}
	}
	return nil
}

// workspace executes the file that marks the root, and sets the flags that it
// declares. Targets are not allowed in it, so that a workspace can be found
// without executing anything else.
func (l *loader) workspace(ctx context.Context) error {
	src, unread := l.read(WorkspaceFile)
	if unread != nil {
		l.problems.Add(diag.Diagnostic{
			Message: "workspace: " + unread.message,
			Hint:    "the root of a workspace holds " + WorkspaceFile + ` with workspace(name = "…")`,
		})
		return nil
	}
	var first []diag.Frame
	rule := &schema.Rule{Name: "workspace"}
	declare := func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		stack := stackOf(thread.CallStack())
		switch {
		case first != nil:
			l.problems.Add(diag.Diagnostic{
				Message: "workspace is called twice",
				Stack:   stack,
				Notes:   []diag.Note{{Frame: first[0], Text: "first called here"}},
			})
			return starlark.None, nil
		case len(args) > 0:
			l.problems.Add(positional(rule.Name, stack))
		default:
			_, problems := rule.Unpack(kwargs)
			l.report(rule.Name, stack, problems)
		}
		first = stack
		return starlark.None, nil
	}
	env := starlark.StringDict{
		rule.Name:     starlark.NewBuiltin(rule.Name, declare),
		flagRule.Name: starlark.NewBuiltin(flagRule.Name, l.flag),
	}
	_, err := l.exec(ctx, WorkspaceFile, src, env, nil)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && first == nil:
		l.problems.Add(diag.Diagnostic{
			Message: "workspace is not called",
			Stack:   []diag.Frame{{File: WorkspaceFile}},
			Hint:    `write workspace(name = "…") in it`,
		})
	}
	if !l.problems.Empty() {
		return nil // flags may be missing
	}
	return l.configure()
}
