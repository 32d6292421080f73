package schema

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

func ptr(f float64) *float64 { return &f }

var serve = &Rule{
	Name:    "serve",
	Version: 1,
	Attrs: []Attr{
		{Name: "bundle", Kind: Label, Required: true, Rules: []string{"bundle"}},
		{Name: "also", Kind: LabelList},
		{Name: "engine", Kind: String, Default: "llama", Values: []string{"llama", "vllm"}},
		{Name: "revision", Kind: String, Pattern: "[0-9a-f]{40}|", PatternDoc: "40 hexadecimal digits"},
		{Name: "replicas", Kind: Int, Default: int64(1), Min: ptr(1), Max: ptr(64)},
		{Name: "rate", Kind: Float, Min: ptr(0)},
		{Name: "cache", Kind: Bool},
		{Name: "modes", Kind: StringList, Values: []string{"chat", "raw"}},
		{Name: "env", Kind: StringDict, Default: map[string]string{"A": "1"}},
		{Name: "config", Kind: File},
		{Name: "prompts", Kind: FileList},
		{Name: "timeout", Kind: Int, Max: ptr(600), NotInKey: "a deadline does not change the result"},
	},
	Check: func(values map[string]any) []Problem {
		if values["cache"].(bool) && values["replicas"].(int64) > 1 {
			return []Problem{{Attr: "cache", Message: "only with one replica"}}
		}
		return nil
	},
}

// unpack evaluates args as the keyword arguments of a call.
func unpack(t *testing.T, args string) (map[string]any, []Problem) {
	t.Helper()
	var values map[string]any
	var problems []Problem
	call := starlark.NewBuiltin("serve", func(_ *starlark.Thread, _ *starlark.Builtin, _ starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		values, problems = serve.Unpack(kwargs)
		return starlark.None, nil
	})
	env := starlark.StringDict{"serve": call}
	if _, err := starlark.EvalOptions(&syntax.FileOptions{}, new(starlark.Thread), "test", "serve("+args+")", env); err != nil {
		t.Fatal(err)
	}
	return values, problems
}

