package recordlog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// A file system that really is full, and then is not.
func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("to mount a small file system needs more rights: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 40<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	o := place(t)
	o.Path = filepath.Join(dir, "records.jsonl")
	o.MaxBytes = 8 << 10
	l := mustOpen(t, o, osDisk{})
	last, refused := 0, 0
	for refused < 20 {
		last++
		if last > 10_000 {
			t.Fatal("it never got full")
		}
		if err := l.Append(request(last)); err != nil {
			refused++
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("Append: %v", err)
			}
		}
	}
	// A reader sees whole lines, up to the one that found no space.
	if diff := cmp.Diff(ids(1, last-refused), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
	if err := l.Failure(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Failure: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := l.Failure(); err != nil {
		t.Errorf("there is space again: %v", err)
	}
	mustAppend(t, l, last+1, last+10)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(ids(1, last+10), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
}
