// Package graph holds the targets of a workspace and the edges between them.
//
// A graph is built in any order: an edge may point to a target that is added
// later. [Graph.Finalize] then reports everything that does not fit together
// in one go; after it succeeds the graph is read-only and safe for concurrent
// use.
package graph

import (
	"cmp"
	"fmt"
	"strings"

	"assay/starlark/schema"
)

// PackageFile is the name of the file that makes a folder a package.
const PackageFile = "stages.star"

// A Label names a target. Package is the folder of its package file, relative
// to the workspace, with slashes; it is empty for the root.
type Label struct {
	Package, Name string
}

// String returns the label in full: //package:name.
func (l Label) String() string { return "//" + l.Package + ":" + l.Name }

func (l Label) compare(m Label) int {
	return cmp.Or(cmp.Compare(l.Package, m.Package), cmp.Compare(l.Name, m.Name))
}

// ParseLabel reads a label as written in package currentPkg: "//a/b:c", ":c",
// or "//a/b", which is short for "//a/b:b".
func ParseLabel(s, currentPkg string) (Label, error) {
	pkg, name, err := splitLabel(s, currentPkg)
	if err != nil {
		return Label{}, err
	}
	if name == "" {
		return Label{}, fmt.Errorf("label %q has no name after the colon", s)
	}
	if !schema.ValidName(name) {
		return Label{}, fmt.Errorf("label %q: %q cannot be the name of a target", s, name)
	}
	return Label{pkg, name}, nil
}

// splitLabel separates and checks the package; the name is left to the caller.
func splitLabel(s, currentPkg string) (pkg, name string, err error) {
	rest, absolute := strings.CutPrefix(s, "//")
	if name, ok := strings.CutPrefix(s, ":"); ok {
		return currentPkg, name, nil
	}
	switch {
	case s == "":
		return "", "", fmt.Errorf("the label is empty")
	case rest == "":
		return "", "", fmt.Errorf(`label %q names no package; targets of the root are "//:name"`, s)
	case !absolute && strings.HasPrefix(s, "/"):
		return "", "", fmt.Errorf("label %q starts with one slash; write %q", s, "/"+s)
	case !absolute && strings.ContainsAny(s, "/:"):
		return "", "", fmt.Errorf("label %q is not absolute; write %q", s, "//"+s)
	case !absolute:
		return "", "", fmt.Errorf("%q is not a label; write %q for a target of this package", s, ":"+s)
	}
	pkg, name, colon := strings.Cut(rest, ":")
	if err := CheckPackage(pkg); err != nil {
		return "", "", fmt.Errorf("label %q: %w", s, err)
	}
	if !colon {
		name = pkg[strings.LastIndexByte(pkg, '/')+1:]
	}
	return pkg, name, nil
}

// CheckPackage reports why pkg cannot be the path of a package, if so.
func CheckPackage(pkg string) error {
	if pkg == "" {
		return nil
	}
	for elem := range strings.SplitSeq(pkg, "/") {
		switch {
		case elem == "":
			return fmt.Errorf("package %q has an empty folder name", pkg)
		case elem == "." || elem == "..":
			return fmt.Errorf("package %q: %q is not allowed, packages are named from the root of the workspace", pkg, elem)
		case !schema.ValidName(elem):
			return fmt.Errorf("package %q: folder name %q may only hold letters, digits and _ . + -", pkg, elem)
		}
	}
	return nil
}
