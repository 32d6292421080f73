package interp

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"assay/starlark/diag"
	"assay/starlark/graph"

	"go.starlark.net/starlark"
)

// file returns the path, from the root of the workspace, of a file as written
// in package pkg: relative to the package, or "//other:path/file".
func (l *loader) file(pkg, written string) (string, *problem) {
	base, prefix, rel := pkg, "", written
	if other, after, ok := strings.Cut(written, ":"); ok && strings.HasPrefix(written, "//") {
		base, prefix, rel = strings.TrimPrefix(other, "//"), other+":", after
		if err := graph.CheckPackage(base); err != nil {
			return "", &problem{message: fmt.Sprintf("%q: %v", written, err)}
		}
	}
	switch {
	case strings.HasPrefix(written, ":"):
		return "", &problem{message: fmt.Sprintf("%q is a label, want a file", written), hint: "a file of this package is written without the colon"}
	case strings.HasPrefix(rel, "/"):
		return "", &problem{message: fmt.Sprintf("%q is not relative to a package", written), hint: `write "file", or "//pkg:file" for one of another package`}
	case !fs.ValidPath(rel) || rel == "." || strings.Contains(rel, `\`):
		return "", &problem{message: fmt.Sprintf("%q is not a plain path below the package", written), hint: `write "file", or "//pkg:file" for one of another package`}
	}
	file := path.Join(base, rel)
	info, err := fs.Stat(l.opts.FS, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p := &problem{message: fmt.Sprintf("file %s does not exist", file)}
		if near := diag.Suggest(path.Base(file), l.filesIn(path.Dir(file))); near != "" {
			p.hint = fmt.Sprintf("did you mean %q?", prefix+path.Join(path.Dir(rel), near))
		}
		return "", p
	case err != nil:
		return "", &problem{message: fmt.Sprintf("cannot use file %s: %v", file, bare(err))}
	case info.IsDir():
		return "", &problem{message: fmt.Sprintf("%s is a folder, want a file", file), hint: "list its files, or use glob where a list is taken"}
	case !info.Mode().IsRegular():
		return "", &problem{message: fmt.Sprintf("%s is not a regular file", file)}
	}
	return file, nil
}

func (l *loader) filesIn(folder string) []string {
	entries, _ := fs.ReadDir(l.opts.FS, folder)
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// glob implements glob(include, exclude = [], allow_empty = False): the sorted
// files of the package that match a pattern of include and none of exclude.
// "**" stands for any number of folders. Hidden files, and folders that are
// packages of their own, are not part of a package.
func (l *loader) glob(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	stack := stackOf(thread.CallStack())
	none := starlark.NewList(nil)
	pkg := packageOf(thread)
	if pkg == nil {
		l.problems.Add(outsidePackage(b.Name(), stack))
		return none, nil
	}
	var include, exclude *starlark.List
	var allowEmpty bool
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "include", &include, "exclude?", &exclude, "allow_empty?", &allowEmpty); err != nil {
		return nil, err
	}
	in, err := globPatterns(include)
	if err != nil {
		return nil, err
	}
	out, err := globPatterns(exclude)
	if err != nil {
		return nil, err
	}
	files, err := l.packageFiles(pkg.path)
	if err != nil {
		return nil, fmt.Errorf("glob: %w", err)
	}
	var found []starlark.Value
	for _, f := range files {
		elems := strings.Split(f, "/")
		matches := func(pattern []string) bool { return globMatch(pattern, elems) }
		if slices.ContainsFunc(in, matches) && !slices.ContainsFunc(out, matches) {
			found = append(found, starlark.String(f))
		}
	}
	if len(found) == 0 && !allowEmpty {
		l.problems.Add(diag.Diagnostic{
			Message: fmt.Sprintf("glob(%s) matches no file", include),
			Stack:   stack,
			Hint:    "pass allow_empty = True if that is meant",
		})
	}
	return starlark.NewList(found), nil
}

// globPatterns splits patterns into their elements.
func globPatterns(list *starlark.List) ([][]string, error) {
	if list == nil {
		return nil, nil
	}
	var patterns [][]string
	for v := range list.Elements() {
		s, ok := starlark.AsString(v)
		if !ok {
			return nil, fmt.Errorf("glob: want a list of strings, got one with a value of type %s", v.Type())
		}
		if !fs.ValidPath(s) {
			return nil, fmt.Errorf("glob: %q is not a plain path below the package", s)
		}
		elems := strings.Split(s, "/")
		for _, elem := range elems {
			if _, err := path.Match(elem, ""); err != nil {
				return nil, fmt.Errorf("glob: %q is not a pattern: %w", s, err)
			}
		}
		patterns = append(patterns, elems)
	}
	return patterns, nil
}

// packageFiles returns the files of a package, relative to it, sorted.
func (l *loader) packageFiles(pkg string) ([]string, error) {
	root := path.Join(".", pkg)
	var files []string
	err := fs.WalkDir(l.opts.FS, root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case file == root:
		case d.IsDir():
			if strings.HasPrefix(d.Name(), ".") || file == "out" || l.isPackage(file) {
				return fs.SkipDir
			}
		case !strings.HasPrefix(d.Name(), ".") && d.Type().IsRegular():
			files = append(files, strings.TrimPrefix(file, root+"/"))
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// globMatch reports whether the elements of a path match those of a pattern.
// It takes time in the product of their numbers, whatever the pattern.
func globMatch(pattern, elems []string) bool {
	// reached[j]: the pattern so far matches the first j elements.
	reached := make([]bool, len(elems)+1)
	reached[0] = true
	for _, p := range pattern {
		if p == "**" {
			for j := range elems {
				reached[j+1] = reached[j+1] || reached[j]
			}
			continue
		}
		for j := len(elems) - 1; j >= 0; j-- {
			ok, _ := path.Match(p, elems[j])
			reached[j+1] = reached[j] && ok
		}
		reached[0] = false
	}
	return reached[len(elems)]
}
