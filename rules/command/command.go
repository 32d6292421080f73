// Package command is the rule for a user's own step: a program with declared
// inputs and outputs. It gets the keys, the caching and the explanations of the
// native rules, and in return it sees nothing that is not declared: no
// environment of the caller's, no folder but its own.
package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/internal/rule"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// searchPath is where programs are looked up: the caller's PATH would make the
// result depend on the caller.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// Rule is the rule `command`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "command", Version: 1,
		Doc: "Runs a program of yours on declared inputs, for declared outputs. [Writing stages](stages.md#a-step-of-your-own) tells what it sees.",
		Attrs: []schema.Attr{
			{Name: "argv", Kind: schema.StringList, Required: true,
				Doc: "The program and its arguments. `{in:NAME}` stands for the path of an input, `{out}` for the folder of the outputs, `{tmp}` for one that goes away. " +
					"The program is looked up in " + searchPath + "; its content is part of the key."},
			{Name: "inputs", Kind: schema.FileList, Doc: "Files of the workspace. The name of one is its path in the package, or its base name if it is from another package."},
			{Name: "deps", Kind: schema.LabelList, Doc: "Targets of any rule whose outputs are read. The name of one is `deps/` and the target's name without its package."},
			{Name: "outputs", Kind: schema.StringList, Doc: "What the program leaves in `{out}`: files, or folders with all they hold. Anything else there is an error, and so is one that is missing."},
			{Name: "env", Kind: schema.StringDict, Doc: "Environment variables. Placeholders are filled in as in `argv`."},
			{Name: "env_allow", Kind: schema.StringList, Pattern: `[A-Za-z_][A-Za-z0-9_]*`, PatternDoc: "the name of an environment variable",
				Doc: "Variables that are taken over from the caller's environment. Their values are part of the key and are stored with it: none may be a secret."},
			{Name: "timeout_seconds", Kind: schema.Float, Default: 600.0, Min: at(0.01), Max: at(1e6), Doc: "After this time the program is stopped and the step fails.",
				NotInKey: "a deadline: a run that reaches it has no result, one that does not is not changed by it"},
			{Name: "cpus", Kind: schema.Int, Default: int64(1), Min: at(1), Max: at(4096), Doc: "How many CPUs the step keeps busy: so many fewer other steps run beside it.",
				NotInKey: "when a step runs does not change what it makes"},
			{Name: "exclusive", Kind: schema.Bool, Doc: "Whether the step runs alone on the machine, as measurements do.",
				NotInKey: "when a step runs does not change what it makes"},
		},
		Check: check,
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

// own are the variables that the step's folder determines.
var own = []string{"HOME", "TMPDIR"}

