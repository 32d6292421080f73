package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite what the scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"assay": main})
}

// TestScript runs the stories of testdata/script: what a user does and sees.
func TestScript(t *testing.T) {
	shared := sharedDir(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join(root, "testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			// A cache of its own for every story; downloads and the environments made
			// from them are shared by all, so that what was fetched once is not fetched
			// again, and the tests pass offline.
			cache := filepath.Join(e.WorkDir, "cache")
			if err := os.Mkdir(cache, 0o755); err != nil {
				return err
			}
			module, err := filepath.Abs(root)
			if err != nil {
				return err
			}
			e.Setenv("ASSAY_CACHE", cache)
			e.Setenv("MODULE", module)
			for _, name := range []string{"PYENV_ROOT", "PYENV_VERSION", "ASSAY_PYTHON", "SSL_CERT_FILE", "PIP_CERT"} {
				if value, ok := os.LookupEnv(name); ok {
					e.Setenv(name, value)
				}
			}
			return errors.Join(
				os.Symlink(filepath.Join(shared, "download"), filepath.Join(cache, "download")),
				os.Symlink(filepath.Join(shared, "env"), filepath.Join(cache, "env")),
			)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":    exits,
			"mkwheel":  mkWheel,
			"sub":      substitute,
			"idle":     idle,
			"waitfor":  waitFor,
			"findblob": findBlob,
		},
	})
}

// sharedDir is where the stories share what can be made again.
func sharedDir(t *testing.T) string {
	t.Helper()
	user, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(user, "assay")
	for _, name := range []string{"download", "env"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// exits CODE COMMAND…: the command must end with this exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// mkwheel FILE MEMBER=PATH…: a wheel with these files; prints its SHA-256 into
// the environment as WHEEL_SHA256.
func mkWheel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: mkwheel FILE MEMBER=PATH...")
	}
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, arg := range args[1:] {
		member, path, _ := strings.Cut(arg, "=")
		w, err := z.Create(member)
		ts.Check(err)
		_, err = w.Write([]byte(ts.ReadFile(path)))
		ts.Check(err)
	}
	ts.Check(z.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), buf.Bytes(), 0o644))
	ts.Setenv("WHEEL_SHA256", fmt.Sprintf("%x", sha256.Sum256(buf.Bytes())))
}

// sub FILE OLD NEW: replaces text that must be there, as an editor would.
func substitute(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: sub FILE OLD NEW")
	}
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(text, args[1], args[2])), 0o644))
}

// idle: no process of this story is left. Everything a story starts has its work
// directory in the command line, the environment, or as its own.
func idle(ts *testscript.TestScript, neg bool, args []string) {
	work := ts.Getenv("WORK")
	procs, err := filepath.Glob("/proc/[0-9]*")
	ts.Check(err)
	for _, proc := range procs {
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		// AIPerf writes its title over both; its working directory stays.
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if bytes.Contains(append(append(cmdline, environ...), cwd...), []byte(work)) {
			ts.Fatalf("process %s is left: %q", filepath.Base(proc), cmdline)
		}
	}
}

// waitFor DIR SUFFIX: waits until a file below DIR whose path ends in SUFFIX has
// content.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitfor DIR SUFFIX")
	}
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		found := false
		filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, args[1]) {
				info, err := d.Info()
				found = found || err == nil && info.Size() > 0
			}
			return nil // what vanishes meanwhile is none of ours
		})
		if found {
			return
		}
	}
	ts.Fatalf("no %s with content appeared below %s", args[1], args[0])
}

// findBlob DIR PREFIX FILE: copies the one file below DIR that starts with
// PREFIX.
func findBlob(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: findblob DIR PREFIX FILE")
	}
	var found [][]byte
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(data, []byte(args[1])) {
			found = append(found, data)
		}
		return err
	}))
	if len(found) != 1 {
		ts.Fatalf("%d files start with %q", len(found), args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), found[0], 0o644))
}
