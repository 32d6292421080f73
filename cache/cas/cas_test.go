package cas

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"pgregory.net/rapid"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestTreeComesBackAsItWas(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	write(t, filepath.Join(dir, "a/b/deep.txt"), "deep", 0o644)
	write(t, filepath.Join(dir, "run.sh"), "#!/bin/sh\n", 0o755)
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	ref, err := s.PutTree(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Complete(ref); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "copy")
	root, err := s.Lookup(ref, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Materialise(t.Context(), root, out); err != nil {
		t.Fatal(err)
	}
	again, err := s.PutTree(t.Context(), out)
	if err != nil || again != ref {
		t.Fatalf("the copy has tree %v, the original %v (%v)", again, ref, err)
	}
	deep, err := s.Lookup(ref, "a/b/deep.txt")
	if err != nil || deep.Digest != digest.FromString("deep") {
		t.Fatalf("Lookup = %+v, %v", deep, err)
	}
	for path, want := range map[string]string{"a/x": `no "a/x"`, "run.sh/x": "is a file"} {
		if _, err := s.Lookup(ref, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Lookup(%q): %v, want %q", path, err, want)
		}
	}
}

func TestOnlyFilesAndDirectoriesAreContent(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutTree(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "link is a L") {
		t.Fatalf("PutTree: %v", err)
	}
}

// damages are ways to spoil the blob of "content".
var damages = map[string]string{"truncated": "con", "flipped": "Content", "longer": "content and more", "empty": ""}

// spoil gives the file of a blob other bytes, and another time than it had.
func spoil(t *testing.T, s *Store, d digest.Digest, text string) {
	t.Helper()
	path := s.path(d)
	when := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, []byte(text), 0o644), os.Chtimes(path, when, when)); err != nil {
		t.Fatal(err)
	}
}

func mustPut(t *testing.T, s *Store, text string) Ref {
	t.Helper()
	ref, err := s.PutBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func mustHold(t *testing.T, s *Store, ref Ref, text string) {
	t.Helper()
	if data, err := s.Bytes(ref); err != nil || string(data) != text {
		t.Fatalf("the blob holds %q, want %q: %v", data, text, err)
	}
}

func quarantined(s *Store) []string {
	names, _ := filepath.Glob(filepath.Join(s.root, "quarantine", "*"))
	return names
}

func TestCorruptBlobIsAMissAndSetAside(t *testing.T) {
	for name, text := range damages {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			ref := mustPut(t, s, "content")
			mustHold(t, s, ref, "content") // known to be good, until the file changes
			spoil(t, s, ref.Digest, text)
			if _, err := s.Bytes(ref); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "corrupt") {
				t.Fatalf("Bytes: %v", err)
			}
			aside := filepath.Join(s.root, "quarantine", ref.Digest.Encoded())
			if data, err := os.ReadFile(aside); err != nil || string(data) != text {
				t.Fatalf("set aside: %q, %v", data, err)
			}
			reason, err := os.ReadFile(aside + ".reason")
			if err != nil || !strings.Contains(string(reason), digest.FromString(text).String()) {
				t.Fatalf("reason: %q, %v", reason, err)
			}
		})
	}
}

// Whoever has the right bytes mends the blob by putting them.
func TestPuttingMendsACorruptBlob(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "content", 0o644)
	for name, put := range map[string]func(s *Store) (Ref, error){
		"Put":      func(s *Store) (Ref, error) { return s.Put(t.Context(), strings.NewReader("content")) },
		"PutBytes": func(s *Store) (Ref, error) { return s.PutBytes([]byte("content")) },
		"PutFile":  func(s *Store) (Ref, error) { return s.PutFile(t.Context(), file) },
	} {
		for damage, text := range damages {
			for _, known := range []bool{false, true} {
				s := newStore(t)
				ref := mustPut(t, s, "content")
				if known {
					mustHold(t, s, ref, "content")
				}
				spoil(t, s, ref.Digest, text)
				if got, err := put(s); err != nil || got != ref {
					t.Fatalf("%s over a %s blob: %v, %v", name, damage, got, err)
				}
				mustHold(t, s, ref, "content")
			}
		}
	}
}

