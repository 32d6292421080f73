package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/ac"
	"assay/cache/cas"
	"assay/cache/durable"
	"assay/cache/gc"
	"assay/engine/event"
	"assay/engine/history"
	"assay/engine/journal"
	"assay/engine/layout"
	"assay/engine/lock"
)

// Policy says what Collect keeps besides samples, receipts and what the checkouts
// remember.
type Policy struct {
	// Builds is how many of the last builds keep their logs and their results.
	Builds int
	// Since keeps results made at that time or later; the zero time keeps all.
	Since time.Time
	// DryRun removes nothing.
	DryRun bool
	// Waiting, if set, is called once if builds use the cache; they end first.
	Waiting func()
}

// Collected is what Collect removed, or would remove.
type Collected struct {
	Blobs, Results, Logs, Files int
	Bytes                       int64
	// Cost is how long it took to make the results.
	Cost time.Duration
	// Broken are records of which something was missing already.
	Broken []error
}

// Collect removes what nothing refers to: results that no checkout and none of
// the last builds used, blobs that no record names, what killed writers left,
// corrupt entries that were set aside, locks that nobody holds, old logs. It
// waits until no build uses the cache, and keeps new ones waiting meanwhile.
func Collect(ctx context.Context, dir layout.Dir, p Policy) (*Collected, error) {
	mode := lock.Exclusive
	if p.DryRun {
		mode = lock.Shared
	}
	release, err := lock.AcquireMode(ctx, dir.InUse(), mode, "assay cache gc", func(string) {
		if p.Waiting != nil {
			p.Waiting()
		}
	})
	if err != nil {
		return nil, err
	}
	defer release()
	blobs, err := cas.Open(dir.Content())
	if err != nil {
		return nil, err
	}
	results := ac.Open(dir.Records())
	names, err := journal.Names(dir.Logs())
	if err != nil {
		return nil, err
	}
	kept := min(p.Builds, len(names))
	roots, err := rootsOf(dir, names[:kept])
	if err != nil {
		return nil, err
	}
	roots.Since = p.Since
	garbage, err := gc.Find(ctx, blobs, results, roots)
	if err != nil {
		return nil, err
	}
	stale, err := staleFiles(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names[kept:] {
		stale.logs = append(stale.logs, filepath.Join(dir.Logs(), name))
	}
	c := &Collected{
		Blobs: len(garbage.Blobs), Results: len(garbage.Results), Logs: len(stale.logs), Files: len(stale.files),
		Bytes: garbage.Bytes() + stale.bytes, Cost: garbage.Cost(), Broken: garbage.Broken,
	}
	for _, log := range stale.logs {
		var u Usage
		if err := measure(ctx, log, false, &u); err != nil {
			return nil, err
		}
		c.Bytes += u.Bytes
	}
	if p.DryRun {
		return c, nil
	}
	return c, errors.Join(garbage.Remove(ctx, blobs, results), stale.remove(ctx))
}

// rootsOf collects what the checkouts remember and what the builds used.
func rootsOf(dir layout.Dir, builds []string) (gc.Roots, error) {
	roots := gc.Roots{Keys: map[digest.Digest]bool{}}
	checkouts, err := os.ReadDir(dir.History())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return roots, err
	}
	for _, de := range checkouts {
		entries, err := history.Open(filepath.Join(dir.History(), de.Name())).All()
		if err != nil {
			return roots, err
		}
		for _, e := range entries {
			roots.Keys[e.Key] = true
			roots.Trees = append(roots.Trees, e.Output)
			roots.Blobs = append(roots.Blobs, e.Preimage)
		}
	}
	for _, name := range builds {
		b, err := journal.Read(dir.Logs(), name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it holds the log of a failed verification, which used nothing
		}
		if err != nil {
			return roots, fmt.Errorf("%w; what this build used is not known, so nothing is removed: repair or delete the log", err)
		}
		for _, e := range b.Events {
			if e.Kind == event.Finished && e.Key != "" {
				roots.Keys[e.Key] = true
			}
		}
	}
	return roots, nil
}

// stale is what is no content of the stores.
type stale struct {
	files []string
	bytes int64 // of the files
	logs  []string
}

// staleFiles finds the temporary files of killed writers, entries that were set
// aside, and lock files. Nobody writes to the stores meanwhile; Python environments
// and downloads are left alone, apart from their locks.
func staleFiles(ctx context.Context, dir layout.Dir) (*stale, error) {
	s := &stale{}
	add := func(root string, is func(path string) bool) error {
		return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.IsDir() || !is(path):
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			s.files = append(s.files, path)
			s.bytes += info.Size()
			return nil
		})
	}
	temporary := func(path string) bool { return strings.HasPrefix(filepath.Base(path), durable.TempPrefix) }
	free := func(path string) bool {
		release, ok := lock.Try(path)
		if ok {
			release()
		}
		return ok
	}
	return s, errors.Join(
		add(filepath.Join(dir.Content(), "sha256"), temporary),
		add(filepath.Join(dir.Content(), "quarantine"), func(string) bool { return true }),
		add(dir.Records(), func(path string) bool { return temporary(path) || strings.HasSuffix(path, ".corrupt") }),
		add(dir.History(), temporary),
		add(dir.Locks(), free),
	)
}

func (s *stale) remove(ctx context.Context) error {
	for _, path := range append(s.files, s.logs...) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