func TestUnpackFillsInDefaults(t *testing.T) {
	got, problems := unpack(t, `name = "llama", bundle = ":b", engine = None`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := map[string]any{
		"name": "llama", "bundle": ":b", "also": []string{}, "engine": "llama", "revision": "",
		"replicas": int64(1), "rate": 0.0, "cache": false, "modes": []string{},
		"env": map[string]string{"A": "1"}, "config": "", "prompts": []string{}, "timeout": int64(0),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got["env"].(map[string]string)["A"] = "changed"
	if again, _ := unpack(t, `name = "other", bundle = ":b"`); again["env"].(map[string]string)["A"] != "1" {
		t.Error("targets share a default")
	}
}

func TestUnpackTypesWhatIsGiven(t *testing.T) {
	got, problems := unpack(t, `name = "x", bundle = "//a:b", also = (":c",), replicas = 2, rate = 3, cache = False,
		modes = ["chat"], env = {"K": "v"}, config = "c.json", prompts = ["p.txt"], revision = "0" * 40`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := map[string]any{
		"name": "x", "bundle": "//a:b", "also": []string{":c"}, "engine": "llama", "revision": strings.Repeat("0", 40),
		"replicas": int64(2), "rate": 3.0, "cache": false, "modes": []string{"chat"},
		"env": map[string]string{"K": "v"}, "config": "c.json", "prompts": []string{"p.txt"}, "timeout": int64(0),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUnpackReportsAllProblems(t *testing.T) {
	for _, tt := range []struct {
		name, args string
		want       []Problem
	}{
		{"nothing given", ``, []Problem{
			{Attr: "name", Message: "required, but not given"},
			{Attr: "bundle", Message: "required, but not given"},
		}},
		{"None is not a value", `name = None, bundle = None, nothing = None`, []Problem{
			{Message: `no attribute "nothing"`},
			{Attr: "name", Message: "required, but not given"},
			{Attr: "bundle", Message: "required, but not given"},
		}},
		{"everything wrong", `name = 1, bundel = 2, engine = "lama", replicas = 0, rate = "fast", cache = 1, timeout = 601`, []Problem{
			{Attr: "name", Message: "want a string, got the int 1"},
			{Message: `no attribute "bundel"`, Hint: `did you mean "bundle"?`},
			{Attr: "engine", Message: `want one of "llama", "vllm", got "lama"`, Hint: `did you mean "llama"?`},
			{Attr: "replicas", Message: "want 1 to 64, got 0"},
			{Attr: "rate", Message: `want a float, got the string "fast"`},
			{Attr: "cache", Message: "want True or False, got the int 1"},
			{Attr: "timeout", Message: "want at most 600, got 601"},
		}},
		{"lists and dicts", `name = "x", bundle = ["y"], also = "z", modes = ["chat", "video"], env = {"K": 1}, prompts = [1]`, []Problem{
			{Attr: "bundle", Message: `want a label such as "//pkg:name", got a value of type list`},
			{Attr: "also", Message: `want a list of labels, got the string "z"`, Hint: `write ["z"]`},
			{Attr: "modes", Message: `want one of "chat", "raw", got "video"`},
			{Attr: "env", Message: `want a dict of strings, but ["K"] is the int 1`},
			{Attr: "prompts", Message: "want a list of file names, but [0] is the int 1"},
		}},
		{"numbers", `name = "x", bundle = "b", replicas = 2.0, rate = float("nan"), timeout = 1 << 80`, []Problem{
			{Attr: "replicas", Message: "want an int, got the float 2.0"},
			{Attr: "rate", Message: "want a finite number, got the float nan"},
			{Attr: "timeout", Message: "want an int below 2^53, got a very large int"},
		}},
		{"ranges", `name = "x", bundle = "b", rate = -0.5`, []Problem{
			{Attr: "rate", Message: "want at least 0, got -0.5"},
		}},
		{"patterns", `name = "../x", bundle = "b", revision = "HEAD"`, []Problem{
			{Attr: "name", Message: `"../x" cannot be a name`,
				Hint: "use letters, digits and _ . + -; the first one a letter, a digit or _"},
			{Attr: "revision", Message: `want 40 hexadecimal digits, got "HEAD"`},
		}},
		{"reserved name", `name = "all", bundle = "b"`, []Problem{
			{Attr: "name", Message: `"all" stands for every target of a package`, Hint: "choose another name"},
		}},
		{"half a character", `name = "x", bundle = "ä"[:1], env = {"k": "ä"[1:]}`, []Problem{
			{Attr: "bundle", Message: `"\xc3" is not valid UTF-8`},
			{Attr: "env", Message: `"k: \xa4" is not valid UTF-8`},
		}},
		{"misspelt and right", `name = "x", bundel = "b", bundle = "b"`, []Problem{
			{Message: `no attribute "bundel"`, Hint: `did you mean "bundle"?`},
		}},
		{"given twice", `name = "x", bundle = "b", **{"bundle": "c"}`, []Problem{
			{Attr: "bundle", Message: "given twice"},
		}},
		{"given as nothing", `name = "x", bundle = ""`, []Problem{
			{Attr: "bundle", Message: "required, but empty"},
		}},
		{"across attributes", `name = "x", bundle = "b", cache = True, replicas = 2`, []Problem{
			{Attr: "cache", Message: "only with one replica"},
		}},
		{"long values are cut", `name = "x" * 1000 + "/", bundle = "b"`, []Problem{
			{Attr: "name", Message: `"` + strings.Repeat("x", 59) + `…" cannot be a name`,
				Hint: "use letters, digits and _ . + -; the first one a letter, a digit or _"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, got := unpack(t, tt.args)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKeyAttrsLeavesOutWhatEntersByDigestOrNotAtAll(t *testing.T) {
	values, problems := unpack(t, `name = "x", bundle = "//a:b", config = "c", timeout = 5, replicas = 2`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := map[string]any{
		"engine": "llama", "revision": "", "replicas": int64(2), "rate": 0.0, "cache": false,
		"modes": []string{}, "env": map[string]string{"A": "1"},
	}
	if diff := cmp.Diff(want, serve.KeyAttrs(values)); diff != "" {
		t.Error(diff)
	}
}

func TestValidate(t *testing.T) {
	if err := serve.Validate(); err != nil {
		t.Fatal(err)
	}
	bad := &Rule{
		Name: "Serve",
		Attrs: []Attr{
			{Name: "name", Kind: String},
			{Name: "a", Kind: Int, Default: 1},
			{Name: "a", Kind: String, Pattern: "("},
			{Name: "b", Kind: 99},
			{Name: "c", Kind: String, Default: "x", Values: []string{"y"}},
			{Name: "d", Kind: Int, Values: []string{"y"}},
			{Name: "e", Kind: String, Rules: []string{"y"}},
			{Name: "f", Kind: String, Min: ptr(1)},
			{Name: "g", Kind: Float, Min: ptr(2), Max: ptr(1)},
			{Name: "h", Kind: Bool, Required: true, Default: true},
			{Name: "I", Kind: Bool},
		},
	}
	want := `rule "Serve": the name is not an identifier
rule Serve: version 0, want at least 1
rule Serve: attribute "name" is declared twice
rule Serve: attribute "a": the default has type int, want int64
rule Serve: attribute "a" is declared twice
rule Serve: attribute "a": pattern: error parsing regexp: missing closing ): ` + "`^(?:()$`" + `
rule Serve: attribute "b": kind 99 does not exist
rule Serve: attribute "c": the default is not allowed: want one of "y", got "x"
rule Serve: attribute "d": kind int has no allowed values or pattern
rule Serve: attribute "e": kind string has no accepted rules
rule Serve: attribute "f": kind string has no range
rule Serve: attribute "g": the range 2 to 1 is empty
rule Serve: attribute "h": required, so the default is never used
rule Serve: attribute "I": the name is not an identifier`
	if diff := cmp.Diff(want, bad.Validate().Error()); diff != "" {
		t.Error(diff)
	}
}

func TestNames(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "7b": true, "qwen3-0.6B_x+y": true, "_x": true,
		"": false, ".x": false, "-x": false, "a/b": false, "a b": false, "ä": false, "a\n": false, "..": false,
	} {
		if ValidName(s) != want {
			t.Errorf("ValidName(%q) = %v", s, !want)
		}
	}
}

func FuzzUnpackString(f *testing.F) {
	f.Add("name", "x")
	f.Add("revision", strings.Repeat("0", 40))
	f.Add("replicas", "\xff")
	f.Fuzz(func(t *testing.T, key, value string) {
		values, problems := serve.Unpack([]starlark.Tuple{
			{starlark.String(key), starlark.String(value)},
			{starlark.String("rate"), starlark.Float(math.Inf(1))},
		})
		if len(problems) == 0 {
			t.Fatalf("an infinite rate passed: %v", values)
		}
	})
}
