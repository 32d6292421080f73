// Package pythonenv is the rule for Python environments. The output is the
// identity of an environment: the lock with every wheel's hash, in one form. The
// environment itself is made beside the store, where and when something needs it;
// which wheels that takes depends on the machine, so they are noted there.
package pythonenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/internal/lockfile"
	"assay/rules/internal/pyenv"
	"assay/rules/internal/rule"
	"assay/rules/internal/wheel"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Requirements is the output: the canonical lock, from which the environment is
// made.
const Requirements = "requirements.txt"

// Wheel is what an installed wheel says of itself. The installed RECORD differs
// from place to place; that in the wheel does not.
type Wheel struct {
	Name     string        `json:"name"`
	Version  string        `json:"version"`
	SHA256   string        `json:"sha256"`
	Metadata digest.Digest `json:"metadata"`
	Record   digest.Digest `json:"record"`
	Licence  string        `json:"licence,omitempty"`
}

// Rule is the rule `python_env`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "python_env", Version: 1,
		Doc: "A Python environment from a hash-pinned lock, made again offline from the local cache.",
		Attrs: []schema.Attr{
			{Name: "lock", Kind: schema.File, Required: true,
				Doc: "The lock, as `uv pip compile --universal --generate-hashes --no-header` writes it. It pins every package by version and hash and names no index."},
			{Name: "record", Kind: schema.StringList,
				NotInKey: "what a sample notes of its packages does not change them",
				Doc:      "Packages whose wheel's METADATA and RECORD digests each sample notes; those that results depend on."},
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	c.Source(a, t, "lock")
	lock, problems := Lock(c, t)
	if problems != nil {
		return problems
	}
	for _, name := range t.Strings("record") {
		if n := len(lock.Package(name)); n != 1 {
			problems = append(problems, schema.Problem{Attr: "record", Message: fmt.Sprintf("the lock pins %q %d times; what is recorded is pinned once", name, n)})
		}
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		// What is built is what was digested, not what analysis read.
		data, err := os.ReadFile(run.Input("lock"))
		if err != nil {
			return err
		}
		file, _ := t.File("lock")
		lock, err := lockfile.Parse(file, data)
		if err != nil {
			return err
		}
		if _, _, err := Realise(ctx, c.Host, lock.Requirements(), t.Strings("record"), func(what string) { run.Progress(0, 0, what) }); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(run.Out, Requirements), lock.Requirements(), 0o644)
	}
	return problems
}

// Lock parses the lock of a python_env target.
func Lock(c *rule.Context, t *graph.Target) (*lockfile.Lock, []schema.Problem) {
	file, _ := t.File("lock")
	data, err := os.ReadFile(c.Path(file))
	if err == nil {
		var l *lockfile.Lock
		if l, err = lockfile.Parse(file, data); err == nil {
			return l, nil
		}
	}
	return nil, []schema.Problem{{
		Attr: "lock", Message: err.Error(),
		Hint: "write the lock with: uv pip compile --universal --generate-hashes --no-header requirements.in -o " + filepath.Base(file),
	}}
}

// Realise makes the environment of canonical requirements on this machine and
// reads what the wheels of the recorded packages say of themselves.
func Realise(ctx context.Context, h rule.Host, requirements []byte, record []string, progress func(string)) (pyenv.Env, []Wheel, error) {
	env, err := pyenv.Realise(ctx, h, requirements, progress)
	if err != nil {
		return pyenv.Env{}, nil, err
	}
	lock, err := lockfile.Parse(Requirements, requirements)
	if err != nil {
		return pyenv.Env{}, nil, err
	}
	var wheels []Wheel
	for _, name := range slices.Sorted(slices.Values(record)) {
		pkg := lock.Package(name)[0] // analysis saw to it that there is one
		path, sha, err := wheel.Fetch(ctx, env.Interpreter.Executable, h.Wheels,
			wheel.Requirement{Name: pkg.Name, Version: pkg.Version, Hashes: pkg.Hashes}, progress)
		if err != nil {
			return pyenv.Env{}, nil, err
		}
		info, err := wheel.DistInfo(path)
		if err != nil {
			return pyenv.Env{}, nil, err
		}
		wheels = append(wheels, Wheel{
			Name: pkg.Name, Version: info.Version, SHA256: sha.Encoded(),
			Metadata: info.Metadata, Record: info.Record, Licence: info.Licence,
		})
	}
	return env, wheels, nil
}
