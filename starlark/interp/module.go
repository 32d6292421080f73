package interp

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"assay/starlark/diag"
	"assay/starlark/graph"

	"go.starlark.net/starlark"
)

// loadStep is a load statement on the way to the file being executed.
type loadStep struct {
	file string // the module it loads
	from diag.Frame
}

// module returns the frozen globals of what a load statement names, executing
// it the first time. importer is the file that holds the statement.
func (l *loader) module(ctx context.Context, thread *starlark.Thread, importer, name string) (starlark.StringDict, error) {
	file, err := moduleFile(importer, name)
	if err != nil {
		return nil, err
	}
	if globals, ok := l.modules[file]; ok {
		if globals == nil {
			return nil, errReported
		}
		return globals, nil
	}
	step := loadStep{file, stackOf(thread.CallStack())[0]}
	l.loading = append(l.loading, step)
	defer func() { l.loading = l.loading[:len(l.loading)-1] }()
	if start := slices.IndexFunc(l.loading, func(s loadStep) bool { return s.file == file }); start < len(l.loading)-1 {
		l.loadCycle(l.loading[start:])
		return nil, errReported
	}
	src, unread := l.read(file)
	if unread != nil {
		return nil, unread
	}
	globals, err := l.exec(ctx, file, src, l.env, nil)
	l.modules[file] = globals
	return globals, err
}

// moduleFile resolves the name in a load statement to a path.
func moduleFile(importer, name string) (string, error) {
	label, err := graph.ParseLabel(name, folder(importer))
	switch {
	case err != nil:
		return "", &problem{message: "cannot load: " + err.Error(), hint: `modules are named "//pkg:file.star" or ":file.star"`}
	case path.Ext(label.Name) != ".star":
		return "", &problem{message: fmt.Sprintf("cannot load %q: modules end in .star", name)}
	case label.Name == graph.PackageFile || label.Name == WorkspaceFile:
		return "", &problem{
			message: fmt.Sprintf("cannot load %q: it is not a module", name),
			hint:    "move what is shared to a file of its own",
		}
	}
	return path.Join(label.Package, label.Name), nil
}

// loadCycle reports a module that loads itself. The first step is the load that
// entered the cycle, the last one the load that closes it.
func (l *loader) loadCycle(steps []loadStep) {
	last := steps[len(steps)-1]
	d := diag.Diagnostic{Stack: []diag.Frame{last.from}, Hint: "move what they share to a third module"}
	chain := make([]string, len(steps))
	for i, s := range steps {
		chain[i] = s.file
		if i > 0 {
			d.Notes = append(d.Notes, diag.Note{Frame: s.from, Text: fmt.Sprintf("%s loads %s", s.from.File, s.file)})
		}
	}
	d.Message = "load cycle: " + strings.Join(chain, " -> ")
	l.problems.Add(d)
}
