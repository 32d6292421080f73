package pyenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"assay/engine/supervise"
)

// Script is a program of Assay's own that needs the libraries of an environment: it
// reads one JSON value from its standard input and prints another.
type Script struct {
	Source []byte
	Args   []string
	Input  any
	// Dir is where it runs, and what it is run with is put. Environ is its whole
	// environment.
	Dir     string
	Environ []string
}

// Run runs the script to its end and decodes what it printed into answer. The error
// of a script that fails has the end of what it said.
func (e Env) Run(ctx context.Context, s Script, answer any) error {
	data, err := json.Marshal(s.Input)
	if err != nil {
		return err
	}
	script := filepath.Join(s.Dir, "script.py")
	if err := errors.Join(os.WriteFile(script, s.Source, 0o644), os.WriteFile(script+".in", data, 0o644)); err != nil {
		return err
	}
	in, err := os.Open(script + ".in")
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(script + ".out")
	if err != nil {
		return err
	}
	defer out.Close()
	log, err := os.Create(script + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := supervise.Start(ctx, supervise.Spec{
		Path: e.Python(), Args: append([]string{"-I", script}, s.Args...), Env: s.Environ, Dir: s.Dir,
		Stdin: in, Stdout: out, Stderr: log,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(p.Wait(), p.Stop(time.Second)); err != nil {
		tail, _ := supervise.Tail(log.Name(), 10)
		return fmt.Errorf("%w\n%s", err, tail)
	}
	printed, err := os.ReadFile(out.Name())
	if err != nil {
		return err
	}
	if err := json.Unmarshal(printed, answer); err != nil {
		return fmt.Errorf("unexpected answer: %w: %.200q", err, printed)
	}
	return nil
}
