package worker

import (
	"strings"
	"unicode/utf8"
)

// Text turns the bytes of tokens into increments that are valid UTF-8: a token
// may end inside a character, and a frame may not. The zero value is ready.
type Text struct {
	held []byte // the beginning of a character, at most three bytes
}

// Add takes a token's bytes and returns what is whole. Bytes that belong to no
// character become U+FFFD.
func (t *Text) Add(token []byte) string {
	data := append(t.held, token...)
	whole := len(data)
	for back := 1; back < utf8.UTFMax && back <= len(data); back++ {
		if start := len(data) - back; utf8.RuneStart(data[start]) {
			if !utf8.FullRune(data[start:]) {
				whole = start
			}
			break
		}
	}
	t.held = append([]byte(nil), data[whole:]...)
	return strings.ToValidUTF8(string(data[:whole]), "\uFFFD")
}

// Rest returns what is left when the answer ends: U+FFFD if it ends inside a
// character, otherwise nothing.
func (t *Text) Rest() string {
	rest := t.held
	t.held = nil
	return strings.ToValidUTF8(string(rest), "\uFFFD")
}
