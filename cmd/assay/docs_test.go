package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGuide does what each of these pages says, in order, in a workspace of its own.
// A block marked with a language and a file name is that file; in a block marked
// console, a line after "$ " is run and the lines below it must be among what it
// prints, with … for what varies. A command must succeed unless the block shows
// an error.
func TestGuide(t *testing.T) {
	for _, name := range []string{"stages.md", "commands.md", "guide.md"} {
		t.Run(name, func(t *testing.T) { follow(t, name) })
	}
}

func follow(t *testing.T, name string) {
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	dir, cache := t.TempDir(), t.TempDir()
	shared := sharedDir(t)
	for _, name := range []string{"download", "env"} {
		if err := os.Symlink(filepath.Join(shared, name), filepath.Join(cache, name)); err != nil {
			t.Fatal(err)
		}
	}
	block := regexp.MustCompile("(?ms)^```(\\w+)(?: (\\S+))?\n(.*?)^```$")
	commands := 0
	for _, match := range block.FindAllStringSubmatch(string(text), -1) {
		language, file, body := match[1], match[2], match[3]
		switch {
		case language == "console":
			for _, block := range strings.Split("\n"+body, "\n$ ")[1:] {
				command, want, _ := strings.Cut(block, "\n")
				show(t, dir, cache, command, strings.Split(strings.TrimSpace(want), "\n"))
				commands++
			}
		case file != "":
			path := filepath.Join(dir, filepath.FromSlash(file))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("a block of %s is neither a file nor a console:\n%s", language, body)
		}
	}
	if commands == 0 {
		t.Fatal("the guide shows no command")
	}
}

// show runs a command of a guide and looks for the lines it must print.
func show(t *testing.T, dir, cache, command string, want []string) {
	t.Helper()
	source, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ASSAY_CACHE="+cache, "ASSAY_SOURCE="+source)
	out, err := cmd.CombinedOutput()
	mayFail := slices.ContainsFunc(want, func(line string) bool { return strings.HasPrefix(line, "error: ") })
	if (err != nil) != mayFail {
		t.Fatalf("$ %s: %v\n%s", command, err, out)
	}
	for _, line := range want {
		pattern := "(?m)^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", ".*") + "$"
		if !regexp.MustCompile(pattern).Match(out) {
			t.Errorf("$ %s\nshould print the line %q; it prints\n%s", command, line, out)
		}
	}
}
