package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"assay/starlark/diag"
	"assay/starlark/schema"
)

// A Pattern selects targets: one, all of a package, or all below a folder.
type Pattern struct {
	Package   string
	Recursive bool   // also every package below Package; Name is empty then
	Name      string // empty for all targets
}

// ParsePattern reads a pattern as written in package currentPkg: a label, or
// "//a/b:all", "//a/b/..." and "//...".
func ParsePattern(s, currentPkg string) (Pattern, error) {
	if pkg, ok := strings.CutSuffix(s, "..."); ok {
		pkg, ok := strings.CutPrefix(pkg, "//")
		if !ok || pkg != "" && !strings.HasSuffix(pkg, "/") {
			return Pattern{}, fmt.Errorf(`pattern %q: "..." stands alone after a slash, as in "//a/b/..."`, s)
		}
		pkg = strings.TrimSuffix(pkg, "/")
		if err := CheckPackage(pkg); err != nil {
			return Pattern{}, fmt.Errorf("pattern %q: %w", s, err)
		}
		return Pattern{Package: pkg, Recursive: true}, nil
	}
	pkg, name, err := splitLabel(s, currentPkg)
	switch {
	case err != nil:
		return Pattern{}, err
	case name == "all": // no target may be called that
		return Pattern{Package: pkg}, nil
	case !schema.ValidName(name):
		return Pattern{}, fmt.Errorf("pattern %q: %q cannot be the name of a target", s, name)
	}
	return Pattern{Package: pkg, Name: name}, nil
}

// String returns the pattern in full.
func (p Pattern) String() string {
	switch {
	case p.Recursive && p.Package == "":
		return "//..."
	case p.Recursive:
		return "//" + p.Package + "/..."
	case p.Name == "":
		return "//" + p.Package + ":all"
	}
	return Label{p.Package, p.Name}.String()
}

func (p Pattern) matches(l Label) bool {
	if p.Recursive {
		return p.Package == "" || l.Package == p.Package || strings.HasPrefix(l.Package, p.Package+"/")
	}
	return l.Package == p.Package && (p.Name == "" || l.Name == p.Name)
}

// Match returns the labels that the patterns select, sorted, each once. A
// pattern that selects nothing is a mistake; the error is a [diag.List].
func (g *Graph) Match(patterns []Pattern) ([]Label, error) {
	found := make(map[Label]bool)
	var problems diag.Collector
	for _, p := range patterns {
		matched := false
		for l := range g.targets {
			if p.matches(l) {
				found[l], matched = true, true
			}
		}
		if !matched {
			problems.Add(g.noMatch(p))
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Keys(found), Label.compare), nil
}

func (g *Graph) noMatch(p Pattern) diag.Diagnostic {
	if p.Name == "" {
		return diag.Diagnostic{Message: fmt.Sprintf("%s matches no target", p)}
	}
	l := Label{p.Package, p.Name}
	return diag.Diagnostic{Message: g.absent(l), Hint: g.suggest(l)}
}
