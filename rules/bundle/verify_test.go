package bundle

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"assay/rules/checkpoint"
	"assay/rules/internal/container"
	"assay/rules/internal/gguf"
	"assay/rules/internal/gguf/gguftest"
	"assay/rules/internal/tokenizer"
)

// sha64 is that of the weights.
var sha64 = digest.FromBytes(gguftest.Tiny()).Encoded()

// tinyInfo describes the bundle that tinySections make.
func tinyInfo() Info {
	return Info{
		Model: "assay/tiny", Family: "tiny", Tasks: []string{"chat"}, Precision: "F32", Context: 256, TensorParallel: 1,
		Origin: checkpoint.Source{File: "tiny.gguf", SHA256: sha64},
	}
}

func tinySections(t testing.TB) map[string][]byte {
	t.Helper()
	weights := gguftest.Tiny()
	f, err := gguf.Read(bytes.NewReader(weights), int64(len(weights)))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	provenance, err := tinyInfo().provenance().Encode()
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		Checkpoint: weights, Tokenizer: tok.TokenizerJSON, TokenizerConfig: tok.ConfigJSON,
		GenerationConfig: []byte("{}\n"), container.ProvenanceSection: provenance,
	}
}

func writeFile(t testing.TB, info Info, content map[string][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.bundle")
	var sections []container.Source
	for _, name := range slices.Sorted(maps.Keys(content)) {
		sections = append(sections, container.Source{Name: name, Size: int64(len(content[name])), Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content[name])), nil
		}})
	}
	if _, err := writeBundle(context.Background(), path, info, sections); err != nil {
		t.Fatal(err)
	}
	return path
}

