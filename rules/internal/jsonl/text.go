package jsonl

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// plain returns the index of the first byte of b, from i on, that is a quote, a
// backslash or a control character; len(b) or more if there is none. It looks
// at eight bytes at a time: most of an export is inside long strings.
func plain(b []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// The lowest high bit that is set marks the first such byte.
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}

// unescape appends the string that raw, the inside of a string at the
// scanner's position, stands for.
func (s *Scanner) unescape(dst, raw []byte) ([]byte, error) {
	for i := 0; i < len(raw); {
		if c := raw[i]; c != '\\' {
			next := plain(raw, i)
			dst = append(dst, raw[i:next]...)
			i = next
			continue
		}
		r, n, msg := escape(raw[i:])
		if msg != "" {
			return dst, s.failIn(raw, i, msg)
		}
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst, nil
}

func (s *Scanner) checkEscapes(raw []byte) error {
	for i := plain(raw, 0); i < len(raw); i = plain(raw, i) {
		_, n, msg := escape(raw[i:])
		if msg != "" {
			return s.failIn(raw, i, msg)
		}
		i += n
	}
	return nil
}

// failIn makes an error at raw[i]; raw ends at the quote before the scanner.
func (s *Scanner) failIn(raw []byte, i int, msg string) error {
	return &SyntaxError{Offset: s.i - 1 - len(raw) + i, Msg: msg}
}

var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape decodes the escape that b, the rest of a string, starts with.
func escape(b []byte) (r rune, n int, msg string) {
	if b[1] != 'u' {
		if c := escapes[b[1]]; c != 0 {
			return rune(c), 2, ""
		}
		return 0, 0, fmt.Sprintf("unknown escape \\%s", clip(b[1:2]))
	}
	u, ok := hex4(b[2:])
	if !ok {
		return 0, 0, "\\u without four hex digits"
	}
	if !utf16.IsSurrogate(u) {
		return u, 6, ""
	}
	if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if low, ok := hex4(b[8:]); ok {
			if r := utf16.DecodeRune(u, low); r != utf8.RuneError {
				return r, 12, ""
			}
		}
	}
	return 0, 0, fmt.Sprintf("\\u%04x is half of a surrogate pair", u)
}

func hex4(b []byte) (u rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		u = u<<4 | rune(c)
	}
	return u, true
}
