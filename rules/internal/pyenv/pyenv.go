// Package pyenv makes Python environments from locks. An environment is
// disposable: it is named by everything that went into it and made again, without
// a network once uv's cache has the wheels. uv itself comes out of its own wheel,
// pinned by hash, so nothing needs to be installed on the machine but Python.
package pyenv

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/durable"
	"assay/engine/lock"
	"assay/engine/supervise"
	"assay/rules/internal/lockfile"
	"assay/rules/internal/rule"
	"assay/rules/internal/wheel"
)

//go:embed uv.txt
var uvLock []byte

// UVVersion is the pinned version of uv; it is a component of keys.
var UVVersion = func() string {
	l, err := lockfile.Parse("uv.txt", uvLock)
	if err != nil {
		panic(err) // the file is part of this program
	}
	return l.Packages[0].Version
}()

// Interpreter is the Python that environments are based on. It is observed, not
// part of a lock's identity.
type Interpreter struct {
	Executable     string `json:"executable"`
	Version        string `json:"version"`
	Implementation string `json:"implementation"`
	Platform       string `json:"platform"` // sysconfig.get_platform()
}

const probe = `import json, platform, sys, sysconfig
print(json.dumps(dict(executable=sys.executable, version=platform.python_version(),
  implementation=platform.python_implementation(), platform=sysconfig.get_platform())))`

// candidates are the names under which Python is looked for, best first.
var candidates = []string{"python3", "python3.13", "python3.12", "python3.11"}

// FindPython returns the interpreter named by configured, or the first on the
// path that is CPython 3.11 to 3.13. An error lists what was tried.
func FindPython(ctx context.Context, configured string) (Interpreter, error) {
	names := candidates
	if configured != "" {
		names = []string{configured}
	}
	var tried []error
	for _, name := range names {
		i, err := ask(ctx, name)
		switch {
		case ctx.Err() != nil:
			return Interpreter{}, context.Cause(ctx)
		case err == nil:
			return i, nil
		}
		tried = append(tried, err)
	}
	return Interpreter{}, fmt.Errorf("no CPython 3.11, 3.12 or 3.13 found; install one, or name it in ASSAY_PYTHON; tried:\n%w", errors.Join(tried...))
}

// ask returns what an interpreter says of itself, or why it cannot be used.
func ask(ctx context.Context, name string) (Interpreter, error) {
	cmd := exec.CommandContext(ctx, name, "-I", "-c", probe)
	cmd.WaitDelay = time.Second // for a pipe that a grandchild still holds
	out, err := cmd.Output()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return Interpreter{}, fmt.Errorf("%s: %w", name, err)
	}
	var i Interpreter
	if err := json.Unmarshal(out, &i); err != nil {
		return Interpreter{}, fmt.Errorf("%s: unexpected answer: %w", name, err)
	}
	var minor int
	if n, _ := fmt.Sscanf(i.Version, "3.%d.", &minor); n != 1 || minor < 11 || minor > 13 || i.Implementation != "CPython" {
		return Interpreter{}, fmt.Errorf("%s is %s %s", name, i.Implementation, i.Version)
	}
	return i, nil
}

// Env is an environment on this machine.
type Env struct {
	Dir         string
	Interpreter Interpreter
}

// Python is the environment's interpreter.
func (e Env) Python() string { return e.Bin("python") }

// Bin is the path of a program of the environment.
func (e Env) Bin(name string) string { return filepath.Join(e.Dir, "bin", name) }

// complete marks an environment that was made to the end and is durable.
const complete = ".complete"

// Realise returns the environment for the canonical requirements, making it if
// it is not there. It tries without a network first.
func Realise(ctx context.Context, h rule.Host, requirements []byte, progress func(string)) (Env, error) {
	return tools{findUV, syncTree}.realise(ctx, h, requirements, progress)
}

// tools are what environments are made with.
type tools struct {
	uv   func(context.Context, rule.Host, Interpreter, func(string)) (path string, err error)
	sync func(dir string) error
}