// A record with a wrong size must not cost the blob.
func TestWrongSizeInARecordLeavesTheBlob(t *testing.T) {
	s := newStore(t)
	ref := mustPut(t, s, "content")
	tree, err := s.PutTreeBlob(Tree{Entries: []Entry{{Name: "f", Type: "file", Digest: ref.Digest, Size: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	wrong := Ref{ref.Digest, 3}
	for name, access := range map[string]func() error{
		"Bytes":    func() error { _, err := s.Bytes(wrong); return err },
		"Open":     func() error { _, err := s.Open(wrong); return err },
		"Tree":     func() error { _, err := s.Tree(wrong); return err },
		"Complete": func() error { return s.Complete(tree) },
		"Materialise": func() error {
			return s.Materialise(t.Context(), Entry{Type: "dir", Digest: tree.Digest, Size: tree.Size}, filepath.Join(t.TempDir(), "x"))
		},
	} {
		err := access()
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "7 bytes, its record says 3") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if aside := quarantined(s); aside != nil {
		t.Fatalf("set aside: %q", aside)
	}
	mustHold(t, s, ref, "content")

	// If the bytes are wrong too, the blob is.
	spoil(t, s, ref.Digest, "cont")
	if err := s.Complete(tree); !errors.Is(err, ErrMissing) || len(quarantined(s)) != 2 {
		t.Fatalf("Complete: %v; set aside: %q", err, quarantined(s))
	}
}

// A large blob that does not change is hashed once by a process: what its stamps
// do not show, it does not see. The next process does.
func TestUnchangedBlobIsHashedOnce(t *testing.T) {
	s := newStore(t)
	ref := mustPut(t, s, "content")
	mustHold(t, s, ref, "content")
	path := s.path(ref.Digest)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	spoil(t, s, ref.Digest, "CONTENT")
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		mustHold(t, s, ref, "CONTENT")
		mustPut(t, s, "content")
	}
	next, err := Open(s.root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := next.Bytes(ref); !errors.Is(err, ErrMissing) {
		t.Fatalf("the next process: %v", err)
	}
}

// A file that another process mended while this one found it corrupt stays.
func TestQuarantineTakesTheCorruptFileOnly(t *testing.T) {
	s := newStore(t)
	ref := mustPut(t, s, "content")
	spoil(t, s, ref.Digest, "Content")
	corrupt, err := os.Stat(s.path(ref.Digest))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is gone
		if err := s.quarantine(ref.Digest, corrupt, "test"); !errors.Is(err, ErrMissing) {
			t.Fatal(err)
		}
	}
	mustPut(t, s, "content")
	if err := s.quarantine(ref.Digest, corrupt, "test"); !errors.Is(err, ErrMissing) {
		t.Fatal(err)
	}
	mustHold(t, s, ref, "content")
}

func TestPresentContentIsNotCopied(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	write(t, filepath.Join(dir, "file"), "content", 0o644)
	if _, err := s.PutTree(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	// A temporary file would show in the time of its directory.
	incoming, when := filepath.Join(s.root, "sha256"), time.Unix(1, 0)
	if err := os.Chtimes(incoming, when, when); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutTree(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(incoming); err != nil || !info.ModTime().Equal(when) {
		t.Fatalf("wrote to the store at %v, %v", info.ModTime(), err)
	}
}

// turncoat is a file that changes while it is read: each pass gives other bytes.
type turncoat struct {
	passes []string
	*strings.Reader
}

func (r *turncoat) Seek(int64, int) (int64, error) {
	r.Reader = strings.NewReader(r.passes[0])
	r.passes = r.passes[1:]
	return 0, nil
}

func TestFileThatChangesIsStoredAsWhatWasCopied(t *testing.T) {
	s := newStore(t)
	ref, err := s.putSeeker(t.Context(), &turncoat{[]string{"after"}, strings.NewReader("before")})
	if err != nil || ref.Digest != digest.FromString("after") {
		t.Fatalf("putSeeker = %v, %v", ref, err)
	}
	mustHold(t, s, ref, "after")
	if _, err := s.Bytes(Ref{digest.FromString("before"), 6}); !errors.Is(err, ErrMissing) {
		t.Fatalf("before: %v", err)
	}
}

// ending is a context that ends after its error was asked for some times, that
// is, in the middle of a copy.
type ending struct {
	context.Context
	left int
}

func (c *ending) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestLongCopiesEndWithTheirContext(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	large := strings.Repeat("x", 1<<20)
	file := filepath.Join(dir, "large")
	write(t, file, large, 0o644)
	for name, do := range map[string]func(ctx context.Context) error{
		"Put":     func(ctx context.Context) error { _, err := s.Put(ctx, strings.NewReader(large)); return err },
		"PutFile": func(ctx context.Context) error { _, err := s.PutFile(ctx, file); return err },
		"PutTree": func(ctx context.Context) error { _, err := s.PutTree(ctx, dir); return err },
	} {
		if err := do(&ending{t.Context(), 5}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for ref, err := range s.All() {
		t.Errorf("stored %v, %v", ref, err)
	}
	ref := mustPut(t, s, large)
	if err := s.Verify(&ending{t.Context(), 5}, ref); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify: %v", err)
	}
	mustHold(t, s, ref, large) // not taken for corrupt
}

func TestNamesThatATreeCannotHold(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "caf\xe9"), nil, 0o644); err != nil {
		t.Skipf("the file system refuses the name itself: %v", err)
	}
	_, err := s.PutTree(t.Context(), dir)
	for _, want := range []string{dir, `caf\xe9`, "UTF-8"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("PutTree: %v, want %q", err, want)
		}
	}
}

func TestTreeBlobsAreCheckedBothWays(t *testing.T) {
	s := newStore(t)
	ref := mustPut(t, s, "x")
	file := func(name string) Entry { return Entry{Name: name, Type: "file", Digest: ref.Digest, Size: ref.Size} }
	with := func(change func(e *Entry)) []Entry {
		e := file("f")
		change(&e)
		return []Entry{e}
	}
	for name, test := range map[string]struct {
		entries []Entry
		want    string // part of the error; empty if there is none
	}{
		"none":              {nil, ""},
		"sorted":            {[]Entry{file("B"), file("a"), file("é")}, ""},
		"unsorted":          {[]Entry{file("b"), file("a")}, `"a" is out of order`},
		"twice":             {[]Entry{file("a"), file("a")}, `"a" is out of order`},
		"no name":           {[]Entry{file("")}, "not a file name"},
		"parent":            {[]Entry{file("..")}, "not a file name"},
		"path":              {[]Entry{file("a/b")}, "not a file name"},
		"no type":           {with(func(e *Entry) { e.Type = "" }), `has type ""`},
		"link":              {with(func(e *Entry) { e.Type = "link" }), `has type "link"`},
		"executable folder": {with(func(e *Entry) { e.Type, e.Executable = "dir", true }), "executable directory"},
		"no digest":         {with(func(e *Entry) { e.Digest = "" }), "invalid checksum"},
		"negative size":     {with(func(e *Entry) { e.Size = -1 }), "-1 is no size"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.PutTreeBlob(Tree{test.entries})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("PutTreeBlob: %v, want %q", err, test.want)
			}
			data, err := json.Marshal(Tree{test.entries})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Tree(mustPut(t, s, string(data)))
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("Tree: %v, want %q", err, test.want)
			}
		})
	}
	if _, err := s.PutTreeBlob(Tree{[]Entry{file("caf\xe9")}}); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("PutTreeBlob: %v", err)
	}
	empty, err := s.PutTree(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.PutTreeBlob(Tree{}); err != nil || got != empty {
		t.Errorf("the empty tree is %v, of a directory %v (%v)", got, empty, err)
	}
}

