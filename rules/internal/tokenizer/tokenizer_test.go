package tokenizer

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/gguf"
	"assay/rules/internal/gguf/gguftest"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// edit is the metadata of gguftest.Tiny with some keys set; nil removes a key.
func edit(t *testing.T, changes map[string]any) *gguf.File {
	t.Helper()
	meta := gguftest.TinyMetadata()
	for key, value := range changes {
		meta = slices.DeleteFunc(meta, func(e gguf.Entry) bool { return e.Key == key })
		if value != nil {
			meta = append(meta, gguf.Entry{Key: key, Value: value})
		}
	}
	var b bytes.Buffer
	if err := gguftest.Write(&b, meta, nil); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Read(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// get is the value of a metadata key of gguftest.Tiny.
func get[T any](t *testing.T, key string) T {
	t.Helper()
	for _, e := range gguftest.TinyMetadata() {
		if e.Key == key {
			return e.Value.(T)
		}
	}
	t.Fatalf("no %s", key)
	panic("unreachable")
}

// convert returns both files as JSON values.
func convert(t *testing.T, f *gguf.File) (tokenizer, config map[string]any) {
	t.Helper()
	files, err := FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(files.TokenizerJSON, &tokenizer); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(files.ConfigJSON, &config); err != nil {
		t.Fatal(err)
	}
	return tokenizer, config
}

// The golden files load in transformers and give llama.cpp's ids; a change of
// them is a change of what a load generator counts.
func TestGolden(t *testing.T) {
	first, err := FromGGUF(edit(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	second, err := FromGGUF(edit(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("two conversions differ:\n%s", diff)
	}
	for name, got := range map[string][]byte{"tokenizer.json": first.TokenizerJSON, "tokenizer_config.json": first.ConfigJSON} {
		path := filepath.Join("testdata", "tiny", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-golden +got):\n%s", path, diff)
		}
	}
}

func TestVocabularyKeepsItsIDs(t *testing.T) {
	f := edit(t, nil)
	tokenizer, _ := convert(t, f)
	vocab := tokenizer["model"].(map[string]any)["vocab"].(map[string]any)
	tokens, err := f.Strings("tokenizer.ggml.tokens")
	if err != nil {
		t.Fatal(err)
	}
	if len(vocab) != len(tokens) {
		t.Fatalf("%d of %d tokens", len(vocab), len(tokens))
	}
	for id, text := range tokens {
		if vocab[text] != float64(id) {
			t.Errorf("%q is %v, want %d", text, vocab[text], id)
		}
	}
}

func TestEveryByteHasItsCharacter(t *testing.T) {
	seen := map[rune]bool{}
	for b := range 256 {
		r := byteRune(b)
		if seen[r] {
			t.Errorf("%q stands for two bytes", r)
		}
		seen[r] = true
	}
	for b, want := range map[int]rune{0: 'Ā', '\n': 'Ċ', ' ': 'Ġ', '!': '!', '~': '~', 0x7f: 'ġ', 0xa0: 'ł', 0xa1: '¡', 0xad: 'Ń', 0xff: 'ÿ'} {
		if got := byteRune(b); got != want {
			t.Errorf("byte %#x is %q, want %q", b, got, want)
		}
	}
}

func TestTokenTypesDecideWhatIsAdded(t *testing.T) {
	types := get[[]int32](t, "tokenizer.ggml.token_type")
	types[0], types[1], types[2], types[3] = typeUnknown, typeControl, typeUserDefined, 5
	tokenizer, _ := convert(t, edit(t, map[string]any{"tokenizer.ggml.token_type": types}))
	got := map[string]bool{}
	for _, a := range tokenizer["added_tokens"].([]any) {
		a := a.(map[string]any)
		got[a["content"].(string)] = a["special"].(bool)
	}
	want := map[string]bool{"<|endoftext|>": true, "<|im_start|>": true, "<|im_end|>": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("added tokens and whether they are special (-want +got):\n%s", diff)
	}
}

func TestPreTokenizers(t *testing.T) {
	for pre, want := range map[any][]string{
		"smollm":  {`\p{N}`, gpt2Pattern},
		"gpt-2":   {gpt2Pattern},
		"default": {`[\p{P}\$\+<=>\^~\|]+`, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`},
		nil:       {`[\p{P}\$\+<=>\^~\|]+`, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`},
	} {
		tokenizer, _ := convert(t, edit(t, map[string]any{"tokenizer.ggml.pre": pre}))
		steps := tokenizer["pre_tokenizer"].(map[string]any)["pretokenizers"].([]any)
		var got []string
		for _, s := range steps[:len(steps)-1] {
			got = append(got, s.(map[string]any)["pattern"].(map[string]any)["Regex"].(string))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", pre, diff)
		}
	}
}

// SmolLM2 has no token for some control bytes; its engine drops them.
func TestBytesWithoutATokenSplitAndVanish(t *testing.T) {
	tokens := get[[]string](t, "tokenizer.ggml.tokens")
	tokens[3+4], tokens[3+']'] = "x-1", "x-2"
	tokenizer, _ := convert(t, edit(t, map[string]any{"tokenizer.ggml.tokens": tokens}))
	steps := tokenizer["pre_tokenizer"].(map[string]any)["pretokenizers"].([]any)
	want := map[string]any{"type": "Split", "pattern": map[string]any{"Regex": `[\x{104}\x{5d}]`}, "behavior": "Removed", "invert": false}
	if diff := cmp.Diff(want, steps[len(steps)-1]); diff != "" {
		t.Errorf("last step (-want +got):\n%s", diff)
	}
}

func TestBeginAndEndTokensComeFromTheTemplate(t *testing.T) {
	tokenizer, _ := convert(t, edit(t, map[string]any{"tokenizer.ggml.add_bos_token": true, "tokenizer.ggml.add_eos_token": true}))
	post, err := encode(tokenizer["post_processor"].(map[string]any)["single"])
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"SpecialToken":{"id":"<|im_start|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"<|im_end|>","type_id":0}}]`
	if got := strings.TrimSpace(string(post)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestConfigNamesOnlyAddedTokens(t *testing.T) {
	_, config := convert(t, edit(t, map[string]any{
		"tokenizer.ggml.bos_token_id":     uint32(11), // an ordinary byte
		"tokenizer.ggml.padding_token_id": nil,
		"tokenizer.chat_template":         nil,
		"llama.context_length":            nil,
	}))
	want := map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false,
		"bos_token": nil, "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>", "pad_token": nil,
	}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRefused(t *testing.T) {
	tokens := get[[]string](t, "tokenizer.ggml.tokens")
	changed := func(text string) []string {
		c := slices.Clone(tokens)
		c[5] = text
		return c
	}
	const k = "tokenizer.ggml."
	cases := []struct {
		name    string
		changes map[string]any
		want    string
	}{
		{"another model", map[string]any{k + "model": "bert"}, `model "bert" with pre-tokenizer "smollm" is not supported; supported are model "gpt2" with one of ["default" "gpt-2" "smollm"], and model "llama"`},
		{"a space before each text", map[string]any{k + "model": "llama"}, `model "llama" with a space before each text (tokenizer.ggml.add_space_prefix) is not supported`},
		{"no scores", map[string]any{k + "model": "llama", k + "add_space_prefix": false}, "tokenizer.ggml.scores: not in the metadata"},
		{"scores are too few", map[string]any{k + "model": "llama", k + "add_space_prefix": false, k + "scores": []float32{1}}, "tokenizer.ggml.scores has 1 entries for 265 tokens"},
		{"no bytes to fall back on", map[string]any{k + "model": "llama", k + "add_space_prefix": false, k + "scores": make([]float32, 265)}, "tokenizer.ggml.tokens has no token for the byte 0x00"},
		{"another pre-tokenizer", map[string]any{k + "pre": "qwen2"}, `model "gpt2" with pre-tokenizer "qwen2" is not supported`},
		{"no model", map[string]any{k + "model": nil}, "tokenizer.ggml.model: not in the metadata"},
		{"pre is a number", map[string]any{k + "pre": uint32(1)}, "tokenizer.ggml.pre holds uint32"},
		{"no tokens", map[string]any{k + "tokens": nil}, "tokenizer.ggml.tokens: not in the metadata"},
		{"no types", map[string]any{k + "token_type": nil}, "tokenizer.ggml.token_type: not in the metadata"},
		{"no merges", map[string]any{k + "merges": nil}, "tokenizer.ggml.merges: not in the metadata"},
		{"types are too few", map[string]any{k + "token_type": []int32{1}}, "has 1 entries for 265 tokens"},
		{"empty token", map[string]any{k + "tokens": changed("")}, `token 5 is ""`},
		{"token is no UTF-8", map[string]any{k + "tokens": changed("\xff")}, `token 5 is "\xff", want text in UTF-8`},
		{"same token twice", map[string]any{k + "tokens": changed(tokens[4])}, "tokens 4 and 5 are both"},
		{"merge of one", map[string]any{k + "merges": []string{"he"}}, `merge 0 is "he"`},
		{"empty merge", map[string]any{k + "merges": []string{""}}, `merge 0 is ""`},
		{"merge of strangers", map[string]any{k + "merges": []string{"h e", "q q"}}, `merge 1, "q q", needs the token "qq"`},
		{"id out of range", map[string]any{k + "eos_token_id": uint32(9999)}, "tokenizer.ggml.eos_token_id is 9999 and there are 265 tokens"},
		{"begin without a token", map[string]any{k + "add_bos_token": true, k + "bos_token_id": nil}, "tokenizer.ggml.bos_token_id is missing"},
		{"template is a number", map[string]any{"tokenizer.chat_template": uint32(1)}, "tokenizer.chat_template holds uint32"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			files, err := FromGGUF(edit(t, c.changes))
			if files != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant an error with %q", err, c.want)
			}
		})
	}
}

func TestFirstOfEqualMergesCounts(t *testing.T) {
	merges := append(get[[]string](t, "tokenizer.ggml.merges"), "h e")
	tokenizer, _ := convert(t, edit(t, map[string]any{"tokenizer.ggml.merges": merges}))
	if n := len(tokenizer["model"].(map[string]any)["merges"].([]any)); n != len(merges)-1 {
		t.Errorf("%d merges", n)
	}
}

// The merges of SentencePiece follow from the scores: the token with the highest
// score is made first, in each way in which two tokens make it.
func TestSentencePiece(t *testing.T) {
	tokens, types, scores := []string{"<unk>", "<s>", "\n\n"}, []int32{2, 3, 4}, []float32{0, 0, 0}
	for b := range 256 {
		tokens, types, scores = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6), append(scores, 0)
	}
	for _, p := range []struct {
		text  string
		score float32
	}{{"▁", -9}, {"a", -8}, {"b", -7}, {"ab", -2}, {"▁a", -1}, {"▁ab", -3}} {
		tokens, types, scores = append(tokens, p.text), append(types, 1), append(scores, p.score)
	}
	const k = "tokenizer.ggml."
	tokenizer, _ := convert(t, edit(t, map[string]any{
		k + "model": "llama", k + "pre": nil, k + "merges": nil, k + "tokens": tokens, k + "token_type": types, k + "scores": scores,
		k + "add_space_prefix": false, k + "add_bos_token": true,
	}))
	model := tokenizer["model"].(map[string]any)
	want := []any{[]any{"▁", "a"}, []any{"a", "b"}, []any{"▁", "ab"}, []any{"▁a", "b"}}
	if diff := cmp.Diff(want, model["merges"]); diff != "" {
		t.Errorf("merges (-want +got):\n%s", diff)
	}
	if model["byte_fallback"] != true || model["unk_token"] != "<unk>" || tokenizer["pre_tokenizer"] != nil || tokenizer["normalizer"] == nil {
		t.Errorf("%v, pre-tokenizer %v, normalizer %v", model["byte_fallback"], tokenizer["pre_tokenizer"], tokenizer["normalizer"])
	}
	if added := tokenizer["added_tokens"].([]any); len(added) != 3 || added[2].(map[string]any)["content"] != "\n\n" {
		t.Errorf("added tokens %v", added)
	}
	if tokenizer["post_processor"] == nil {
		t.Error("the first token is not added")
	}
}