func check(v map[string]any) []schema.Problem {
	var problems []schema.Problem
	add := func(attr, hint, format string, args ...any) {
		problems = append(problems, schema.Problem{Attr: attr, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	argv := v["argv"].([]string)
	if len(argv) == 0 || argv[0] == "" {
		add("argv", "", "the program is missing")
	}
	for i, arg := range argv {
		if strings.Contains(arg, "\x00") {
			add("argv", "", "[%d] has a NUL byte; no argument can hold one", i)
		}
	}
	env, allow := v["env"].(map[string]string), v["env_allow"].([]string)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(env[name], "\x00"):
			add("env", "", "%q cannot be the name and value of a variable", name+"="+env[name])
		case slices.Contains(own, name):
			add("env", "", "%s is the step's own scratch folder and cannot be set", name)
		case slices.Contains(allow, name):
			add("env_allow", "keep one of them", "%s is set by `env` too", name)
		}
	}
	for i, name := range allow {
		switch {
		case slices.Contains(own, name):
			add("env_allow", "", "%s is the step's own scratch folder and cannot be taken over", name)
		case slices.Contains(allow[:i], name):
			add("env_allow", "", "%s is listed twice", name)
		}
	}
	return append(problems, checkOutputs(v["outputs"].([]string))...)
}

func checkOutputs(outputs []string) []schema.Problem {
	var problems []schema.Problem
	for i, o := range outputs {
		message := ""
		switch {
		case o == "." || strings.ContainsAny(o, "\\\x00") || !filepath.IsLocal(o) || filepath.Clean(o) != o:
			message = fmt.Sprintf("%q is not a plain path below {out}", o)
		case slices.Contains(outputs[:i], o):
			message = fmt.Sprintf("%q is listed twice", o)
		case slices.ContainsFunc(outputs, func(other string) bool { return below(o, other) }):
			message = fmt.Sprintf("%q is inside another output", o)
		}
		if message != "" {
			problems = append(problems, schema.Problem{Attr: "outputs", Message: message})
		}
	}
	return problems
}

// below reports whether path is inside the folder dir.
func below(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	names, problems := declareInputs(c, t, a)
	a.CPUs, a.Exclusive = int(t.Int("cpus")), t.Bool("exclusive")
	s := step{
		argv: t.Strings("argv"), outputs: t.Strings("outputs"), inputs: names,
		env:     map[string]string{"PATH": searchPath, "LANG": "C.UTF-8", "TZ": "UTC"},
		allowed: map[string]string{},
		timeout: time.Duration(t.Float("timeout_seconds") * float64(time.Second)),
	}
	maps.Copy(s.env, t.Dict("env"))
	for _, text := range s.argv {
		problems = append(problems, names.check("argv", text)...)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Dict("env"))) {
		problems = append(problems, names.check("env", t.Dict("env")[name])...)
	}

	// The key holds the values: null for a variable that is not set.
	values := map[string]any{}
	for _, name := range t.Strings("env_allow") {
		value, set := os.LookupEnv(name)
		switch {
		case !utf8.ValidString(value):
			problems = append(problems, schema.Problem{Attr: "env_allow", Message: fmt.Sprintf("the value of %s is not valid UTF-8, so it cannot be part of a key", name)})
		case set:
			values[name], s.allowed[name] = value, value
		default:
			values[name] = nil
		}
	}
	a.Attrs["env_allow"] = values

	path := s.env["PATH"]
	if allowed, ok := s.allowed["PATH"]; ok {
		path = allowed
	}
	var p *schema.Problem
	if s.program, p = findProgram(s.argv[0], path, names); p != nil {
		return append(problems, *p)
	}
	if s.program != "" {
		sum, err := fileDigest(s.program)
		if err != nil {
			return append(problems, schema.Problem{Attr: "argv", Message: fmt.Sprintf("cannot read the program: %v", err)})
		}
		a.Tools["program"] = sum.String()
	}
	a.Run = func(ctx context.Context, run *action.Run) error { return s.run(ctx, run) }
	return problems
}

// findProgram returns the absolute path of a program, "" for one that is an
// input: its content is part of the key as such.
func findProgram(name, path string, names names) (string, *schema.Problem) {
	problem := func(hint, format string, args ...any) *schema.Problem {
		return &schema.Problem{Attr: "argv", Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch {
	case strings.HasPrefix(name, "{in:"):
		if file := strings.TrimSuffix(strings.TrimPrefix(name, "{in:"), "}"); names[file] == fromWorkspace {
			return "", problem(fmt.Sprintf("name its interpreter first, as in [\"sh\", %q]", name), "%s is a file of the workspace, which is staged without its mode", file)
		}
		return "", nil
	case filepath.IsAbs(name):
		if err := executable(name); err != nil {
			return "", problem("", "cannot run %s: %v", name, err)
		}
		return name, nil
	case strings.Contains(name, "/"):
		return "", problem("write its name, its absolute path, or {in:NAME} for an input", "%q is relative, and nothing is there before the step runs", name)
	}
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); filepath.IsAbs(dir) && executable(file) == nil {
			return file, nil
		}
	}
	return "", problem("install it, or write its absolute path", "there is no program %q in %s", name, path)
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return errors.Unwrap(err) // the path is in the message already
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return errors.New("it is not an executable file")
	}
	return nil
}

func fileDigest(file string) (digest.Digest, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digest.FromReader(f)
}
