package wheel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/durable"
)

// identity prints what pip's choice among the wheels of a package depends on:
// interpreter, ABI, platform and, since manylinux, musllinux and macOS tags ask
// for them, the versions of libc and of the system (PEP 425, PEP 600, PEP 656).
const identity = `import platform, sys, sysconfig
print(sys.implementation.name, platform.python_version(), sysconfig.get_config_var("SOABI"),
  sysconfig.get_platform(), *platform.libc_ver(), platform.mac_ver()[0], sep="\n")`

// choice is a small file in the folder of wheels. It holds the digest of the
// wheel that pip chose for a requirement on one interpreter and platform, so that
// a folder which several share does not give one of them another's wheel.
type choice struct{ path string }

// choiceFor asks python what it is.
func choiceFor(ctx context.Context, python, dir string, req Requirement) (choice, error) {
	cmd := exec.CommandContext(ctx, python, "-I", "-c", identity)
	cmd.WaitDelay = time.Second // for a pipe that a grandchild still holds
	said, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return choice{}, context.Cause(ctx)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return choice{}, fmt.Errorf("wheel: asking %s for its platform: %w", python, err)
	}
	key := strings.Join(append([]string{"1", string(said), req.Name, req.Version}, slices.Sorted(slices.Values(req.Hashes))...), "\n")
	return choice{filepath.Join(dir, "chosen", digest.FromString(key).Encoded())}, nil
}

// get returns what was chosen; "" if nothing was, or if the file is damaged.
func (c choice) get() (digest.Digest, error) {
	data, err := os.ReadFile(c.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return digest.Digest(strings.TrimSpace(string(data))), nil
}

func (c choice) set(sha digest.Digest) error {
	return durable.WriteFile(c.path, []byte(sha.String()+"\n"), 0o644)
}

// universal says that a wheel runs on every platform with Python 3, by the tags
// at the end of its name (PEP 427): python, ABI, platform.
func universal(file string) bool {
	name, pure := strings.CutSuffix(filepath.Base(file), "-none-any.whl")
	python := name[strings.LastIndex(name, "-")+1:]
	return pure && slices.Contains(strings.Split(python, "."), "py3")
}
