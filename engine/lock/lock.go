// Package lock holds kernel locks (flock) on files. The lock is never the
// existence of a file: when its holder dies, the kernel frees it.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// poll is how often a waiter tries again; flock itself cannot be cancelled.
const poll = 50 * time.Millisecond

// Mode says whether a lock excludes everybody or only exclusive holders.
type Mode int

const (
	Exclusive Mode = unix.LOCK_EX
	Shared    Mode = unix.LOCK_SH
)

// Acquire takes the exclusive lock on the file at path, making it if needed.
// While another process holds it, waiting is called once with what the holder
// wrote about itself. The lock is held until release is called.
func Acquire(ctx context.Context, path, holder string, waiting func(holder string)) (release func(), err error) {
	return AcquireMode(ctx, path, Exclusive, holder, waiting)
}

// AcquireMode is Acquire for a lock that may be shared.
func AcquireMode(ctx context.Context, path string, mode Mode, holder string, waiting func(holder string)) (release func(), err error) {
	told := false
	for {
		f, err := take(path, mode)
		if err != nil {
			return nil, err
		}
		if f != nil {
			// The content only informs people; a failure to write it changes nothing.
			if f.Truncate(0) == nil {
				fmt.Fprintf(f, "pid %d since %s: %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339), holder)
			}
			return func() { f.Close() }, nil
		}
		if !told && waiting != nil {
			waiting(readHolder(path))
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// Try takes the lock if it is free.
func Try(path string) (release func(), ok bool) {
	f, err := take(path, Exclusive)
	if err != nil || f == nil {
		return nil, false
	}
	return func() { f.Close() }, true
}

// take returns the locked file, or nil if another process holds the lock in a
// way that excludes this one.
func take(path string, mode Mode) (*os.File, error) {
	for {
		f, err := open(path)
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		switch err := unix.Flock(int(f.Fd()), int(mode)|unix.LOCK_NB); {
		case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EINTR):
			return nil, f.Close()
		case err != nil:
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// A holder may have removed the file before it let go; what we locked is
		// then no longer what others will open.
		mine, err := f.Stat()
		if err == nil {
			if theirs, statErr := os.Stat(path); statErr == nil && os.SameFile(mine, theirs) {
				return f, nil
			}
		}
		f.Close()
	}
}

func open(path string) (*os.File, error) {
	// Without O_CREATE first: a sticky directory may forbid creating what
	// another user owns there, though opening it is allowed.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		return os.Open(path) // another user's; to lock it, reading is enough
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
}

func readHolder(path string) string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return "another process"
	}
	return strings.TrimSpace(string(data))
}
