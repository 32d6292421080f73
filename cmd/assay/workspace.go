package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"assay/engine"
	"assay/engine/action"
	"assay/rules"
	"assay/starlark/graph"
	"assay/starlark/interp"
)

var errNoWorkspace = errors.New("no " + interp.WorkspaceFile + " here or in a parent folder; it marks the root of a workspace")

// workspace is the folder with the stages, and where the caller stands in it.
type workspace struct {
	root string // absolute
	pkg  string // of the current folder
}

func findWorkspace() (*workspace, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	// $PWD may hold ".." and links; the folder's own name is also what history
	// goes by.
	start, err := filepath.EvalSymlinks(here)
	if err != nil {
		return nil, err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, interp.WorkspaceFile)); err == nil {
			pkg, err := filepath.Rel(dir, start)
			if err != nil {
				return nil, err
			}
			if pkg == "." {
				pkg = ""
			}
			return &workspace{root: dir, pkg: filepath.ToSlash(pkg)}, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if dir == filepath.Dir(dir) {
			return nil, fmt.Errorf("%s: %w", start, errNoWorkspace)
		}
	}
}

// source reads a file of the workspace for an excerpt.
func (w *workspace) source(file string) ([]byte, error) {
	if w == nil {
		return nil, fs.ErrNotExist
	}
	return os.ReadFile(filepath.Join(w.root, filepath.FromSlash(file)))
}

// load evaluates the stages that the patterns need and analyses the wanted
// targets and what they depend on.
func (a *app) load(ctx context.Context, args []string) ([]*action.Action, []graph.Label, error) {
	w, err := findWorkspace()
	if err != nil {
		return nil, nil, err
	}
	a.workspace = w
	var patterns []graph.Pattern
	for _, arg := range args {
		p, err := graph.ParsePattern(arg, w.pkg)
		if err != nil {
			return nil, nil, usageError{err}
		}
		patterns = append(patterns, p)
	}
	g, err := a.graph(ctx, patterns)
	if err != nil {
		return nil, nil, err
	}
	wanted, err := g.Match(patterns)
	if err != nil {
		return nil, nil, err
	}
	cache, err := a.cacheDir()
	if err != nil {
		return nil, nil, err
	}
	actions, err := rules.Analyze(w.root, g, wanted, a.host(cache))
	return actions, wanted, err
}

// graph evaluates the stages of the workspace that the patterns need.
func (a *app) graph(ctx context.Context, patterns []graph.Pattern) (*graph.Graph, error) {
	var g *graph.Graph
	err := a.withWorkspace(func(o interp.Options) (err error) {
		g, err = interp.Load(ctx, o, patterns)
		return err
	})
	return g, err
}

func (a *app) host(cache string) rules.Host {
	return rules.Host{
		Wheels:       filepath.Join(cache, "download", "wheels"),
		UVCache:      filepath.Join(cache, "download", "uv"),
		Environments: filepath.Join(cache, "env"),
		Python:       a.env("ASSAY_PYTHON"),
	}
}

func (a *app) engine(replay bool) (*engine.Engine, error) {
	cache, err := a.cacheDir()
	if err != nil {
		return nil, err
	}
	return engine.Open(engine.Options{
		Cache: cache, Workspace: a.workspace.root, Replay: replay, MachineLock: a.env("ASSAY_MACHINE_LOCK"),
	})
}

// cacheDir is ASSAY_CACHE or a folder of the user's cache directory.
func (a *app) cacheDir() (string, error) {
	if dir := a.env("ASSAY_CACHE"); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", usageError{fmt.Errorf("ASSAY_CACHE=%q: the cache directory must be absolute", dir)}
		}
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: %w; set ASSAY_CACHE", err)
	}
	return filepath.Join(dir, "assay"), nil
}
