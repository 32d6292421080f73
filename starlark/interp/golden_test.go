package interp

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"assay/starlark/diag"
	"assay/starlark/graph"
	"assay/starlark/schema"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the expectations of the golden files")

const goldenDir = "../../testdata/star"

func number(f float64) *float64 { return &f }

// toyRules are a small chain like the real one: a checkpoint is built into a
// bundle, which is served; an inventory lists anything.
var toyRules = []*schema.Rule{
	{Name: "checkpoint", Version: 1, Attrs: []schema.Attr{
		{Name: "weights", Kind: schema.File},
		{Name: "files", Kind: schema.FileList},
		{Name: "licence", Kind: schema.String, Default: "unknown", Values: []string{"unknown", "mit", "apache-2.0"}},
	}},
	{Name: "bundle", Version: 1, Attrs: []schema.Attr{
		{Name: "checkpoint", Kind: schema.Label, Required: true, Rules: []string{"checkpoint"}},
		{Name: "precision", Kind: schema.String, Default: "fp16", Values: []string{"fp16", "fp32", "bf16"}},
		{Name: "context", Kind: schema.Int, Default: int64(256), Min: number(1)},
	}},
	{Name: "serve", Version: 1, Attrs: []schema.Attr{
		{Name: "bundle", Kind: schema.Label, Required: true, Rules: []string{"bundle"}},
		{Name: "replicas", Kind: schema.Int, Default: int64(1), Min: number(1), Max: number(64)},
		{Name: "env", Kind: schema.StringDict},
		{Name: "warm", Kind: schema.Bool},
	}, Check: func(values map[string]any) []schema.Problem {
		if values["warm"].(bool) && values["replicas"].(int64) > 1 {
			return []schema.Problem{{Message: "warm servers have one replica", Hint: "drop replicas or warm"}}
		}
		return nil
	}},
	{Name: "inventory", Version: 1, Attrs: []schema.Attr{
		{Name: "rows", Kind: schema.LabelList},
	}},
}

// golden is one story. A .star file is the root package of a workspace that
// holds nothing else, and ends with its expectation in comments. A .txtar file
// holds the files of a workspace and its expectation; a line "patterns: …" of
// its comment says what to load instead of everything.
type golden struct {
	path     string
	archive  *txtar.Archive // nil for a .star file
	source   string         // of a .star file, without the expectation
	files    fstest.MapFS
	patterns []graph.Pattern
	want     string // "Expect graph:\n…" or "Expect errors:\n…"
}

const (
	marker   = "\n# Expect "
	expected = "expected"
)

func readGolden(t *testing.T, path string) *golden {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{path: path, files: fstest.MapFS{}}
	patterns := "//..."
	switch filepath.Ext(path) {
	case ".star":
		source, comment, _ := strings.Cut(string(text), marker)
		g.source = source
		g.files[WorkspaceFile] = &fstest.MapFile{Data: []byte(`workspace(name = "golden")` + "\n")}
		g.files[graph.PackageFile] = &fstest.MapFile{Data: text}
		lines := strings.Split("Expect "+comment, "\n")
		for i, line := range lines {
			lines[i] = strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ")
		}
		g.want = strings.Join(lines, "\n")
	case ".txtar":
		g.archive = txtar.Parse(text)
		for _, f := range g.archive.Files {
			if f.Name == expected {
				g.want = string(f.Data)
			} else {
				g.files[f.Name] = &fstest.MapFile{Data: f.Data}
			}
		}
		for line := range strings.Lines(string(g.archive.Comment)) {
			if p, ok := strings.CutPrefix(line, "patterns:"); ok {
				patterns = p
			}
		}
	default:
		t.Fatalf("%s is neither a .star nor a .txtar file, so no test reads it", path)
	}
	for f := range strings.FieldsSeq(patterns) {
		p, err := graph.ParsePattern(f, "")
		if err != nil {
			t.Fatal(err)
		}
		g.patterns = append(g.patterns, p)
	}
	return g
}

func (g *golden) rewrite(t *testing.T, got string) {
	t.Helper()
	var text []byte
	if g.archive == nil {
		text = []byte(g.source)
		for line := range strings.Lines(got) {
			text = append(text, "\n"+strings.TrimRight("# "+line, " \n")...)
		}
		text = append(text, '\n')
	} else {
		files := g.archive.Files[:0]
		for _, f := range g.archive.Files {
			if f.Name != expected {
				files = append(files, f)
			}
		}
		g.archive.Files = append(files, txtar.File{Name: expected, Data: []byte(got)})
		text = txtar.Format(g.archive)
	}
	if err := os.WriteFile(g.path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGolden(t *testing.T) {
	entries, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			g := readGolden(t, filepath.Join(goldenDir, e.Name()))
			got := outcome(t, g.files, g.patterns)
			if *update {
				g.rewrite(t, got)
				return
			}
			if diff := cmp.Diff(strings.TrimRight(g.want, "\n"), strings.TrimRight(got, "\n")); diff != "" {
				t.Errorf("run with -update if this is meant (-want +got):\n%s", diff)
			}
		})
	}
}

// outcome loads a workspace and prints its graph or its mistakes.
func outcome(t *testing.T, files fs.FS, patterns []graph.Pattern) string {
	t.Helper()
	opts := Options{FS: files, Rules: toyRules, MaxSteps: 10_000}
	g, err := Load(t.Context(), opts, patterns)
	var out bytes.Buffer
	if err == nil {
		out.WriteString("Expect graph:\n")
		for _, target := range g.Targets() {
			dump(&out, target)
		}
		return out.String()
	}
	problems, ok := errors.AsType[diag.List](err)
	if !ok {
		t.Fatal(err)
	}
	out.WriteString("Expect errors:\n")
	read := func(file string) ([]byte, error) { return fs.ReadFile(files, file) }
	if err := diag.Render(&out, problems, read); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// dump prints a target on a line, without the attributes that were left out.
func dump(out *bytes.Buffer, t *graph.Target) {
	fmt.Fprintf(out, "%s %s", t.Label, t.Rule.Name)
	for _, a := range t.Rule.Attrs {
		switch text := fmt.Sprint(t.Attrs[a.Name]); text {
		case "", "[]", "map[]", "//:", "false", fmt.Sprint(a.Default):
		default:
			fmt.Fprintf(out, " %s=%s", a.Name, text)
		}
	}
	out.WriteByte('\n')
}

func TestToyRulesAreValid(t *testing.T) {
	for _, r := range toyRules {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
}
