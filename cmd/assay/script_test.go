package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite what the scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"assay": main, "faultyproxy": faultyProxy})
}

// TestScript runs the stories of testdata/script: what a user does and sees.
func TestScript(t *testing.T) {
	shared := sharedDir(t)
	// The stories keep each other's measurements apart, and not those of others.
	machineLock := filepath.Join(t.TempDir(), "machine.lock")
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
			e.Setenv("ASSAY_MACHINE_LOCK", machineLock)
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
			"exits":      exits,
			"findings":   findings,
			"mkwheel":    mkWheel,
			"sub":        substitute,
			"idle":       idle,
			"waitfor":    waitFor,
			"findblob":   findBlob,
			"stopped":    stopped,
			"occupy":     occupy,
			"fakeclient": fakeClient(shared),
			"commit":     commit,
			"lose":       lose,
		},
		Condition: func(name string) (bool, error) {
			if name != "mount" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return mayMount(t.Context()), nil
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

// findings REPORT [CODE[?]...]: these, with ? perhaps, are the findings of the report, no more and no
// less, apart from those that tell of the machine and not of the story.
func findings(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: findings REPORT [CODE...]")
	}
	machine := []string{"client_saturated", "clock_step", "dispatch_lag", "noisy_host"}
	found := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (?:blocking|warning|info) \\|").FindAllStringSubmatch(ts.ReadFile(args[0]), -1) {
		if !slices.Contains(machine, match[1]) {
			found[match[1]] = true
		}
	}
	var want []string
	for _, code := range args[1:] {
		if name, maybe := strings.CutSuffix(code, "?"); !maybe || found[name] {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		ts.Fatalf("the findings are %q, want %q", got, want)
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

// stopped CODE SIGNALS SUFFIX TEXT COMMAND…: runs the command; when a file of the
// story whose path ends in SUFFIX contains TEXT, sends it the signals, such as
// "INT INT", each when it has had time to see the one before. It must end with this
// exit code, 128 and more for a signal that ended it.
func stopped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 5 {
		ts.Fatalf("usage: stopped CODE SIGNALS SUFFIX TEXT COMMAND [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	work, pidFile := ts.Getenv("WORK"), ts.MkAbs("stopped.pid")
	os.Remove(pidFile)
	over, sent := make(chan struct{}), make(chan error, 1)
	go func() { sent <- sendSignals(over, work, pidFile, args[2], args[3], strings.Fields(args[1])) }()
	err = ts.Exec("sh", append([]string{"-c", `echo $$ >stopped.pid; exec "$@"`, "sh"}, args[4:]...)...)
	close(over)
	ts.Check(<-sent)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
		if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
			got = 128 + int(status.Signal())
		}
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// between is how long a process has to see a signal before the next comes; two that
// wait are one.
const between = 300 * time.Millisecond

func sendSignals(over <-chan struct{}, work, pidFile, suffix, text string, names []string) error {
	for !contains(work, suffix, text) {
		select {
		case <-over:
			return fmt.Errorf("it ended before %s contained %q", suffix, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	for _, name := range names {
		err := syscall.Kill(pid, unix.SignalNum("SIG"+name))
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		select {
		case <-over:
		case <-time.After(between):
		}
	}
	return nil
}

// contains reports whether a file below dir whose path ends in suffix contains the
// text; the empty text is in every file.
func contains(dir, suffix, text string) (found bool) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, suffix) {
			data, err := os.ReadFile(path)
			found = found || err == nil && bytes.Contains(data, []byte(text))
		}
		return nil // what vanishes meanwhile is none of ours
	})
	return found
}

// occupy NAME: listens on a port until the story ends, and puts its number into the
// environment.
func occupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: occupy NAME")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { listener.Close() })
	ts.Setenv(args[0], strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
}

// fakeClient is fakeclient [FILE]: from now on the story's environments, which must
// have been made before, have this script in place of AIPerf, and nothing else; with
// "-" not even that. Without FILE they are the real ones again.
func fakeClient(shared string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) > 1 {
			ts.Fatalf("usage: fakeclient [FILE]")
		}
		envs := ts.MkAbs("cache/env")
		ts.Check(os.RemoveAll(envs)) // the link, or the last fakes
		if len(args) == 0 {
			ts.Check(os.Symlink(filepath.Join(shared, "env"), envs))
			return
		}
		clients, err := filepath.Glob(filepath.Join(shared, "env", "*", "bin", "aiperf"))
		ts.Check(err)
		if len(clients) == 0 {
			ts.Fatalf("no environment has an aiperf; build it first")
		}
		for _, client := range clients {
			bin := filepath.Dir(client)
			env := filepath.Join(envs, filepath.Base(filepath.Dir(bin)))
			ts.Check(os.MkdirAll(filepath.Join(env, "bin"), 0o755))
			ts.Check(os.WriteFile(filepath.Join(env, ".complete"), nil, 0o644))
			if args[0] != "-" {
				ts.Check(os.WriteFile(filepath.Join(env, "bin", "aiperf"), []byte(ts.ReadFile(args[0])), 0o755))
			}
		}
	}
}

// mayMount reports whether this user may mount file systems, in namespaces of its
// own.
func mayMount(ctx context.Context) bool {
	return exec.CommandContext(ctx, "unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt").Run() == nil
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

// commit MESSAGE: puts the story's files under git, as they are now.
func commit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: commit MESSAGE")
	}
	for _, git := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=story", "-c", "user.email=story@example.org", "commit", "-q", "-m", args[0]}} {
		ts.Check(ts.Exec("git", git...))
	}
}

// lose TEXT…: removes the one blob of the cache that contains all the texts.
func lose(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: lose TEXT...")
	}
	var found []string
	ts.Check(filepath.WalkDir(ts.MkAbs("cache/cas"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if !slices.ContainsFunc(args, func(text string) bool { return !bytes.Contains(data, []byte(text)) }) {
			found = append(found, path)
		}
		return err
	}))
	if len(found) != 1 {
		ts.Fatalf("%d blobs contain %q", len(found), args)
	}
	ts.Check(os.Remove(found[0]))
}