func TestNothingTemporaryStays(t *testing.T) {
	root := t.TempDir()
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	failing := errors.New("read failed")
	if _, err := s.Put(t.Context(), &failingReader{failing}); !errors.Is(err, failing) {
		t.Fatalf("Put: %v", err)
	}
	for range 2 { // the second is a duplicate
		if _, err := s.Put(t.Context(), strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".tmp-") {
			t.Errorf("%s was left behind", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

type failingReader struct{ err error }

func (r *failingReader) Read(p []byte) (int, error) { return 0, r.err }

func TestPutIsNamedByContent(t *testing.T) {
	s := newStore(t)
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		ref, err := s.PutBytes(data)
		if err != nil || ref.Digest != digest.FromBytes(data) || ref.Size != int64(len(data)) {
			t.Fatalf("PutBytes = %+v, %v", ref, err)
		}
		got, err := s.Bytes(ref)
		if err != nil || string(got) != string(data) {
			t.Fatalf("Bytes = %q, %v", got, err)
		}
	})
}

// FuzzTree: a tree blob is read from disk, so any bytes may stand there.
func FuzzTree(f *testing.F) {
	f.Add([]byte(`{"entries":[{"name":"a","type":"file","digest":"sha256:00","size":1}]}`))
	f.Add([]byte(`{"entries":[{"name":"a","type":"file","digest":"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881","size":1}]}`))
	f.Add([]byte(`{"entries":[{"name":"../x","type":"dir","digest":"","size":-1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := decodeTree(data)
		if err != nil {
			return
		}
		for _, e := range tree.Entries {
			if strings.ContainsAny(e.Name, "/") || e.Name == ".." {
				t.Fatalf("accepted the name %q", e.Name)
			}
		}
		// What is read can be written, and comes back as it is.
		again, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeTree(again); err != nil || !reflect.DeepEqual(back, tree) {
			t.Fatalf("%+v came back as %+v, %v", tree, back, err)
		}
	})
}
