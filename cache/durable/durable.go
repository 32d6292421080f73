// Package durable writes files so that a crash leaves either the old content or
// the new one, never a part: temporary file in the same directory, fsync,
// rename, fsync of the directory.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
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
	if err := MkdirAll(dir, 0o755); err != nil {
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

// MkdirAll is os.MkdirAll, and makes the name of each directory that it made
// durable: a file is no safer than the directories above it.
func MkdirAll(path string, perm fs.FileMode) error {
	return mkdirAll(filepath.Clean(path), perm, SyncDir)
}

func mkdirAll(path string, perm fs.FileMode, syncDir func(string) error) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(path)
	if parent == path {
		return err
	}
	if err := mkdirAll(parent, perm, syncDir); err != nil {
		return err
	}
	// Where another process was faster, both make the name durable.
	if err := os.Mkdir(path, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
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
