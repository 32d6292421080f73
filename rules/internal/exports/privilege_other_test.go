//go:build !linux

package exports_test

import (
	"os"
	"testing"
)

func withoutPrivilege(t *testing.T, _ string) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
}
