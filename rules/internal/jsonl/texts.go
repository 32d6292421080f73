package jsonl

import "strings"

// textsSize in bytes: many strings of records, which are some tens of bytes long.
const textsSize = 16 << 10

// Texts makes strings that share their memory with others made before and after: an
// allocation each would take longer than the rest of reading them. A string keeps
// some 16 KiB of its neighbours for as long as it is kept.
type Texts struct{ b strings.Builder }

// String returns a string of b's bytes.
func (t *Texts) String(b []byte) string {
	if len(b) > textsSize/16 {
		return string(b)
	}
	if t.b.Cap()-t.b.Len() < len(b) {
		t.b = strings.Builder{}
		t.b.Grow(textsSize)
	}
	start := t.b.Len()
	t.b.Write(b)
	return t.b.String()[start:]
}
