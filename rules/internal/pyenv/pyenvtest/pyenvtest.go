// Package pyenvtest gives tests the Python environment of a lock.
package pyenvtest

import (
	"os"
	"path/filepath"
	"testing"

	"assay/engine/layout"
	"assay/rules/internal/lockfile"
	"assay/rules/internal/pyenv"
	"assay/rules/internal/rule"
)

// Environment makes the environment of a requirements file with hashes where Assay
// keeps the user's, so that it is downloaded once.
func Environment(t *testing.T, path string) pyenv.Env {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lockfile.Parse(path, data)
	if err != nil {
		t.Fatal(err)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache := layout.Dir(filepath.Join(user, "assay"))
	for _, folder := range []string{cache.Wheels(), cache.UVCache(), cache.Environments()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env, err := pyenv.Realise(t.Context(), rule.Host{
		Wheels: cache.Wheels(), UVCache: cache.UVCache(), Environments: cache.Environments(), Python: os.Getenv("ASSAY_PYTHON"),
	}, lock.Requirements(), func(what string) { t.Log(what) })
	if err != nil {
		t.Fatal(err)
	}
	return env
}
