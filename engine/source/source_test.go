package source

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

func TestUnchangedFileIsNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	cache, file := filepath.Join(dir, "files.json"), filepath.Join(dir, "src")
	write := func(text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(file, when, when); err != nil {
			t.Fatal(err)
		}
	}
	digestOf := func() digest.Digest {
		t.Helper()
		d := Open(cache)
		got, err := d.Digest(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Save(); err != nil {
			t.Fatal(err)
		}
		return got
	}
	write("one", time.Hour)
	if got := digestOf(); got != digest.FromString("one") {
		t.Fatalf("digest %s", got)
	}
	// The ctime is now, so the stamps are not trusted yet: the cache is empty.
	if _, err := os.Stat(cache); err == nil {
		t.Fatal("a file that was changed a moment ago went into the stat cache")
	}
	// Same size, same times as far as a careless tool can tell; the content counts.
	write("two", time.Hour)
	if got := digestOf(); got != digest.FromString("two") {
		t.Fatalf("digest %s", got)
	}

	// A settled stamp is trusted: planted here, since a test should not wait.
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	planted := newStamp(info)
	planted.Digest = digest.FromString("planted")
	d := &Digester{path: cache, known: map[string]stamp{file: planted}}
	if got, err := d.Digest(file); err != nil || got != planted.Digest {
		t.Fatalf("read the file again: %s, %v", got, err)
	}
	planted.Inode++
	d.known[file] = planted
	if got, err := d.Digest(file); err != nil || got != digest.FromString("two") {
		t.Fatalf("trusted another inode: %s, %v", got, err)
	}
}

func TestBrokenStatCacheIsEmpty(t *testing.T) {
	dir := t.TempDir()
	cache := filepath.Join(dir, "files.json")
	for _, text := range []string{"", "null", "[]", `{"x":1`} {
		if err := os.WriteFile(cache, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(cache).Digest(cache); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Open(cache).Digest(dir); err == nil {
		t.Error("digested a directory")
	}
}
