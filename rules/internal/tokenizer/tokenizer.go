// Package tokenizer writes the Hugging Face tokenizer of a GGUF checkpoint:
// tokenizer.json and tokenizer_config.json, from nothing but the metadata of the
// file that is served. A load generator that counts tokens with them counts what
// the engine counts, and no tokenizer has to be fetched from anywhere.
//
// The reference for what the metadata means is llama.cpp (src/llama-vocab.cpp
// and src/unicode.cpp); for the files it is the tokenizers library. For every
// text the two give the same ids, but for four things that no file can settle:
//   - Where two added tokens overlap in a text, llama.cpp takes the longest
//     first and tokenizers the leftmost.
//   - The two classify a few dozen characters that are newer than Unicode 15
//     (the Kirat Rai digits, say) by tables of different age.
//   - Types of tokens are taken as the metadata have them; llama.cpp also turns
//     well-known texts ("<|im_end|>", "</s>") into control tokens where a
//     converter forgot to.
//   - Where two pairs of neighbours of a SentencePiece text would make the same
//     token and overlap ("a", "aa", "a"), llama.cpp takes the leftmost and
//     tokenizers the one that comes first in its list.
package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"assay/rules/internal/gguf"
)

// Files are the two files that transformers' AutoTokenizer reads from a folder.
// Their bytes depend on the metadata alone.
type Files struct {
	TokenizerJSON []byte // tokenizer.json
	ConfigJSON    []byte // tokenizer_config.json
}

// The values of tokenizer.ggml.model there are writers for: byte-level BPE, and
// BPE of SentencePiece, whose merges follow from the scores of the tokens.
const (
	modelBPE           = "gpt2"
	modelSentencePiece = "llama"
)

// spaceMark is how SentencePiece writes a space.
const spaceMark = "\u2581"

// Token types (llama_token_type).
const (
	typeNormal      = 1
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
)

// FromGGUF writes the tokenizer of f. A tokenizer of another kind than those
// supported, and metadata that do not fit together, are errors.
func FromGGUF(f *gguf.File) (*Files, error) {
	v, err := readVocabulary(f)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	tokenizerJSON, err := encode(v.tokenizer())
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	configJSON, err := encode(v.config())
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return &Files{tokenizerJSON, configJSON}, nil
}

// vocabulary is the tokenizer part of the metadata, checked.
type vocabulary struct {
	split  func() []any // pre-tokenizers that come before the byte-level one; nil for SentencePiece
	tokens []string     // by id
	ids    map[string]int
	types  []int64     // by id
	merges [][2]string // by rank

	bos, eos, unk, pad *int // ids
	addBOS, addEOS     bool

	chatTemplate string
	context      uint64 // in tokens; 0 is not known
}

func readVocabulary(f *gguf.File) (*vocabulary, error) {
	model, err := f.String("tokenizer.ggml.model")
	if err != nil {
		return nil, err
	}
	pre, err := optional(f.String("tokenizer.ggml.pre"))
	if err != nil {
		return nil, err
	}
	if pre == "" {
		pre = "default"
	}
	split, ok := splits[pre]
	if model != modelSentencePiece && (model != modelBPE || !ok) {
		return nil, fmt.Errorf("model %q with pre-tokenizer %q is not supported; supported are model %q with one of %q, and model %q",
			model, pre, modelBPE, slices.Sorted(maps.Keys(splits)), modelSentencePiece)
	}
	v := &vocabulary{}
	if model == modelBPE {
		v.split = split
	}
	if v.tokens, err = f.Strings("tokenizer.ggml.tokens"); err != nil {
		return nil, err
	}
	if v.ids, err = idsOf(v.tokens); err != nil {
		return nil, err
	}
	if v.types, err = f.Ints("tokenizer.ggml.token_type"); err != nil {
		return nil, err
	}
	if len(v.types) != len(v.tokens) {
		return nil, fmt.Errorf("tokenizer.ggml.token_type has %d entries for %d tokens", len(v.types), len(v.tokens))
	}
	if model == modelSentencePiece {
		err = v.readScores(f)
	} else {
		err = v.readMerges(f)
	}
	if err != nil {
		return nil, err
	}
	return v, v.readSpecial(f)
}

func (v *vocabulary) readMerges(f *gguf.File) error {
	merges, err := f.Strings("tokenizer.ggml.merges")
	if err != nil {
		return err
	}
	v.merges, err = splitMerges(merges, v.ids)
	return err
}

