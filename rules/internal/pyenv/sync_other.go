//go:build !linux

package pyenv

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"assay/cache/durable"
)

// syncTree makes everything below dir durable, and dir's own name.
func syncTree(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() && !d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
	return errors.Join(err, durable.SyncDir(filepath.Dir(dir)))
}
