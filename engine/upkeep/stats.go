// Package upkeep measures, checks and cleans a cache directory.
package upkeep

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"assay/engine/layout"
)

// Usage is how much one kind of content takes.
type Usage struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	Of    string `json:"of"` // what is counted
	Bytes int64  `json:"bytes"`
}

// Stats measures the cache directory by kind. Files that share storage count
// each.
func Stats(ctx context.Context, dir layout.Dir) ([]Usage, error) {
	var stats []Usage
	add := func(kind, of, root string, folders bool) error {
		u := Usage{Kind: kind, Of: of}
		root, err := filepath.EvalSymlinks(root)
		if err == nil {
			err = measure(ctx, root, folders, &u)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		stats = append(stats, u)
		return nil
	}
	err := errors.Join(
		add("blobs", "files", filepath.Join(dir.Content(), "sha256"), false),
		add("set aside", "files", filepath.Join(dir.Content(), "quarantine"), false),
		add("results", "records", filepath.Join(dir.Records(), "results"), false),
		add("samples", "records", filepath.Join(dir.Records(), "samples"), false),
		add("environments", "environments", dir.Environments(), true),
		add("wheels", "wheels", dir.Wheels(), true),
		add("uv's cache", "files", dir.UVCache(), false),
		add("history", "checkouts", dir.History(), true),
		add("logs", "builds", dir.Logs(), true),
		add("work", "builds", dir.Work(), true),
	)
	return stats, err
}

// measure adds up the files below root; it counts them, or the folders of root.
func measure(ctx context.Context, root string, folders bool, u *Usage) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist) && path != root:
			return nil // removed meanwhile
		case err != nil:
			return err
		case d.IsDir():
			if folders && path != root && filepath.Dir(path) == root {
				u.Count++
			}
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !folders {
			u.Count++
		}
		if info.Mode().IsRegular() {
			u.Bytes += info.Size()
		}
		return nil
	})
}
