// Package testbed sets up what a specified server needs on this machine: the
// bundle unpacked, CPU sets, environments, directories. A sample and a validation
// set up the same, so that the server that is timed is the one that was
// validated.
package testbed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/engine/supervise"
	"assay/rules/bundle"
	"assay/rules/family"
	"assay/rules/internal/host"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/pyenv"
	"assay/rules/internal/rule"
	"assay/rules/internal/server"
	"assay/rules/pythonenv"
	"assay/rules/serve"
	"assay/starlark/graph"
)

// Roles of the inputs that a testbed needs.
const (
	serverRole  = "server"
	bundleRole  = "bundle"
	familyRole  = "family"
	runtimeRole = "runtime"
)

// Deps declares the inputs for the server of a serve target. What the family says
// about serving is one of them; what it says about being right is not.
func Deps(c *rule.Context, srv *graph.Target) []action.Dep {
	b, _ := c.Dep(srv, "bundle")
	fam, _ := c.Dep(b, "family")
	deps := []action.Dep{
		{Role: serverRole, ID: srv.Label.String()},
		{Role: bundleRole, ID: b.Label.String()},
		{Role: familyRole, ID: fam.Label.String(), Path: family.ServingDir},
	}
	if runtime, ok := c.Dep(srv, "runtime"); ok {
		deps = append(deps, action.Dep{Role: runtimeRole, ID: runtime.Label.String()})
	}
	return deps
}

// CPUs are the sets that the server and the load generator may use. The gateway
// belongs to the load generator's set: it is not what is measured.
type CPUs struct {
	Allowed int   `json:"allowed"`
	Server  []int `json:"server"`
	Client  []int `json:"client"`
	// Shared says that the machine has too few for disjoint sets.
	Shared bool `json:"shared"`
}

// Split divides the CPUs that this process may use.
func Split(serverThreads int) (CPUs, error) {
	allowed, err := supervise.AllowedCPUs()
	if err != nil {
		return CPUs{}, err
	}
	server, client, shared, err := host.Split(allowed, serverThreads)
	return CPUs{Allowed: len(allowed), Server: server, Client: client, Shared: shared}, err
}

// Testbed is a server's surroundings. Close removes what lies outside the
// action's own directory.
type Testbed struct {
	Spec   server.Spec
	Bundle bundle.Info
	Family family.Serving
	CPUs   CPUs
	// ServedFile is the digest of the file that the engine loads, empty if the
	// server is somebody else's.
	ServedFile digest.Digest
	// Tokenizer is a directory with the bundle's tokenizer, in Hugging Face's form.
	Tokenizer string
	// Packages are the recorded wheels of all environments made so far, and
	// Interpreter is their Python.
	Packages    []pythonenv.Wheel
	Interpreter string

	host   rule.Host
	record map[string][]string // by role
	run    *action.Run
	home   string
	tmp    string
	place  server.Place
}

// Plan is what analysis knows of a testbed.
type Plan struct {
	Host    rule.Host
	Threads int // CPUs that the server wants
	// Record names the packages that are noted of each environment, by role.
	Record map[string][]string
}

// NewPlan reads the plan for the server of a serve target off the graph.
func NewPlan(c *rule.Context, srv *graph.Target) Plan {
	p := Plan{Host: c.Host, Threads: int(srv.Int("threads") * srv.Int("replicas")), Record: map[string][]string{}}
	if runtime, ok := c.Dep(srv, "runtime"); ok {
		p.Record[runtimeRole] = runtime.Strings("record")
	}
	return p
}

// New sets up a testbed for the inputs that Deps declares.
func New(ctx context.Context, p Plan, run *action.Run) (*Testbed, error) {
	t := &Testbed{
		host: p.Host, record: p.Record, run: run,
		home:      filepath.Join(run.Tmp, "home"),
		Tokenizer: filepath.Join(run.Tmp, "tokenizer"),
	}
	err := errors.Join(
		jsonfile.Read(filepath.Join(run.Input(serverRole), serve.SpecFile), &t.Spec),
		jsonfile.Read(filepath.Join(run.Input(bundleRole), bundle.InfoFile), &t.Bundle),
		jsonfile.Read(filepath.Join(run.Input(familyRole), filepath.Base(family.ServingFile)), &t.Family),
	)
	if err != nil {
		return nil, err
	}
	if t.CPUs, err = Split(p.Threads); err != nil {
		return nil, err
	}
	scratch := filepath.Join(run.Tmp, "scratch")
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return nil, err
	}
	if t.tmp, err = shorten(scratch); err != nil {
		return nil, err
	}
	if err := t.prepare(ctx); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close removes the short name of the temporary directory.
func (t *Testbed) Close() error { return os.Remove(t.tmp) }

// shortName prefixes the short names of temporary directories.
const shortName = "/tmp/assay-tmp-"

