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
	d := Open(cache)
	d.known[file] = planted
	if got, err := d.Digest(file); err != nil || got != planted.Digest {
		t.Fatalf("read the file again: %s, %v", got, err)
	}
	planted.Inode++
	d.known[file] = planted
	if got, err := d.Digest(file); err != nil || got != digest.FromString("two") {
		t.Fatalf("trusted another inode: %s, %v", got, err)
	}
}

// The age of a file counts from before its stamps were taken. A clock that writes
// to the file shows when it is asked.
func TestAgeIsTakenBeforeTheFileIsRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "src")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	d := Open(filepath.Join(dir, "files.json"))
	asked := 0
	d.now = func() time.Time {
		asked++
		write("changed")
		return time.Now().Add(time.Hour) // everything is settled
	}
	got, err := d.Digest(file)
	if err != nil || asked != 1 {
		t.Fatalf("asked %d times, %v", asked, err)
	}
	if got != digest.FromString("changed") {
		t.Fatal("the clock was asked after the file was read")
	}
	if stamp, ok := d.known[file]; !ok || stamp.Size != int64(len("changed")) {
		t.Fatalf("the clock was asked after the stamps were taken: %+v", stamp)
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
