package tokenizer

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// The shapes below are those that the tokenizers library reads. It wants every
// key to be there, also those that are null here.

type tokenizerFile struct {
	Version       string       `json:"version"`
	Truncation    *struct{}    `json:"truncation"`
	Padding       *struct{}    `json:"padding"`
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    *replace     `json:"normalizer"`
	PreTokenizer  *sequence    `json:"pre_tokenizer"`
	PostProcessor *template    `json:"post_processor"`
	Decoder       any          `json:"decoder"`
	Model         bpe          `json:"model"`
}

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type sequence struct {
	Type          string `json:"type"`
	PreTokenizers []any  `json:"pretokenizers"`
}

type split struct {
	Type     string            `json:"type"`
	Pattern  map[string]string `json:"pattern"`
	Behavior string            `json:"behavior"`
	Invert   bool              `json:"invert"`
}

type byteLevel struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       bool   `json:"use_regex"`
}

type replace struct {
	Type    string            `json:"type"`
	Pattern map[string]string `json:"pattern"`
	Content string            `json:"content"`
}

type decoders struct {
	Type     string `json:"type"`
	Decoders []any  `json:"decoders"`
}

type template struct {
	Type          string                   `json:"type"`
	Single        []map[string]any         `json:"single"`
	Pair          []map[string]any         `json:"pair"`
	SpecialTokens map[string]templateToken `json:"special_tokens"`
}

type templateToken struct {
	ID     string   `json:"id"`
	IDs    []int    `json:"ids"`
	Tokens []string `json:"tokens"`
}

