package gguftest

import (
	"bytes"

	"assay/rules/internal/gguf"
)

// ChatTemplate is the chat template of Tiny.
const ChatTemplate = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// TinyMetadata is the metadata of Tiny: architecture llama, a context of 512
// tokens, and a byte-level vocabulary with pre-tokenizer "smollm": three control
// tokens (ids 0 to 2), the 256 bytes, and six merged tokens.
func TinyMetadata() []gguf.Entry {
	tokens := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
	types := []int32{3, 3, 3}
	for b := range 256 {
		tokens = append(tokens, byteToken(byte(b)))
		types = append(types, 1)
	}
	merges := []string{"h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o"}
	for _, m := range []string{"he", "ll", "hell", "hello", "Ġw", "Ġwo"} {
		tokens = append(tokens, m)
		types = append(types, 1)
	}
	return []gguf.Entry{
		{Key: "general.architecture", Value: "llama"},
		{Key: "general.name", Value: "Tiny"},
		{Key: "general.license", Value: "apache-2.0"},
		{Key: "general.file_type", Value: uint32(0)}, // all F32
		{Key: "llama.context_length", Value: uint32(512)},
		{Key: "llama.block_count", Value: uint32(1)},
		{Key: "llama.embedding_length", Value: uint32(8)},
		{Key: "tokenizer.ggml.model", Value: "gpt2"},
		{Key: "tokenizer.ggml.pre", Value: "smollm"},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.merges", Value: merges},
		{Key: "tokenizer.ggml.bos_token_id", Value: uint32(1)},
		{Key: "tokenizer.ggml.eos_token_id", Value: uint32(2)},
		{Key: "tokenizer.ggml.unknown_token_id", Value: uint32(0)},
		{Key: "tokenizer.ggml.padding_token_id", Value: uint32(2)},
		{Key: "tokenizer.ggml.add_bos_token", Value: false},
		{Key: "tokenizer.chat_template", Value: ChatTemplate},
	}
}

// Tiny is a whole GGUF file of a few kilobytes: TinyMetadata and one tensor of
// zeros. No engine can run it.
func Tiny() []byte {
	var b bytes.Buffer
	tensor := Tensor{Name: "output_norm.weight", Dims: []uint64{8}, Type: gguf.F32, Data: make([]byte, 32)}
	if err := Write(&b, TinyMetadata(), []Tensor{tensor}); err != nil {
		panic(err) // the constants above are at fault
	}
	return b.Bytes()
}

// byteToken is the printable character that GPT-2's vocabulary uses for a byte:
// printable Latin-1 stands for itself, the rest is moved up from U+0100.
func byteToken(b byte) string {
	printable := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xff && b != 0xad }
	if printable(int(b)) {
		return string(rune(b))
	}
	moved := 0
	for i := range int(b) {
		if !printable(i) {
			moved++
		}
	}
	return string(rune(0x100 + moved))
}
