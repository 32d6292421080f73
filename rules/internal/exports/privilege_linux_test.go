package exports_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutPrivilege has the test's thread open the files of dir as nobody, if it runs
// as root, who may read everything.
func withoutPrivilege(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // on the way to it
		t.Fatal(err)
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
		}
	})
}
