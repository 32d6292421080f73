package interp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"assay/starlark/diag"
	"assay/starlark/graph"

	"github.com/google/go-cmp/cmp"
)

var everything = []graph.Pattern{{Recursive: true}}

// tree returns a workspace with the given files.
func tree(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{WorkspaceFile: {Data: []byte(`workspace(name = "test")`)}}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestEachFileRunsOnce(t *testing.T) {
	var printed []string
	opts := Options{
		Rules: toyRules,
		Print: func(msg string) { printed = append(printed, msg) },
		FS: tree(map[string]string{
			"a/stages.star": `load("//lib:m.star", "x"); inventory(name = "a", rows = ["//b"]); print("a", x)`,
			"b/stages.star": `load("//lib:m.star", "x"); inventory(name = "b", rows = ["//c"]); print("b", x)`,
			"c/stages.star": `load("//lib:n.star", "y"); inventory(name = "c"); print("c", y)`,
			"lib/m.star":    `load(":n.star", "y"); print("m"); x = y + 1`,
			"lib/n.star":    `print("n"); y = 1`,
		}),
	}
	patterns := []graph.Pattern{{Package: "b", Name: "b"}, {Package: "a"}, {Package: "b"}}
	g, err := Load(t.Context(), opts, patterns)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"n", "m", "b 2", "a 2", "c 1"}, printed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, g.Packages()); diff != "" {
		t.Error(diff)
	}
}

func TestModulesAreFrozen(t *testing.T) {
	fsys := tree(map[string]string{
		"stages.star": `load("//lib:m.star", "rows"); rows.append(1)`,
		"lib/m.star":  `rows = []`,
	})
	_, err := Load(t.Context(), Options{FS: fsys, Rules: toyRules}, everything)
	if err == nil || !strings.Contains(err.Error(), "cannot append to frozen list") {
		t.Errorf("got %v, want a complaint about a frozen list", err)
	}
}

func TestCancelStopsExecution(t *testing.T) {
	why := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	opts := Options{
		Rules:    toyRules,
		MaxSteps: 1 << 62,
		Print:    func(string) { cancel(why) }, // while the module is in its loop
		FS: tree(map[string]string{
			"stages.star": `load("//lib:loop.star", "x")`,
			"lib/loop.star": `
def loop():
    for i in range(1 << 62):
        if i == 10:
            print("started")
    return 1

x = loop()
`,
		}),
	}
	g, err := Load(ctx, opts, everything)
	if !errors.Is(err, why) || g != nil {
		t.Errorf("got %v, %v, want %v", g, err, why)
	}
	if _, err := Load(ctx, opts, everything); !errors.Is(err, why) {
		t.Errorf("with a context that has ended: got %v, want %v", err, why)
	}
}

func TestLinksCannotLeaveTheWorkspace(t *testing.T) {
	dir := t.TempDir()
	root, secret := filepath.Join(dir, "root"), filepath.Join(dir, "secret")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, "key")
	write(filepath.Join(root, WorkspaceFile), `workspace(name = "links")`)
	write(filepath.Join(root, graph.PackageFile), `checkpoint(name = "x", weights = "link", files = ["inside"])`)
	write(filepath.Join(root, "real"), "data")
	for name, to := range map[string]string{"link": secret, "inside": "real"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Skip(err)
		}
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = Load(t.Context(), Options{FS: r.FS(), Rules: toyRules}, everything)
	problems, ok := errors.AsType[diag.List](err)
	if !ok || len(problems) != 1 || !strings.Contains(problems[0].Message, "cannot use file link") {
		t.Errorf("got %v, want one problem, with file link", err)
	}
}

func TestGlobPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true},
		{"a", "a/b", false},
		{"*", "a", true},
		{"*", "a/b", false},
		{"*.txt", "a.txt", true},
		{"**", "a/b/c", true},
		{"**/c", "c", true},
		{"**/c", "a/b/c", true},
		{"a/**/c", "a/c", true},
		{"a/**/c", "a/b/b/c", true},
		{"a/**/c", "b/a/c", false},
		{"a/**", "a/b", true},
		{"a/**", "b", false},
		{"**/b/**/*.txt", "a/b/c/d.txt", true},
		{"[ab]?", "bc", true},
		{strings.Repeat("**/x/", 20) + "y", strings.Repeat("x/", 60) + "z", false},
	} {
		if got := globMatch(strings.Split(tt.pattern, "/"), strings.Split(tt.name, "/")); got != tt.want {
			t.Errorf("%s against %s: %v", tt.pattern, tt.name, got)
		}
	}
}

func TestBadGlobs(t *testing.T) {
	for call, want := range map[string]string{
		`glob(["../x"])`:            `glob: "../x" is not a plain path below the package`,
		`glob(["/etc/*"])`:          `glob: "/etc/*" is not a plain path below the package`,
		`glob(["[x"])`:              `glob: "[x" is not a pattern: syntax error in pattern`,
		`glob([1])`:                 `glob: want a list of strings, got one with a value of type int`,
		`glob("*.bin")`:             `glob: for parameter include: got string, want list`,
		`glob(["*"], ["stages.*"])`: `glob(["*"]) matches no file`,
	} {
		fsys := tree(map[string]string{"p/stages.star": call})
		_, err := Load(t.Context(), Options{FS: fsys, Rules: toyRules}, everything)
		problems, ok := errors.AsType[diag.List](err)
		if !ok || len(problems) != 1 || problems[0].Message != want {
			t.Errorf("%s: got %v, want %s", call, err, want)
		}
	}
}

// FuzzLoad feeds arbitrary text to a package file. Whatever it says, loading
// ends with a graph or with mistakes that can be shown.
func FuzzLoad(f *testing.F) {
	entries, err := os.ReadDir(goldenDir)
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(goldenDir, e.Name()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("\xff\x00")
	f.Add(strings.Repeat("(", 1000))
	f.Add(`load("//p:stages.star", "x")`)
	f.Fuzz(func(t *testing.T, text string) {
		fsys := tree(map[string]string{
			"p/stages.star": text,
			"p/data.bin":    "",
			"lib/m.star":    "def f(**kwargs):\n    checkpoint(**kwargs)\n",
		})
		opts := Options{FS: fsys, Rules: toyRules, MaxSteps: 10_000}
		g, err := Load(t.Context(), opts, everything)
		if err == nil {
			if len(g.Topological()) != len(g.Targets()) {
				t.Fatal("targets are missing from the order")
			}
			return
		}
		problems, ok := errors.AsType[diag.List](err)
		if !ok || len(problems) == 0 {
			t.Fatalf("not a list of problems: %v", err)
		}
		var out strings.Builder
		if err := diag.Render(&out, problems, fsys.ReadFile); err != nil {
			t.Fatal(err)
		}
		if _, again := Load(t.Context(), opts, everything); again == nil || again.Error() != err.Error() {
			t.Fatalf("first %v\nthen %v", err, again)
		}
	})
}
