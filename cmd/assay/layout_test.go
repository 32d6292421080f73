package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bazelbuild/buildtools/build"
)

const root = "../.."

// allowed says which trees a tree may import: cmd → rules → engine → cache, and
// cmd, rules → starlark.
var allowed = map[string][]string{
	"bench":    {"bench", "engine"},
	"cmd":      {"cmd", "rules", "engine", "cache", "starlark"},
	"rules":    {"rules", "engine", "cache", "starlark"},
	"engine":   {"engine", "cache"},
	"cache":    {"cache"},
	"starlark": {"starlark"},
}

func TestImportsPointOneWay(t *testing.T) {
	files := 0
	walk(t, ".go", func(name string, data []byte) {
		tree, _, _ := strings.Cut(name, "/")
		parsed, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		files++
		for _, spec := range parsed.Imports {
			to, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "assay/")
			if !ok {
				continue
			}
			target, _, _ := strings.Cut(to, "/")
			if !strings.Contains(" "+strings.Join(allowed[tree], " ")+" ", " "+target+" ") {
				t.Errorf("%s imports %s: %s may import only %v", name, to, tree, allowed[tree])
			}
		}
	})
	if files < 50 {
		t.Fatalf("looked at %d files only", files)
	}
}

// The stages people learn from are formatted as buildtools formats them. A file
// is given the default type: buildtools takes workspace.star for one of Bazel's
// and would re-sort its lists.
func TestStagesAreFormatted(t *testing.T) {
	walk(t, ".star", func(name string, data []byte) {
		if strings.HasPrefix(name, "testdata/") {
			return // golden files show broken ones too
		}
		f, err := build.ParseDefault(name, data)
		if err != nil {
			t.Fatal(err)
		}
		if got := build.Format(f); string(got) != string(data) {
			t.Errorf("%s is not formatted; it should be:\n%s", name, got)
		}
	})
}

// walk visits the files of the source tree with the extension.
func walk(t *testing.T, ext string, visit func(name string, data []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() && (name == "out" || name == "bin" || strings.HasPrefix(d.Name(), ".") && name != ".") {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(name) != ext {
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(name), data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