// Everything in which a bundle of good form is not what it is said to be. The
// forms themselves are in container's tests.
func TestMismatches(t *testing.T) {
	replace := func(section, old, new string) func(map[string][]byte) {
		return func(s map[string][]byte) {
			changed := bytes.Replace(s[section], []byte(old), []byte(new), 1)
			if bytes.Equal(changed, s[section]) {
				panic(old + " is not in " + section)
			}
			s[section] = changed
		}
	}
	remove := func(section string) func(map[string][]byte) {
		return func(s map[string][]byte) { delete(s, section) }
	}
	nothing := func(map[string][]byte) {}
	p := container.ProvenanceSection
	for _, c := range []struct {
		name   string
		change func(map[string][]byte)
		want   func(*Info)
		err    string
	}{
		{"nothing", nothing, func(*Info) {}, ""},
		{"another family", nothing, func(i *Info) { i.Family = "other" }, "header: family is tiny, want other"},
		{"another task", nothing, func(i *Info) { i.Tasks = []string{"completions"} }, "header: task is chat, want completions"},
		{"one task more", nothing, func(i *Info) { i.Tasks = []string{"chat", "completions"} }, "header: task is chat, want chat,completions"},
		{"another upstream id", nothing, func(i *Info) { i.Model = "assay/other" }, p + ": checkpoint.hf_id is assay/tiny, want assay/other"},
		{"another revision", nothing, func(i *Info) { i.Revision = strings.Repeat("a", 40) }, p + ": checkpoint.revision is null, want aaaa"},
		{"another file", nothing, func(i *Info) { i.Origin.File = "big.gguf" }, p + ": source.name is tiny.gguf, want big.gguf"},
		{"a file that changed", nothing, func(i *Info) { i.Origin.SHA256 = strings.Repeat("f", 64) }, p + ": source.sha256 is " + sha64},
		{"from a wheel", nothing, func(i *Info) { i.Origin = checkpoint.Source{Wheel: "tiny==1", SHA256: sha64} }, p + ": source is file, want wheel"},
		{"from other parts", nothing, func(i *Info) {
			i.Origin = checkpoint.Source{Parts: []checkpoint.Part{{Wheel: "a==1"}, {Wheel: "b==1"}}, SHA256: sha64}
		}, p + ": source.name is tiny.gguf, want a==1 b==1"},
		{"another precision", nothing, func(i *Info) { i.Precision = "F16" }, p + ": build.precision is F32, want F16"},
		{"another quantization", nothing, func(i *Info) { i.Precision = "Q8_0" }, p + ": build.quantization is null, want Q8_0"},
		{"another context", nothing, func(i *Info) { i.Context = 128 }, p + ": build.max_sequence_length is 256, want 128"},
		{"more devices", nothing, func(i *Info) { i.TensorParallel = 2 }, p + ": build.tensor_parallel_size is 1, want 2"},
		{"no provenance", remove(p), nil, "no section " + p + "; it can be served but not validated"},
		{"provenance that is none", func(s map[string][]byte) { s[p] = []byte("{}") }, nil, `key "build" is missing`},
		{"provenance with a short revision", replace(p, `"revision":null`, `"revision":"abc"`), nil, p + `: checkpoint.revision: is "abc", want 40`},
		{"provenance of an unknown version", replace(p, `"version":2`, `"version":7`), nil, "version: is 7; this reader knows 1 and 2"},
		{"provenance with a number for text", replace(p, `"assay/tiny"`, `5`), nil, "checkpoint.hf_id: is a number, want text"},
		{"weights of another precision", replace(p, `"precision":"F32"`, `"precision":"F16"`), nil, p + ": build.precision is F16, the weights are F32"},
		{"a longer context than the model's", replace(p, ":256", ":100000"), nil, p + ": build.max_sequence_length is 100000, the model was made for 512 tokens"},
		{"weights that changed", func(s map[string][]byte) {
			s[Checkpoint] = bytes.Clone(s[Checkpoint])
			s[Checkpoint][len(s[Checkpoint])-1] ^= 1
		}, nil, p + ": source.sha256 is " + sha64 + ", section checkpoint.gguf has "},
		{"no weights", remove(Checkpoint), nil, "section checkpoint.gguf is missing"},
		{"weights cut short", func(s map[string][]byte) { s[Checkpoint] = s[Checkpoint][:2000] }, nil, "section checkpoint.gguf: gguf: byte "},
		{"weights that are none", func(s map[string][]byte) { s[Checkpoint] = []byte("GGML") }, nil, "section checkpoint.gguf: gguf: "},
		{"no tokenizer", remove(Tokenizer), nil, "section tokenizer.json is missing"},
		{"no tokenizer config", remove(TokenizerConfig), nil, "section tokenizer_config.json is missing"},
		{"no generation config", remove(GenerationConfig), nil, "section generation_config.json is missing"},
		{"another tokenizer", replace(Tokenizer, "hello", "hullo"), nil, "section tokenizer.json is not the tokenizer of the weights"},
		{"another template", replace(TokenizerConfig, "im_start", "im_stort"), nil, "section tokenizer_config.json is not the tokenizer of the weights"},
		{"a section too many", func(s map[string][]byte) { s["extra.bin"] = nil }, nil, "section extra.bin is not one that a bundle has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sections := tinySections(t)
			c.change(sections)
			path := writeFile(t, tinyInfo(), sections)
			var want *Info
			if c.want != nil {
				info := tinyInfo()
				c.want(&info)
				want = &info
			}
			err := Verify(context.Background(), path, want)
			if c.err == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), path) {
				t.Errorf("got %v\nwant an error with %q", err, c.err)
			}
		})
	}
	if err := Verify(context.Background(), filepath.Join(t.TempDir(), "x"), nil); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// All that differs is said at once.
func TestMatchSaysEverything(t *testing.T) {
	path := writeFile(t, tinyInfo(), tinySections(t))
	want := tinyInfo()
	want.Family, want.Model, want.Context = "other", "assay/other", 8
	err := Verify(context.Background(), path, &want)
	for _, part := range []string{"header: family", "checkpoint.hf_id", "build.max_sequence_length"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s is missing in %v", part, err)
		}
	}
}

// Whatever stands in the weights' section, verifying it ends in an error or not at
// all, and never in a panic.
func FuzzVerify(f *testing.F) {
	f.Add(gguftest.Tiny(), []byte(`{"version":2}`))
	f.Add([]byte("GGUF"), []byte(""))
	f.Fuzz(func(t *testing.T, weights, provenance []byte) {
		sections := tinySections(t)
		sections[Checkpoint], sections[container.ProvenanceSection] = weights, provenance
		_ = Verify(context.Background(), writeFile(t, tinyInfo(), sections), nil)
	})
}
