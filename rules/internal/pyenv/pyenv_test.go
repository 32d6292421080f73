package pyenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"assay/rules/internal/rule"
)

// script writes an executable shell script.
func script(t *testing.T, path, body string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// answer is the body of a Python that says this of itself.
func answer(implementation, version string) string {
	return fmt.Sprintf(`echo '{"executable": "'"$0"'", "version": "%s", "implementation": "%s", "platform": "linux-x86_64"}'`, version, implementation)
}

// machine is a host with a Python and a uv that are shell scripts. The uv notes
// its calls and installs one file for each requirement, from its "cache" with
// --offline; it fails where there is a file of its name and ".fails".
type machine struct {
	rule.Host
	uv string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	dir := t.TempDir()
	return machine{
		rule.Host{
			Environments: filepath.Join(dir, "env"), UVCache: filepath.Join(dir, "cache"),
			Python: script(t, filepath.Join(dir, "python3"), answer("CPython", "3.12.4")),
		},
		script(t, filepath.Join(dir, "uv"), `
echo "$*" >>"$0.calls"
case "$1" in
venv)
  for env; do :; done
  mkdir -p "$env/bin" && : >"$env/bin/python" ;;
pip)
  case "$*" in *--offline) [ -e "$UV_CACHE_DIR/filled" ] || { echo "not in the cache"; exit 2; } ;; esac
  [ ! -e "$0.fails" ] || { echo "no matching distribution"; exit 2; }
  while [ "$1" != -r ]; do shift; done
  while read -r pin; do mkdir -p "${2%/*}/lib" && : >"${2%/*}/lib/$pin"; done <"$2"
  mkdir -p "$UV_CACHE_DIR" && : >"$UV_CACHE_DIR/filled" ;;
esac`),
	}
}

func (m machine) tools() tools {
	return tools{
		uv:   func(context.Context, rule.Host, Interpreter, func(string)) (string, error) { return m.uv, nil },
		sync: syncTree,
	}
}

// calls are the first words of uv's calls, and whether they were offline.
func (m machine) calls(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(m.uv + ".calls")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		word, _, _ := strings.Cut(line, " ")
		if strings.Contains(line, "--offline") {
			word += " offline"
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

func quiet(string) {}

var pins = []byte("one==1\ntwo==2\n")

func whole(env Env) bool {
	return exists(env.Python()) && exists(filepath.Join(env.Dir, "lib", "one==1")) &&
		exists(filepath.Join(env.Dir, "lib", "two==2")) && exists(filepath.Join(env.Dir, complete))
}

// The first environment is downloaded; it is there the second time; once it is
// thrown away it is made again from the cache alone.
func TestRealise(t *testing.T) {
	m := newMachine(t)
	for _, step := range []struct{ name, calls string }{
		{"first", "venv, pip offline, pip"},
		{"again", "venv, pip offline, pip"},
		{"thrown away", "venv, pip offline, pip, venv, pip offline"},
	} {
		env, err := m.tools().realise(t.Context(), m.Host, pins, quiet)
		if err != nil || !whole(env) || env.Interpreter.Version != "3.12.4" {
			t.Fatalf("%s: %+v, %v", step.name, env, err)
		}
		if got := m.calls(t); got != step.calls {
			t.Errorf("%s: calls of uv: %s, want %s", step.name, got, step.calls)
		}
		if step.name == "again" {
			if err := os.RemoveAll(env.Dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	other, err := m.tools().realise(t.Context(), m.Host, []byte("one==2\n"), quiet)
	if err != nil || exists(filepath.Join(other.Dir, "lib", "one==1")) {
		t.Errorf("another lock: %+v, %v", other, err)
	}
}

// What was not made to the end is made again from the start: nothing of it stays.
func TestRealiseMakesAHalfMadeEnvironmentAgain(t *testing.T) {
	m := newMachine(t)
	env, err := m.tools().realise(t.Context(), m.Host, pins, quiet)
	if err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(env.Dir, "lib", "stale")
	if err := errors.Join(os.Remove(filepath.Join(env.Dir, complete)), os.WriteFile(stale, nil, 0o644), os.Remove(env.Python())); err != nil {
		t.Fatal(err)
	}
	again, err := m.tools().realise(t.Context(), m.Host, pins, quiet)
	if err != nil || again != env || !whole(again) || exists(stale) {
		t.Errorf("%+v, %v; stale file there: %v", again, err, exists(stale))
	}
}

func TestRealiseFails(t *testing.T) {
	m := newMachine(t)
	script(t, m.uv+".fails", "")
	env, err := m.tools().realise(t.Context(), m.Host, pins, quiet)
	if env != (Env{}) || err == nil || !strings.Contains(err.Error(), "install the lock's packages: exit status 2\nno matching distribution") {
		t.Errorf("%+v, %v", env, err)
	}
	if err := os.Remove(m.uv + ".fails"); err != nil {
		t.Fatal(err)
	}
	if env, err = m.tools().realise(t.Context(), m.Host, pins, quiet); err != nil || !whole(env) {
		t.Errorf("once the fault is gone: %+v, %v", env, err)
	}
}

// After a crash the marker can be on disk only if all that it vouches for is: it
// is written when everything else was synced, and not if that failed.
func TestTheMarkerComesAfterTheSync(t *testing.T) {
	m := newMachine(t)
	tools := m.tools()
	fault := errors.New("I/O error")
	synced := ""
	tools.sync = func(dir string) error {
		synced = dir
		if !exists(filepath.Join(dir, "lib", "two==2")) || exists(filepath.Join(dir, complete)) {
			t.Error("synced too early or too late")
		}
		return fault
	}
	if env, err := tools.realise(t.Context(), m.Host, pins, quiet); !errors.Is(err, fault) || env != (Env{}) || synced == "" {
		t.Errorf("%+v, %v, synced %q", env, err, synced)
	}
	if exists(filepath.Join(synced, complete)) {
		t.Error("the marker is there")
	}
}

func TestSyncTree(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syncTree(dir); err != nil {
		t.Error(err)
	}
	if err := syncTree(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// Whoever comes at the same time, this process or another, waits for the one
// that makes the environment. (The lock is on an open file, so that goroutines
// exclude each other as processes do.)
func TestRealiseMakesItOnce(t *testing.T) {
	m := newMachine(t)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if env, err := m.tools().realise(t.Context(), m.Host, pins, quiet); err != nil || !whole(env) {
				t.Errorf("%+v, %v", env, err)
			}
		})
	}
	all.Wait()
	if got := m.calls(t); got != "venv, pip offline, pip" {
		t.Errorf("calls of uv: %s", got)
	}
}

func TestFindPython(t *testing.T) {
	for _, c := range []struct {
		name       string
		pythons    map[string]string // bodies of scripts
		configured string
		found      string // name and version
		errors     []string
	}{
		{"the first that fits", map[string]string{"python3": answer("CPython", "3.13.1"), "python3.11": answer("CPython", "3.11.0")}, "", "python3 3.13.1", nil},
		{"python3 is too old", map[string]string{"python3": answer("CPython", "3.9.18"), "python3.11": answer("CPython", "3.11.7")}, "", "python3.11 3.11.7", nil},
		{"a release candidate", map[string]string{"python3": answer("CPython", "3.12.0rc1")}, "", "python3 3.12.0rc1", nil},
		{"named", map[string]string{"python3": answer("CPython", "3.13.1"), "mine": answer("CPython", "3.11.7")}, "mine", "mine 3.11.7", nil},
		{"none", nil, "", "", []string{"install one, or name it in ASSAY_PYTHON",
			`"python3": executable file not found`, `"python3.13": executable`, `"python3.12": executable`, `"python3.11": executable`}},
		{"none that fits",
			map[string]string{
				"python3": answer("CPython", "3.14.0"), "python3.13": "exit 7",
				"python3.12": "echo hello", "python3.11": answer("PyPy", "3.11.2"),
			}, "", "",
			[]string{"python3 is CPython 3.14.0", "python3.13: exit status 7", "python3.12: unexpected answer: invalid character", "python3.11 is PyPy 3.11.2"}},
		{"the named one is too old", map[string]string{"python3": answer("CPython", "3.13.1"), "mine": answer("CPython", "2.7.18")}, "mine", "", []string{"mine is CPython 2.7.18"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bin := t.TempDir()
			for name, body := range c.pythons {
				script(t, filepath.Join(bin, name), body)
			}
			t.Setenv("PATH", bin)
			i, err := FindPython(t.Context(), c.configured)
			if got := filepath.Base(i.Executable) + " " + i.Version; err == nil && got != c.found || (err == nil) != (c.errors == nil) {
				t.Errorf("got %s, %v", got, err)
			}
			for _, want := range c.errors {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant an error with %q", err, want)
				}
			}
		})
	}
}

// A Python that leaves something behind with its standard output does not hold
// us up: here a process that ends when the test is over and its folder gone.
func TestFindPythonDoesNotWaitForGrandchildren(t *testing.T) {
	python := script(t, filepath.Join(t.TempDir(), "python"), `(while [ -e "$0" ]; do sleep 0.1; done) &
`+answer("CPython", "3.12.4"))
	if i, err := FindPython(t.Context(), python); err != nil || i.Version != "3.12.4" {
		t.Errorf("%+v, %v", i, err)
	}
}

// Being cancelled is not the same as finding nothing.
func TestFindPythonCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := FindPython(ctx, ""); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
