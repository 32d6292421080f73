package recordlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"assay/rules/internal/record"

	"github.com/google/go-cmp/cmp"
)

func request(n int) *record.Record {
	return &record.Record{Schema: record.Schema, RequestID: fmt.Sprintf("r%d", n), Endpoint: "chat", Status: 200, Outcome: record.Completed}
}

// lineSize is the size of request(0) to request(9) in a file.
var lineSize = func() int64 {
	line, err := json.Marshal(request(0))
	if err != nil {
		panic(err)
	}
	return int64(len(line)) + 1
}()

func ids(from, to int) (want []string) {
	for n := from; n <= to; n++ {
		want = append(want, fmt.Sprintf("r%d", n))
	}
	return want
}

// union reads the ids of all files of a log, and fails if a line is not whole.
func union(t *testing.T, path string) (got []string) {
	t.Helper()
	files, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var r struct {
				RequestID string `json:"request_id"`
			}
			if err := json.Unmarshal(line, &r); err != nil || line[len(line)-1] != '\n' {
				t.Fatalf("%s: not a whole line: %q (%v)", filepath.Base(name), line, err)
			}
			got = append(got, r.RequestID)
		}
	}
	return got
}

// place is a path for a log, and options that keep it quiet.
func place(t testing.TB) Options {
	return Options{Path: filepath.Join(t.TempDir(), "records.jsonl"), Log: slog.New(slog.DiscardHandler)}
}

