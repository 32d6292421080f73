package cas

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

func TestCorruptBlobIsAMissAndSetAside(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 2) },
		"flipped": func(path string) error {
			os.Chmod(path, 0o644)
			return os.WriteFile(path, []byte("Content"), 0o444)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s, err := Open(root)
			if err != nil {
				t.Fatal(err)
			}
			ref, err := s.PutBytes([]byte("content"))
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(s.path(ref.Digest)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Bytes(ref); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "corrupt") {
				t.Fatalf("Bytes: %v", err)
			}
			reason, err := os.ReadFile(filepath.Join(root, "quarantine", ref.Digest.Encoded()+".reason"))
			if err != nil || len(reason) == 0 {
				t.Fatalf("reason: %q, %v", reason, err)
			}
			// The producer can put it back.
			if _, err := s.PutBytes([]byte("content")); err != nil {
				t.Fatal(err)
			}
			if data, err := s.Bytes(ref); string(data) != "content" {
				t.Fatalf("after repair: %q, %v", data, err)
			}
		})
	}
}

func TestNothingTemporaryStays(t *testing.T) {
	root := t.TempDir()
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	failing := errors.New("read failed")
	if _, err := s.Put(&failingReader{failing}); !errors.Is(err, failing) {
		t.Fatalf("Put: %v", err)
	}
	for range 2 { // the second is a duplicate
		if _, err := s.Put(strings.NewReader("x")); err != nil {
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
	f.Add([]byte(`{"entries":[{"name":"../x","type":"dir","digest":"","size":-1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newStore(t)
		ref, err := s.PutBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := s.Tree(ref)
		if err != nil {
			return
		}
		for _, e := range tree.Entries {
			if strings.ContainsAny(e.Name, "/") || e.Name == ".." {
				t.Fatalf("accepted the name %q", e.Name)
			}
		}
		_ = s.Complete(ref)
	})
}
