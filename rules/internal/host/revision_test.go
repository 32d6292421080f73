package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadRevision(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if r := ReadRevision(t.Context(), dir); r != (Revision{}) {
		t.Errorf("without git: %+v", r)
	}
	run("init", "--quiet")
	file := filepath.Join(dir, "a")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	if r := ReadRevision(t.Context(), dir); r != (Revision{}) {
		t.Errorf("without a commit: %+v", r)
	}
	run("add", "a")
	run("commit", "--quiet", "-m", "c")
	if r := ReadRevision(t.Context(), dir); r.Commit != run("rev-parse", "HEAD") || r.Dirty == nil || *r.Dirty {
		t.Errorf("clean: %+v", r)
	}
	write("22")
	if r := ReadRevision(t.Context(), dir); r.Dirty == nil || !*r.Dirty {
		t.Errorf("changed: %+v", r)
	}
}

// A git that leaves something behind with its standard output does not hold us
// up: here a process that ends when the test is over and its folder gone.
func TestReadRevisionDoesNotWaitForGrandchildren(t *testing.T) {
	bin := t.TempDir()
	script := `#!/bin/sh
echo "$*" >>"$0.calls"
(while [ -e "$0" ]; do sleep 0.1; done) &
case "$*" in *rev-parse*) echo c0ffee ;; esac
`
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if r := ReadRevision(t.Context(), "/"); r.Commit != "c0ffee" || r.Dirty == nil || *r.Dirty {
		t.Errorf("%+v", r)
	}
	calls, err := os.ReadFile(filepath.Join(bin, "git.calls"))
	if err != nil {
		t.Fatal(err)
	}
	for call := range strings.Lines(string(calls)) {
		if !strings.HasPrefix(call, "--no-optional-locks ") {
			t.Errorf("git was called with %q", call)
		}
	}
}