func mustOpen(t testing.TB, o Options, d disk) *Log {
	t.Helper()
	l, err := open(o, d)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(t testing.TB, l *Log, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := l.Append(request(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, path string) (got []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	return got
}

// A file is full when the next line would go beyond the limit; numbers go on
// where an earlier process stopped, and no name is taken twice.
func TestRotation(t *testing.T) {
	o := place(t)
	o.MaxBytes = 2 * lineSize
	for _, stranger := range []string{"records.jsonl.bak", "records.1.jsonl", "records.00000x.jsonl", "other.000001.jsonl"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(o.Path), stranger), []byte("not a log"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := mustOpen(t, o, osDisk{})
	mustAppend(t, l, 1, 5)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o, osDisk{})
	mustAppend(t, l, 6, 7)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := Files(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range files {
		files[i] = filepath.Base(name)
	}
	want := []string{"records.000001.jsonl", "records.000002.jsonl", "records.000003.jsonl", "records.jsonl"}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(ids(1, 7), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
	if slices.Contains(names(t, o.Path), "records.jsonl.lock") {
		t.Error("the lock file was left behind")
	}
}

func TestARecordAboveTheLimitGetsAFile(t *testing.T) {
	o := place(t)
	o.MaxBytes = 1
	l := mustOpen(t, o, osDisk{})
	mustAppend(t, l, 1, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if files, err := Files(o.Path); err != nil || len(files) != 3 {
		t.Errorf("%v, %v; want 3 files", files, err)
	}
	if diff := cmp.Diff(ids(1, 3), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
}

// Numbers decide, also when they outgrow their width; a name may have no
// extension.
func TestFilesAreInOrder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.1000000", "a.999999", "a.000002", "a", "a.lock", "a.torn-7", "a.torn-7.2"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Files(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a.000002", "a.999999", "a.1000000", "a"}
	for i, name := range want {
		want[i] = filepath.Join(dir, name)
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if next, err := nextName(filepath.Join(dir, "a")); err != nil || filepath.Base(next) != "a.1000001" {
		t.Errorf("the next is %s, %v", next, err)
	}
	if _, err := Files(filepath.Join(dir, "none.jsonl")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
}

func TestWhatCannotBeALogIsRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(dir, "model.bin")
	if err := os.WriteFile(model, make([]byte, maxTail+2*tailStep), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		o    Options
		want []string
	}{
		{"no name", Options{}, []string{"no name"}},
		{"no folder", Options{Path: filepath.Join(dir, "no", "r")}, []string{"its folder", "no such file"}},
		{"a folder", Options{Path: dir}, []string{"not a regular file"}},
		{"a device", Options{Path: os.DevNull}, []string{"not a regular file"}},
		{"a link", Options{Path: link}, []string{"not a regular file"}},
		{"no lines", Options{Path: model}, []string{"model.bin", "no file of records"}},
		{"two mistakes", Options{Path: filepath.Join(dir, "r"), Sync: "never", MaxBytes: -1}, []string{`"never"`, "-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.o)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
	if info, err := os.Stat(model); err != nil || info.Size() != maxTail+2*tailStep {
		t.Errorf("the file without lines was touched: %v, %v", info, err)
	}
	if slices.Contains(names(t, model), "model.bin.lock") {
		t.Error("the lock file was left behind")
	}
}

func TestTwoServersCannotShareALog(t *testing.T) {
	o := place(t)
	o.MaxBytes = lineSize
	l := mustOpen(t, o, osDisk{})
	mustAppend(t, l, 1, 3) // a rotation does not free it
	_, err := Open(o)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("another server writes to it (pid %d since", os.Getpid())) {
		t.Fatalf("the second Open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o, osDisk{})
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(request(4)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Append after Close: %v", err)
	}
	if err := l.Failure(); err != nil {
		t.Errorf("Failure after Close: %v", err)
	}
}

func TestO13TornTail(t *testing.T) {
	whole := strings.Repeat(`{"schema":1,"request_id":"r0"}`+"\n", 3)
	var said bytes.Buffer
	for _, c := range []struct {
		name, content string
		kept, aside   string
	}{
		{"nothing", "", "", ""},
		{"whole", whole, whole, ""},
		{"half a record", whole + `{"metadata":{"x_req`, whole, `{"metadata":{"x_req`},
		{"half a character", whole + "{\"a\":\"\xe4\xb8", whole, "{\"a\":\"\xe4\xb8"},
		{"half of the only record", `{"schema"`, "", `{"schema"`},
		{"zeros, as a loss of power leaves them", whole + "\x00\x00", whole, "\x00\x00"},
		{"more than is read at a time", whole + strings.Repeat("x", 3*tailStep), whole, strings.Repeat("x", 3*tailStep)},
		{"only the newline lacks", whole + `{"request_id":"r1"}`, whole + `{"request_id":"r1"}` + "\n", ""},
		{"a number is no record", whole + "1", whole, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := place(t)
			said.Reset()
			o.Log = slog.New(slog.NewTextHandler(&said, nil))
			if err := os.WriteFile(o.Path, []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			l := mustOpen(t, o, osDisk{})
			mustAppend(t, l, 7, 7)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(o.Path)
			if err != nil {
				t.Fatal(err)
			}
			if kept, ok := strings.CutPrefix(string(data), c.kept); !ok || !strings.HasPrefix(kept, `{"schema":1,"request_id":"r7"`) {
				t.Errorf("the file is %q", data)
			}
			aside, err := os.ReadFile(fmt.Sprintf("%s.torn-%d", o.Path, len(c.kept)))
			if string(aside) != c.aside || (err == nil) != (c.aside != "") {
				t.Errorf("aside is %q (%v), want %q", aside, err, c.aside)
			}
			if c.aside != "" && !strings.Contains(said.String(), fmt.Sprintf("file=%s offset=%d bytes=%d", o.Path, len(c.kept), len(c.aside))) {
				t.Errorf("the log says %s", said.String())
			}
		})
	}
}

// Torn twice at one place, both tails are kept; an Open that was killed between
// saving the tail and cutting the file is not counted twice.
func TestTornTailsDoNotOverwriteEachOther(t *testing.T) {
	o := place(t)
	for _, tail := range []string{`{"a`, `{"b`, `{"b`, `{"a`} {
		if err := os.WriteFile(o.Path, []byte(tail), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := mustOpen(t, o, osDisk{}).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"records.jsonl", "records.jsonl.torn-0", "records.jsonl.torn-0.2"}, names(t, o.Path)); diff != "" {
		t.Error(diff)
	}
}

func TestSyncPolicies(t *testing.T) {
	for _, c := range []struct {
		policy         SyncPolicy
		written, ended int // syncs of the file after 5 records with one rotation, and after Close
	}{
		{"", 1, 2},
		{SyncClose, 1, 2},
		{SyncAlways, 5, 5},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			o := place(t)
			o.Sync, o.MaxBytes = c.policy, 3*lineSize
			d := &faulty{}
			l := mustOpen(t, o, d)
			mustAppend(t, l, 1, 5)
			if n := d.count("sync"); n != c.written {
				t.Errorf("%d syncs after the records, want %d", n, c.written)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if n := d.count("sync"); n != c.ended {
				t.Errorf("%d syncs after Close, want %d", n, c.ended)
			}
			i := slices.Index(d.ops, "rename")
			if i < 1 || d.ops[i-1] != "sync" && c.policy != SyncAlways || !slices.Equal(d.ops[i+1:i+4], []string{"close", "open", "syncdir"}) {
				t.Errorf("the rotation did %v", d.ops)
			}
		})
	}
}

func TestSyncInterval(t *testing.T) {
	o := place(t)
	o.Sync = SyncInterval
	synctest.Test(t, func(t *testing.T) {
		d := &faulty{}
		l := mustOpen(t, o, d)
		synced := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := d.count("sync"); n != want {
				t.Errorf("%d syncs, want %d", n, want)
			}
		}
		mustAppend(t, l, 1, 3)
		synced(0)
		time.Sleep(syncInterval)
		synced(1)
		time.Sleep(10 * syncInterval) // nothing to sync
		synced(1)
		mustAppend(t, l, 4, 4)
		time.Sleep(syncInterval)
		synced(2)
		mustAppend(t, l, 5, 5)
		if err := l.Close(); err != nil { // and no goroutine is left, or the bubble would complain
			t.Error(err)
		}
		synced(3)
	})
	if diff := cmp.Diff(ids(1, 5), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
}

func TestManyGoroutines(t *testing.T) {
	o := place(t)
	o.Sync, o.MaxBytes = SyncInterval, 10*lineSize
	l := mustOpen(t, o, osDisk{})
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				if err := errors.Join(l.Append(request(w*each+n)), l.Failure()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range each {
			l.syncBeside()
		}
	})
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var next [writers]int
	got := union(t, o.Path)
	for _, id := range got {
		var n int
		if _, err := fmt.Sscanf(id, "r%d", &n); err != nil {
			t.Fatal(err)
		}
		if w := n / each; next[w] != n%each {
			t.Fatalf("%s is out of order", id)
		}
		next[n/each]++
	}
	if len(got) != writers*each {
		t.Errorf("%d records, want %d", len(got), writers*each)
	}
}

// FuzzOpen cuts a file anywhere and opens it: whole lines stay, the rest is beside
// the log or, a record that only lacked its newline, completed.
func FuzzOpen(f *testing.F) {
	var good []byte
	for n := range 3 {
		line, err := json.Marshal(request(n))
		if err != nil {
			f.Fatal(err)
		}
		good = append(append(good, line...), '\n')
	}
	f.Add(good, uint(len(good)))
	f.Add(good, uint(len(good)-1))
	f.Add(good, uint(len(good)/2))
	f.Add([]byte("{}\n\n\r\n {}"), uint(9))
	f.Fuzz(func(t *testing.T, content []byte, cut uint) {
		content = content[:min(cut, uint(len(content)))]
		o := place(t)
		if err := os.WriteFile(o.Path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		l := mustOpen(t, o, &faulty{}) // which does not wait for the real one
		mustAppend(t, l, 1, 1)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		added, err := json.Marshal(request(1))
		if err != nil {
			t.Fatal(err)
		}
		end := bytes.LastIndexByte(content, '\n') + 1
		tail, _ := os.ReadFile(fmt.Sprintf("%s.torn-%d", o.Path, end))
		kept, ok := bytes.CutSuffix(got, append(added, '\n'))
		if completed := append(bytes.Clone(content), '\n'); ok && len(tail) == 0 && bytes.Equal(kept, completed) && json.Valid(content[end:]) {
			return
		}
		if !ok || !bytes.Equal(append(kept, tail...), content) || len(kept) != end {
			t.Fatalf("%q became %q, and aside %q", content, got, tail)
		}
	})
}
