package jsonl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = ones << 7
)

// special marks bytes of x, eight of a string, that are a quote, a backslash or a
// control character by their high bits. Above the lowest it may mark others.
func special(x uint64) uint64 {
	quote, slash := x^(ones*'"'), x^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & highs
}

// plain returns the index of the first byte of b, from i on, that is a quote, a
// backslash or a control character; len(b) or more if there is none. high is not 0
// if there is a byte before that is not ASCII. It looks at eight bytes at a time:
// most of an export is inside strings.
func plain(b []byte, i int) (at int, high uint64) {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		if hit := special(x); hit != 0 {
			n := bits.TrailingZeros64(hit)
			return i + n/8, (high | x&(1<<n-1)) & highs
		}
		high |= x
	}
	for ; i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' '; i++ {
		high |= uint64(b[i])
	}
	return i, high & highs
}

// decode appends the string that starts at start, if its escapes are of two
// characters, as in a JSON text that stands in a string. It copies eight bytes at a
// time and takes back what was too much.
func (s *Scanner) decode(dst []byte, start int) ([]byte, bool) {
	b, i, n := s.b, start, len(dst)
	to, high := slices.Grow(dst, len(b)-start), uint64(0)
	to = to[:cap(to)]
	for i+8 <= len(b) && n+8 <= len(to) {
		x := binary.LittleEndian.Uint64(b[i:])
		binary.LittleEndian.PutUint64(to[n:], x)
		hit := special(x)
		if hit == 0 {
			i, n, high = i+8, n+8, high|x
			continue
		}
		bit := bits.TrailingZeros64(hit) &^ 7
		i, n, high = i+bit/8, n+bit/8, high|x&(1<<bit-1)
		if b[i] == '"' {
			if high&highs != 0 && !utf8.Valid(b[start:i]) {
				return dst, false
			}
			s.i = i + 1
			return to[:n], true
		}
		if b[i] != '\\' || i+1 >= len(b) {
			return dst, false
		}
		c := escapes[b[i+1]]
		if c == 0 {
			return dst, false
		}
		to[n] = c
		i, n = i+2, n+1
	}
	return dst, false
}

// unescape appends the string that raw, the inside of a string at the
// scanner's position, stands for.
func (s *Scanner) unescape(dst, raw []byte) ([]byte, error) {
	dst = slices.Grow(dst, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		if c := escapes[raw[i+1]]; c != 0 {
			dst = append(dst, c)
			i += 2
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
	for i := 0; i < len(raw); {
		at := bytes.IndexByte(raw[i:], '\\')
		if at < 0 {
			return nil
		}
		i += at
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
	if err := checkUTF8(s.b); err != nil {
		return err
	}
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

// checkUTF8 says where b stops being UTF-8. A character that is cut off by the
// end of b is the end of the input, not an error in it.
func checkUTF8(b []byte) error {
	if utf8.Valid(b) {
		return nil
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			if !utf8.FullRune(b[i:]) {
				return &SyntaxError{Offset: len(b), Msg: "the input ends inside a character", err: io.ErrUnexpectedEOF}
			}
			return &SyntaxError{Offset: i, Msg: fmt.Sprintf("byte 0x%02x is not UTF-8", b[i])}
		}
		i += n
	}
	return nil
}
