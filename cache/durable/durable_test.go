package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// names lists dir, so that a test sees what else is there.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestWriteFileReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "deep", "file")
	for _, text := range []string{"old", "new"} {
		if err := WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != text {
			t.Fatalf("read %q, want %q", got, text)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{"file"}) {
		t.Fatalf("left beside the file: %q", got)
	}
}

func TestCommitHappensOnce(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	f, err := Create(first, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(first); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(second); err == nil {
		t.Fatal("committed twice")
	}
	f.Discard() // as the deferred call of every caller does
	if got := names(t, dir); !slices.Equal(got, []string{"first"}) || read(t, first) != "text" {
		t.Fatalf("there are %q", got)
	}
}

func TestDiscardRemoves(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	f, err := Create(path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 1 || !strings.HasPrefix(got[0], TempPrefix) {
		t.Fatalf("the temporary file is among %q", got)
	}
	f.Discard()
	f.Discard()
	if got := names(t, dir); len(got) > 0 {
		t.Fatalf("left behind: %q", got)
	}
	if err := f.Commit(path); err == nil {
		t.Fatal("committed what was discarded")
	}
}

func TestFailedWriteLeavesTheOldContent(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, path string) error{
		"the writer gives up": func(t *testing.T, path string) error {
			f, err := Create(path, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Discard()
			if _, err := f.WriteString("half"); err != nil {
				t.Fatal(err)
			}
			return errors.New("gave up")
		},
		"the file cannot be made durable": func(t *testing.T, path string) error {
			f, err := Create(path, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Discard()
			f.Close()
			return f.Commit(path)
		},
		"the name is taken by a directory": func(t *testing.T, path string) error {
			return WriteFile(filepath.Dir(path), []byte("x"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "dir", "file")
			if err := WriteFile(path, []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := fail(t, path); err == nil {
				t.Fatal("no error")
			}
			if got := read(t, path); got != "old" {
				t.Fatalf("the content is %q", got)
			}
			if got := append(names(t, root), names(t, filepath.Dir(path))...); !slices.Equal(got, []string{"dir", "file"}) {
				t.Fatalf("there are %q", got)
			}
		})
	}
}

func TestEveryExtendedDirectoryIsSynced(t *testing.T) {
	root := t.TempDir()
	var synced []string
	record := func(dir string) error {
		synced = append(synced, dir)
		return nil
	}
	path := filepath.Join(root, "a", "b", "c")
	if err := mkdirAll(path, 0o755, record); err != nil {
		t.Fatal(err)
	}
	if want := []string{root, filepath.Join(root, "a"), filepath.Join(root, "a", "b")}; !slices.Equal(synced, want) {
		t.Fatalf("synced %q, want %q", synced, want)
	}
	synced = nil
	if err := mkdirAll(path, 0o755, record); err != nil || synced != nil {
		t.Fatalf("synced %q for nothing: %v", synced, err)
	}

	failing := errors.New("no")
	if err := mkdirAll(filepath.Join(root, "d"), 0o755, func(string) error { return failing }); !errors.Is(err, failing) {
		t.Fatalf("a failed sync: %v", err)
	}
	if err := MkdirAll(filepath.Join(root, "e")+"/", 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "file")
	if err := WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "x"), file + "/"} {
		var path *fs.PathError
		if err := MkdirAll(bad, 0o755); !errors.As(err, &path) {
			t.Errorf("MkdirAll(%s): %v", bad, err)
		}
	}
}
