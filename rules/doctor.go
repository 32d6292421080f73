package rules

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"assay/rules/internal/pyenv"
)

// Python is the interpreter that rules would use on this machine.
type Python struct {
	Executable, Version string
	// Pip is pip's version, empty if the interpreter has none.
	Pip string
}

// FindPython looks for the interpreter as the rules do: the configured one, or
// the first fitting one on the path. The error lists what was tried.
func FindPython(ctx context.Context, configured string) (Python, error) {
	i, err := pyenv.FindPython(ctx, configured)
	if err != nil {
		return Python{}, err
	}
	p := Python{Executable: i.Executable, Version: i.Version}
	out, err := exec.CommandContext(ctx, i.Executable, "-m", "pip", "--version").Output()
	if ctx.Err() != nil {
		return Python{}, context.Cause(ctx)
	}
	if fields := strings.Fields(string(out)); err == nil && len(fields) > 1 {
		p.Pip = fields[1] // pip 24.0 from …
	}
	return p, nil
}

// UV is the version of uv that makes environments, and whether its wheel is among
// the downloads.
func UV(h Host) (version string, fetched bool, err error) {
	wheels, err := filepath.Glob(filepath.Join(h.Wheels, "*", "uv-"+pyenv.UVVersion+"-*.whl"))
	if err != nil {
		return "", false, fmt.Errorf("look for uv's wheel: %w", err)
	}
	return pyenv.UVVersion, len(wheels) > 0, nil
}
