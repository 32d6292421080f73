// Package durable writes files so that a crash leaves either the old content or
// the new one, never a part: temporary file in the same directory, fsync,
// rename, fsync of the directory.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// TempPrefix starts the name of every temporary file this package makes, so
// that what a killed process left behind can be told from data.
const TempPrefix = ".tmp-"

// WriteFile replaces the file at path with data.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	f, err := Create(path, perm)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit(path)
}

// A File is written beside its destination and takes its name on Commit.
type File struct {
	*os.File
	perm fs.FileMode
	done bool
}

// Create opens a temporary file in the directory of path, which it makes if needed.
func Create(path string, perm fs.FileMode) (*File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, TempPrefix+"*")
	if err != nil {
		return nil, err
	}
	return &File{File: f, perm: perm}, nil
}

// Commit makes the file durable under the name path.
func (f *File) Commit(path string) error {
	if f.done {
		return errors.New("durable: file was already committed or discarded")
	}
	if err := f.Chmod(f.perm); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("fsync %s: %w", f.Name(), err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	f.done = true
	return SyncDir(filepath.Dir(path))
}

// Discard removes the temporary file unless it was committed.
func (f *File) Discard() {
	if f.done {
		return
	}
	f.done = true
	f.Close()
	os.Remove(f.Name())
}

// Copy writes all of r to path and returns the number of bytes.
func Copy(path string, r io.Reader, perm fs.FileMode) (int64, error) {
	f, err := Create(path, perm)
	if err != nil {
		return 0, err
	}
	defer f.Discard()
	n, err := io.Copy(f, r)
	if err != nil {
		return n, err
	}
	return n, f.Commit(path)
}

// SyncDir makes the names in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("fsync %s: %w", dir, err)
	}
	return nil
}
