package pyenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	env := Env{Dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(env.Dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(python, env.Python()); err != nil {
		t.Fatal(err)
	}
	run := func(source string, answer any) error {
		return env.Run(t.Context(), Script{Source: []byte(source), Args: []string{"b"}, Input: []string{"a"}, Dir: t.TempDir(), Environ: os.Environ()}, answer)
	}
	var got []string
	if err := run("import json, sys; json.dump(json.load(sys.stdin) + sys.argv[1:], sys.stdout)", &got); err != nil || strings.Join(got, " ") != "a b" {
		t.Errorf("%q, %v", got, err)
	}
	for source, want := range map[string]string{
		"import sys; sys.exit('no such model')": "no such model",
		"print('[1')":                           `unexpected answer: unexpected end of JSON input: "[1\n"`,
		"print(1)":                              "unexpected answer: json: cannot unmarshal number",
	} {
		if err := run(source, &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}