func (t tools) realise(ctx context.Context, h rule.Host, requirements []byte, progress func(string)) (Env, error) {
	py, err := FindPython(ctx, h.Python)
	if err != nil {
		return Env{}, err
	}
	name := digest.FromString(strings.Join([]string{
		"1", UVVersion, py.Executable, py.Implementation, py.Version, py.Platform, string(requirements),
	}, "\n")).Encoded()[:32]
	env := Env{Dir: filepath.Join(h.Environments, name), Interpreter: py}
	if exists(filepath.Join(env.Dir, complete)) {
		return env, nil
	}
	unlock, err := lock.Acquire(ctx, env.Dir+".lock", "python environment", func(holder string) { progress("waiting for " + holder) })
	if err != nil {
		return Env{}, err
	}
	defer unlock()
	if exists(filepath.Join(env.Dir, complete)) {
		return env, nil // made while we waited
	}
	if err := os.RemoveAll(env.Dir); err != nil {
		return Env{}, err
	}
	uv, err := t.uv(ctx, h, py, progress)
	if err != nil {
		return Env{}, err
	}
	if err := populate(ctx, h, uv, env, requirements, progress); err != nil {
		return Env{}, err
	}
	// The marker must not outlive, in a crash, what it vouches for.
	if err := t.sync(env.Dir); err != nil {
		return Env{}, fmt.Errorf("make the environment durable: %w", err)
	}
	return env, durable.WriteFile(filepath.Join(env.Dir, complete), nil, 0o644)
}

func populate(ctx context.Context, h rule.Host, uv string, env Env, requirements []byte, progress func(string)) error {
	// The programs name their interpreter by its path, which must not go through a
	// link that is somebody's alone.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(env.Dir)); err == nil {
		env.Dir = filepath.Join(dir, filepath.Base(env.Dir))
	}
	if out, err := runUV(ctx, h, uv, "venv", "--quiet", "--python", env.Interpreter.Executable, env.Dir); err != nil {
		return fmt.Errorf("make an environment: %w\n%s", err, out)
	}
	reqs := filepath.Join(env.Dir, "requirements.txt")
	if err := os.WriteFile(reqs, requirements, 0o644); err != nil {
		return err
	}
	install := []string{"pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--python", env.Python(), "-r", reqs}
	progress("installing from the local cache")
	if _, err := runUV(ctx, h, uv, append(install, "--offline")...); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		progress("downloading")
		if out, err := runUV(ctx, h, uv, install...); err != nil {
			return fmt.Errorf("install the lock's packages: %w\n%s", err, out)
		}
	}
	return nil
}

// findUV returns the uv binary, taken out of its wheel.
func findUV(ctx context.Context, h rule.Host, py Interpreter, progress func(string)) (string, error) {
	l, err := lockfile.Parse("uv.txt", uvLock)
	if err != nil {
		return "", err
	}
	pkg := l.Packages[0]
	path, sha, err := wheel.Fetch(ctx, py.Executable, h.Wheels, wheel.Requirement{Name: pkg.Name, Version: pkg.Version, Hashes: pkg.Hashes}, progress)
	if err != nil {
		return "", fmt.Errorf("fetch uv: %w", err)
	}
	bin := filepath.Join(h.Wheels, sha.Encoded(), "uv")
	if exists(bin) {
		return bin, nil
	}
	f, err := durable.Create(bin, 0o755)
	if err != nil {
		return "", err
	}
	defer f.Discard()
	if _, _, err := wheel.Extract(path, "uv-"+pkg.Version+".data/scripts/uv", f); err != nil {
		return "", err
	}
	return bin, f.Commit(bin)
}

// runUV runs uv on Assay's own cache. The user's index and proxy settings apply;
// hashes make the result the same wherever the bytes come from.
func runUV(ctx context.Context, h rule.Host, uv string, args ...string) (string, error) {
	out, err := os.CreateTemp("", "assay-uv-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	p, err := supervise.Start(ctx, supervise.Spec{
		Path: uv, Args: args, Stdout: out, Stderr: out,
		Env: append(os.Environ(), "UV_CACHE_DIR="+h.UVCache, "UV_PYTHON_DOWNLOADS=never", "NO_COLOR=1"),
	})
	if err != nil {
		return "", err
	}
	err = errors.Join(p.Wait(), p.Stop(time.Second))
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	text, readErr := os.ReadFile(out.Name())
	return string(bytes.TrimSpace(text)), errors.Join(err, readErr)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
