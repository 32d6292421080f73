package recordlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/cache/durable"
	"assay/engine/lock"
)

// file is what a log needs of an *os.File that is open for reading and
// appending.
type file interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// disk is what a log needs of the file system.
type disk interface {
	// open opens a file for reading and appending, makes it if it is absent, and
	// says how large it is.
	open(path string) (file, int64, error)
	rename(from, to string) error
	// syncDir makes the names in a file's folder durable.
	syncDir(path string) error
}

type osDisk struct{}

func (osDisk) open(path string) (file, int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }
func (osDisk) syncDir(path string) error    { return durable.SyncDir(filepath.Dir(path)) }

// usable says why a path cannot be a log's. A link would escape the lock, which
// goes by name; what is no regular file cannot be cut back.
func usable(path string) error {
	if path == "" {
		return errors.New("it has no name")
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("its folder: %w", err)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file (%s); name one, or one that is not there yet", path, info.Mode().Type())
	}
	return nil
}

// hold takes the lock of the log, or says who has it. The lock is on a file
// beside the log: the log's own would take it along when it is rotated.
func hold(path string) (release func(), err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	name := path + ".lock"
	unlock, err := lock.Acquire(ctx, name, "writes "+filepath.Base(path), func(holder string) {
		cancel(fmt.Errorf("another server writes to it (%s); stop that one, or name another file", holder))
	})
	if err != nil {
		return nil, err
	}
	return func() {
		os.Remove(name) // before the lock goes: whoever has taken it by then looks at the name again
		unlock()
	}, nil
}

// Files lists the files of the log with that path, the oldest first: those that
// were rotated, then the current one if it is there. If there are none the error
// is fs.ErrNotExist. While a server writes, a rotation may come between listing
// and reading.
func Files(path string) ([]string, error) {
	full, err := rotated(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range full {
		files = append(files, f.path)
	}
	switch _, err := os.Lstat(path); {
	case err == nil:
		files = append(files, path)
	case !errors.Is(err, fs.ErrNotExist) || len(files) == 0:
		return nil, err
	}
	return files, nil
}

// numbered is a file that was rotated.
type numbered struct {
	path   string
	number int // from 1
}

// digits is the least width of a number in a name.
const digits = 6

// rotated lists the files of a log that have a number: a.jsonl becomes
// a.000001.jsonl. So the names sort by age, the current one last.
func rotated(path string) ([]numbered, error) {
	dir, ext := filepath.Dir(path), filepath.Ext(path)
	stem := strings.TrimSuffix(filepath.Base(path), ext) + "."
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []numbered
	for _, e := range entries {
		rest, starts := strings.CutPrefix(e.Name(), stem)
		number, ends := strings.CutSuffix(rest, ext)
		if n, err := strconv.ParseUint(number, 10, 31); starts && ends && err == nil && len(number) >= digits {
			found = append(found, numbered{filepath.Join(dir, e.Name()), int(n)})
		}
	}
	slices.SortFunc(found, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	return found, nil
}

// nextName is the name that the current file gets when it is rotated. It looks
// at the folder, so it never is one that is taken.
func nextName(path string) (string, error) {
	found, err := rotated(path)
	if err != nil {
		return "", err
	}
	n := 1
	if len(found) > 0 {
		n = found[len(found)-1].number + 1
	}
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s.%0*d%s", strings.TrimSuffix(path, ext), digits, n, ext), nil
}
