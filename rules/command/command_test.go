package command

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"assay/engine/action"
)

// try runs a shell script as a step with the input "in/deps/data/text", in a
// folder as the engine makes it.
func try(t *testing.T, ctx context.Context, script string, outputs ...string) (out, log string, err error) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"in/deps/data", "out", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "blob"), []byte("stored\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "blob"), filepath.Join(dir, "in/deps/data/text")); err != nil {
		t.Fatal(err)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	s := step{
		program: sh, argv: []string{"sh", "-c", script}, inputs: names{"deps/data": fromTarget}, outputs: outputs,
		env: map[string]string{"PATH": searchPath, "DATA": "{in:deps/data}/text"}, allowed: map[string]string{"BRACES": "{out}"},
		timeout: time.Minute,
	}
	var text bytes.Buffer
	out = filepath.Join(dir, "out")
	run := action.NewRun(func(role string) string { return filepath.Join(dir, "in", role) }, out, filepath.Join(dir, "tmp"), &text)
	err = s.run(ctx, run)
	if blob, readErr := os.ReadFile(filepath.Join(dir, "blob")); readErr != nil || string(blob) != "stored\n" {
		t.Errorf("the stored input is now %q (%v)", blob, readErr)
	}
	return out, text.String(), err
}

func TestRun(t *testing.T) {
	t.Setenv("SECRET", "of the caller")
	for _, tt := range []struct {
		name, script string
		outputs      []string
		log, err     string // what the log holds, and the error
	}{
		{"reads and writes", `cat {in:deps/data}/text "$DATA" > {out}/a; mkdir {out}/b; echo > {out}/b/c`, []string{"a", "b"}, "", ""},
		{"output in a folder", `mkdir -p {out}/x/y; echo > {out}/x/y/z`, []string{"x/y/z"}, "", ""},
		{"no output", `echo checked`, nil, "checked\n", ""},
		{"paths are relative", `echo {in:deps/data} {out} {tmp} "$BRACES" '{print $1}'`, nil, "in/deps/data out tmp {out} {print $1}\n", ""},
		{"nothing is inherited", `echo "[$SECRET]"; ls -A "$HOME"`, nil, "[]\n", ""},
		{"may write to its inputs", `chmod u+w "$DATA"; echo changed >> "$DATA"; cat "$DATA"`, nil, "stored\nchanged\n", ""},
		{"exit status", `echo no >&2; exit 7`, nil, "no\n", "sh: exit status 7"},
		{"killed", `kill -9 $$`, nil, "", "sh: signal: killed"},
		{"missing", `true`, []string{"a", "b/c"}, "", "the output a is missing\nthe output b/c is missing"},
		{"misplaced", `echo > a`, []string{"a"}, "", "the output a is missing; the program wrote it to the folder it ran in, not to {out}/a"},
		{"undeclared", `mkdir {out}/d {out}/e; echo > {out}/d/f; echo > {out}/a; echo > {out}/ab`, []string{"a"}, "",
			"the program wrote ab, which is not among the outputs; declare it, or write it to {tmp}\n" +
				"the program wrote d, which is not among the outputs; declare it, or write it to {tmp}\n" +
				"the program wrote e, which is not among the outputs; declare it, or write it to {tmp}"},
		{"links and pipes", `mkdir {out}/d; ln -s /etc/passwd {out}/d/link; mkfifo {out}/pipe`, []string{"d", "pipe"}, "",
			"the program left d/link, which is a symbolic link; outputs are regular files and folders\n" +
				"the program left pipe, which is a named pipe; outputs are regular files and folders"},
		{"replaced folder", `rmdir {out}; ln -s /etc {out}`, nil, "", "the program left ., which is a symbolic link; outputs are regular files and folders"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, log, err := try(t, t.Context(), tt.script, tt.outputs...)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.err, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.log, log); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	// The grandchild ignores TERM, keeps the log open and would write an output.
	script := `(trap "" TERM HUP; sleep 1000; echo late > {out}/late) & echo $! > {out}/pid`
	out, _, err := try(t, t.Context(), script, "pid")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err == nil && !zombie(pid) {
		t.Errorf("process %d is left", pid)
	}
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestInterrupt(t *testing.T) {
	why := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	_, _, err := try(t, ctx, `sleep 1000 & sleep 1000`)
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestModeIsKept(t *testing.T) {
	out, _, err := try(t, t.Context(), `echo > {out}/tool; chmod +x {out}/tool`, "tool")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(out, "tool"))
	if err != nil || info.Mode()&fs.FileMode(0o100) == 0 {
		t.Errorf("mode %v (%v), want it executable", info, err)
	}
}

func TestCheckReportsEveryMistake(t *testing.T) {
	got := check(map[string]any{
		"argv": []string{"", "a\x00b"}, "outputs": []string{".", "a", "a", "../b", "a/b"},
		"env": map[string]string{"A": "1", "B=": "", "TMPDIR": "/"}, "env_allow": []string{"HOME", "A", "C", "C"},
	})
	var attrs []string
	for _, p := range got {
		attrs = append(attrs, p.Attr+": "+p.Message)
	}
	want := []string{
		`argv: the program is missing`,
		`argv: [1] has a NUL byte; no argument can hold one`,
		`env_allow: A is set by ` + "`env`" + ` too`,
		`env: "B==" cannot be the name and value of a variable`,
		`env: TMPDIR is the step's own scratch folder and cannot be set`,
		`env_allow: HOME is the step's own scratch folder and cannot be taken over`,
		`env_allow: C is listed twice`,
		`outputs: "." is not a plain path below {out}`,
		`outputs: "a" is listed twice`,
		`outputs: "../b" is not a plain path below {out}`,
		`outputs: "a/b" is inside another output`,
	}
	if diff := cmp.Diff(want, attrs); diff != "" {
		t.Error(diff)
	}
}