// shorten makes a short name for dir, a link. AIPerf makes sockets some 50 bytes
// below its temporary directory, and the name of a socket has 107 at most; an
// action directory is too deep for that. It also removes links that killed builds
// left: those that lead nowhere.
func shorten(dir string) (string, error) {
	stale, err := filepath.Glob(shortName + "*")
	if err != nil {
		return "", err
	}
	for _, link := range stale {
		if _, err := os.Stat(link); errors.Is(err, fs.ErrNotExist) {
			os.Remove(link) // another user's cannot be removed, nor need it be
		}
	}
	link := shortName + rand.Text()[:12]
	return link, os.Symlink(dir, link)
}

// prepare unpacks the bundle and readies what the server needs.
func (t *Testbed) prepare(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	model := filepath.Join(t.run.Tmp, "model")
	t.place = server.Place{
		Assay: self, Dir: filepath.Join(t.run.Tmp, "server"),
		Gateway: t.CPUs.Client, Workers: t.CPUs.Server,
		Model:  filepath.Join(model, bundle.Checkpoint),
		Script: filepath.Join(t.run.Input(serverRole), serve.ScriptFile),
		Env:    t.Environ(),
	}
	for _, dir := range []string{t.home, t.Tokenizer, model, t.place.Dir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if t.Spec.External() {
		if err := jsonfile.Read(filepath.Join(t.run.Input(serverRole), serve.UpstreamFile), &t.place.Upstream); err != nil {
			return err
		}
	}
	if server.NeedsPython(t.Spec.Engine) {
		env, err := t.Environment(ctx, runtimeRole)
		if err != nil {
			return err
		}
		t.place.Python = env.Python()
	}
	switch got, err := t.BundleDigest(); {
	case err != nil:
		return err
	case got != t.Bundle.Digest:
		return fmt.Errorf("the bundle has digest %s, its description says %s", got, t.Bundle.Digest)
	}
	f, b, err := bundle.Open(t.bundlePath())
	if err != nil {
		return err
	}
	defer f.Close()
	if !t.Spec.External() {
		if t.ServedFile, err = bundle.Extract(b, bundle.Checkpoint, t.place.Model); err != nil {
			return err
		}
	}
	for _, section := range []string{bundle.Tokenizer, bundle.TokenizerConfig} {
		if _, err := bundle.Extract(b, section, filepath.Join(t.Tokenizer, section)); err != nil {
			return err
		}
	}
	return nil
}

// VerifyBundle holds the bundle's header and provenance against its description: a
// bundle without provenance, or with that of another, can be served but not judged.
func (t *Testbed) VerifyBundle() error {
	f, b, err := bundle.Open(t.bundlePath())
	if err != nil {
		return err
	}
	defer f.Close()
	if err := bundle.Match(b, t.Bundle); err != nil {
		return fmt.Errorf("%s: %w", bundle.File, err)
	}
	if t.Bundle.Family != t.Family.ID {
		return fmt.Errorf("%s: header: family is %s, the family that judges is %s", bundle.File, t.Bundle.Family, t.Family.ID)
	}
	return nil
}

func (t *Testbed) bundlePath() string { return filepath.Join(t.run.Input(bundleRole), bundle.File) }

// BundleDigest reads the bundle file and returns its digest now.
func (t *Testbed) BundleDigest() (digest.Digest, error) {
	f, err := os.Open(t.bundlePath())
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digest.FromReader(f)
}

// Environment makes the Python environment of an input and notes its wheels.
func (t *Testbed) Environment(ctx context.Context, role string) (pyenv.Env, error) {
	requirements, err := os.ReadFile(filepath.Join(t.run.Input(role), pythonenv.Requirements))
	if err != nil {
		return pyenv.Env{}, err
	}
	env, wheels, err := pythonenv.Realise(ctx, t.host, requirements, t.record[role], func(what string) { t.run.Progress(0, 0, what) })
	if err != nil {
		return pyenv.Env{}, fmt.Errorf("environment %q: %w", role, err)
	}
	t.Packages = append(t.Packages, wheels...)
	t.Interpreter = env.Interpreter.Implementation + " " + env.Interpreter.Version
	return env, nil
}

// Environ is the whole environment of the testbed's processes: what the caller's
// shell holds must not change what is measured. HF_HUB_OFFLINE stays unset: with
// it AIPerf takes a tokenizer's directory for a hub id.
func (t *Testbed) Environ() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TZ=UTC",
		"HOME=" + t.home, "TMPDIR=" + t.tmp,
	}
}

// Home is the working directory of the testbed's processes.
func (t *Testbed) Home() string { return t.home }

// Start starts the server and returns when it is ready.
func (t *Testbed) Start(ctx context.Context) (*server.Server, error) {
	t.run.Progress(0, 0, "starting the server")
	return server.Start(ctx, t.Spec, t.place)
}

// ServerDir holds the server's records and log.
func (t *Testbed) ServerDir() string { return t.place.Dir }