// readScores derives the merges: of all neighbours that make a token together,
// SentencePiece joins those whose token has the highest score.
func (v *vocabulary) readScores(f *gguf.File) error {
	// llama.cpp puts a space before a text unless the file says otherwise; no such
	// tokenizer has been tried here.
	if prefix, err := f.Bool("tokenizer.ggml.add_space_prefix"); prefix || errors.Is(err, gguf.ErrAbsent) {
		return fmt.Errorf("model %q with a space before each text (tokenizer.ggml.add_space_prefix) is not supported", modelSentencePiece)
	} else if err != nil {
		return err
	}
	scores, err := f.Floats("tokenizer.ggml.scores")
	if err != nil {
		return err
	}
	if len(scores) != len(v.tokens) {
		return fmt.Errorf("tokenizer.ggml.scores has %d entries for %d tokens", len(scores), len(v.tokens))
	}
	for b := range 256 {
		if _, ok := v.ids[fmt.Sprintf("<0x%02X>", b)]; !ok {
			return fmt.Errorf("tokenizer.ggml.tokens has no token for the byte 0x%02X", b)
		}
	}
	normal := func(token string) (id int, ok bool) {
		id, ok = v.ids[token]
		return id, ok && v.types[id] == typeNormal
	}
	type merge struct{ left, right, whole int }
	var merges []merge
	for id, t := range v.tokens {
		if v.types[id] != typeNormal {
			continue
		}
		for at := range t {
			left, ok := normal(t[:at])
			right, too := normal(t[at:])
			if ok && too {
				merges = append(merges, merge{left, right, id})
			}
		}
	}
	slices.SortStableFunc(merges, func(a, b merge) int {
		return cmp.Or(cmp.Compare(scores[b.whole], scores[a.whole]), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right))
	})
	v.merges = make([][2]string, len(merges))
	for rank, m := range merges {
		v.merges[rank] = [2]string{v.tokens[m.left], v.tokens[m.right]}
	}
	return nil
}

// readSpecial reads what the file says of single tokens and of the template.
func (v *vocabulary) readSpecial(f *gguf.File) error {
	var errs []error
	id := func(name string) *int {
		key := "tokenizer.ggml." + name + "_token_id"
		n, err := f.Uint(key)
		switch {
		case errors.Is(err, gguf.ErrAbsent):
			return nil
		case err != nil:
			errs = append(errs, err)
			return nil
		case n >= uint64(len(v.tokens)):
			errs = append(errs, fmt.Errorf("%s is %d and there are %d tokens", key, n, len(v.tokens)))
			return nil
		}
		i := int(n)
		return &i
	}
	flag := func(name string) bool {
		b, err := optional(f.Bool("tokenizer.ggml." + name))
		errs = append(errs, err)
		return b
	}
	v.bos, v.eos, v.unk, v.pad = id("bos"), id("eos"), id("unknown"), id("padding")
	v.addBOS, v.addEOS = flag("add_bos_token"), flag("add_eos_token")
	if v.addBOS && v.bos == nil {
		errs = append(errs, errors.New("tokenizer.ggml.add_bos_token is true and tokenizer.ggml.bos_token_id is missing"))
	}
	if v.addEOS && v.eos == nil {
		errs = append(errs, errors.New("tokenizer.ggml.add_eos_token is true and tokenizer.ggml.eos_token_id is missing"))
	}
	var err error
	v.chatTemplate, err = optional(f.String("tokenizer.chat_template"))
	errs = append(errs, err)
	if arch, err := f.String("general.architecture"); err == nil {
		v.context, err = optional(f.Uint(arch + ".context_length"))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// optional turns the error for a missing key into the zero value.
func optional[T any](v T, err error) (T, error) {
	if errors.Is(err, gguf.ErrAbsent) {
		return v, nil
	}
	return v, err
}

// idsOf indexes the tokens by text, which must be unique UTF-8: JSON can hold
// nothing else.
func idsOf(tokens []string) (map[string]int, error) {
	ids := make(map[string]int, len(tokens))
	for id, t := range tokens {
		if t == "" || !utf8.ValidString(t) {
			return nil, fmt.Errorf("token %d is %q, want text in UTF-8", id, t)
		}
		if first, dup := ids[t]; dup {
			return nil, fmt.Errorf("tokens %d and %d are both %q", first, id, t)
		}
		ids[t] = id
	}
	return ids, nil
}

// splitMerges takes each merge apart at its first space that is not its first
// byte, as llama.cpp does. Of equal merges the first counts.
func splitMerges(merges []string, ids map[string]int) ([][2]string, error) {
	out := make([][2]string, 0, len(merges))
	seen := make(map[[2]string]bool, len(merges))
	for rank, m := range merges {
		at := -1
		if m != "" {
			at = strings.IndexByte(m[1:], ' ')
		}
		if at < 0 {
			return nil, fmt.Errorf("merge %d is %q, want two tokens with a space between", rank, m)
		}
		pair := [2]string{m[:at+1], m[at+2:]}
		for _, t := range []string{pair[0], pair[1], pair[0] + pair[1]} {
			if _, ok := ids[t]; !ok {
				return nil, fmt.Errorf("merge %d, %q, needs the token %q, which is not in the vocabulary", rank, m, t)
			}
		}
		if !seen[pair] {
			seen[pair] = true
			out = append(out, pair)
		}
	}
	return out, nil
}

// encode writes JSON as a person would: nothing escaped that need not be.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