type bpe struct {
	Type                    string      `json:"type"`
	Dropout                 *float64    `json:"dropout"`
	UnkToken                *string     `json:"unk_token"`
	ContinuingSubwordPrefix *string     `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string     `json:"end_of_word_suffix"`
	FuseUnk                 bool        `json:"fuse_unk"`
	ByteFallback            bool        `json:"byte_fallback"`
	IgnoreMerges            bool        `json:"ignore_merges"`
	Vocab                   byID        `json:"vocab"`
	Merges                  [][2]string `json:"merges"`
}

// byID is a vocabulary that is written in the order of its ids.
type byID []string

func (v byID) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for id, t := range v {
		if id > 0 {
			b.WriteByte(',')
		}
		key, err := encode(t)
		if err != nil {
			return nil, err
		}
		b.Write(bytes.TrimRight(key, "\n"))
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(id))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// gpt2Pattern is how GPT-2 cuts text into words. ByteLevel has it built in as
// use_regex; it is spelled out where another split comes after it.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// splits are the pre-tokenizers by tokenizer.ggml.pre: the steps before
// byte-level encoding, which cut the text where no merge may reach across. They
// are the patterns of llama.cpp, in its order.
var splits = map[string]func() []any{
	"smollm": func() []any { return []any{isolated(`\p{N}`), isolated(gpt2Pattern)} },
	"gpt-2":  func() []any { return []any{isolated(gpt2Pattern)} },
	"default": func() []any {
		return []any{
			isolated(`[\p{P}\$\+<=>\^~\|]+`),
			isolated(gpt2Pattern),
			isolated(`\p{N}+`),
			isolated(`[0-9][0-9][0-9]`),
		}
	},
}

func isolated(pattern string) split {
	return split{"Split", map[string]string{"Regex": pattern}, "Isolated", false}
}

func (v *vocabulary) tokenizer() tokenizerFile {
	f := tokenizerFile{
		Version:       "1.0",
		AddedTokens:   []addedToken{},
		PostProcessor: v.template(),
		Model:         bpe{Type: "BPE", Vocab: v.tokens, Merges: v.merges},
	}
	for id, t := range v.tokens {
		if v.added(id) {
			f.AddedTokens = append(f.AddedTokens, addedToken{ID: id, Content: t, Special: v.types[id] != typeUserDefined})
		}
	}
	if v.split == nil {
		v.sentencePiece(&f)
	} else {
		v.byteLevel(&f)
	}
	return f
}

// sentencePiece is for a vocabulary in which a space is U+2581 and what has no
// token is spelled in bytes.
func (v *vocabulary) sentencePiece(f *tokenizerFile) {
	f.Normalizer = &replace{"Replace", map[string]string{"String": " "}, spaceMark}
	f.Decoder = decoders{"Sequence", []any{
		replace{"Replace", map[string]string{"String": spaceMark}, " "},
		map[string]string{"type": "ByteFallback"}, map[string]string{"type": "Fuse"},
	}}
	f.Model.ByteFallback, f.Model.FuseUnk = true, true
	if v.unk != nil {
		f.Model.UnkToken = &v.tokens[*v.unk]
	}
}

func (v *vocabulary) byteLevel(f *tokenizerFile) {
	steps := append(v.split(), byteLevel{Type: "ByteLevel", TrimOffsets: true})
	if missing := v.missingBytes(); len(missing) > 0 {
		// llama.cpp drops a byte that has no token and merges nothing across the
		// gap; BPE in tokenizers would merge its neighbours.
		steps = append(steps, split{"Split", map[string]string{"Regex": class(missing)}, "Removed", false})
	}
	f.PreTokenizer = &sequence{"Sequence", steps}
	f.Decoder = byteLevel{"ByteLevel", true, true, true}
}

// added says whether a token is found in the text before it is cut into words.
func (v *vocabulary) added(id int) bool {
	t := v.types[id]
	return t == typeControl || t == typeUserDefined || t == typeUnknown
}

// template puts the begin and end tokens around a text, where the model asks
// for it.
func (v *vocabulary) template() *template {
	if !v.addBOS && !v.addEOS {
		return nil
	}
	t := &template{Type: "TemplateProcessing", SpecialTokens: map[string]templateToken{}}
	special := func(id, segment int) map[string]any {
		text := v.tokens[id]
		t.SpecialTokens[text] = templateToken{text, []int{id}, []string{text}}
		return map[string]any{"SpecialToken": map[string]any{"id": text, "type_id": segment}}
	}
	around := func(name string, segment int) []map[string]any {
		var out []map[string]any
		if v.addBOS {
			out = append(out, special(*v.bos, segment))
		}
		out = append(out, map[string]any{"Sequence": map[string]any{"id": name, "type_id": segment}})
		if v.addEOS {
			out = append(out, special(*v.eos, segment))
		}
		return out
	}
	t.Single = around("A", 0)
	t.Pair = append(around("A", 0), around("B", 1)...)
	return t
}

// missingBytes lists the characters that stand for bytes without a token.
func (v *vocabulary) missingBytes() []rune {
	var missing []rune
	for b := range 256 {
		r := byteRune(b)
		if _, ok := v.ids[string(r)]; !ok {
			missing = append(missing, r)
		}
	}
	return missing
}

// byteRune is the character that stands for byte b in a byte-level vocabulary:
// printable Latin-1 stands for itself, and the 33 controls and space, the 34
// from DEL on, and the soft hyphen follow from U+0100 on, in this order.
func byteRune(b int) rune {
	switch {
	case b <= ' ':
		return rune(0x100 + b)
	case b >= 0x7f && b <= 0xa0:
		return rune(0x100 + 33 + b - 0x7f)
	case b == 0xad:
		return 0x100 + 33 + 34
	}
	return rune(b)
}

// class is a character class of a regular expression.
func class(runes []rune) string {
	var b strings.Builder
	b.WriteByte('[')
	for _, r := range runes {
		fmt.Fprintf(&b, `\x{%x}`, r)
	}
	b.WriteByte(']')
	return b.String()
}

type configFile struct {
	TokenizerClass            string  `json:"tokenizer_class"`
	BOS                       *string `json:"bos_token"`
	EOS                       *string `json:"eos_token"`
	Unk                       *string `json:"unk_token"`
	Pad                       *string `json:"pad_token"`
	CleanUpTokenizationSpaces bool    `json:"clean_up_tokenization_spaces"`
	ModelMaxLength            uint64  `json:"model_max_length,omitempty"`
	ChatTemplate              string  `json:"chat_template,omitempty"`
}

func (v *vocabulary) config() configFile {
	// transformers makes each token named here an added one, which would take an
	// ordinary token out of the reach of the merges.
	name := func(id *int) *string {
		if id == nil || !v.added(*id) {
			return nil
		}
		return &v.tokens[*id]
	}
	return configFile{
		TokenizerClass: "PreTrainedTokenizerFast",
		BOS:            name(v.bos),
		EOS:            name(v.eos),
		Unk:            name(v.unk),
		Pad:            name(v.pad),
		ModelMaxLength: v.context,
		ChatTemplate:   v.chatTemplate,
	}
}
