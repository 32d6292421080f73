// Package gguf reads the metadata and the tensor table of GGUF files, versions
// 2 and 3, little endian. It reads no weights: what the product needs from a
// checkpoint is what it is (architecture, context, licence, tokenizer) and
// whether the file is whole.
//
// The format is described in docs/gguf.md of ggml-org/ggml. A file is
//
//	magic "GGUF", u32 version, u64 tensors, u64 keys
//	keys × {string key, u32 type, value}
//	tensors × {string name, u32 dims, dims × u64, u32 type, u64 offset}
//	padding to general.alignment, then the tensors' data
//
// where a string is a u64 length and its bytes. Files come from strangers, so
// no count or length is believed before it was compared with what is left of
// the file.
package gguf
