package jsonl

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
)

// maxDepth bounds nesting, so that hostile input cannot exhaust the stack.
const maxDepth = 256

// SyntaxError is a fault in a JSON text.
type SyntaxError struct {
	Offset int // byte, from 0
	Msg    string
	err    error
}

func (e *SyntaxError) Error() string { return e.Msg }
func (e *SyntaxError) Unwrap() error { return e.err }

// Scanner walks one or more JSON values in a buffer, without building them.
// Each method consumes the next value or reports why it cannot; after an error
// the scanner is not used again. Errors are *SyntaxError; input that ends too
// early is io.ErrUnexpectedEOF to errors.Is. Duplicate keys are errors at any
// depth, also in what is skipped.
//
// The zero Scanner is ready for Reset, which keeps its memory.
type Scanner struct {
	b     []byte
	i     int
	depth int
	keys  [][]byte // of the objects that are open, innermost last
	text  []byte   // keys that had escapes, decoded
}

// Reset starts on b, which must not change while it is scanned.
func (s *Scanner) Reset(b []byte) error {
	*s = Scanner{b: b, keys: s.keys[:0], text: s.text[:0]}
	return checkUTF8(b)
}

// Offset is the position in the buffer, in bytes.
func (s *Scanner) Offset() int { return s.i }

// Rest is what has not been scanned, leading white space removed.
func (s *Scanner) Rest() []byte {
	s.space()
	return s.b[s.i:]
}

// Advance moves n bytes on.
func (s *Scanner) Advance(n int) { s.i += n }

// End reports anything but white space behind the last value.
func (s *Scanner) End() error {
	if s.space(); s.i < len(s.b) {
		return s.fail("%s after the end of the value", s.found())
	}
	return nil
}

// Peek returns the first byte of the next value, 0 at the end of the input.
func (s *Scanner) Peek() byte {
	if s.space(); s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// Object calls each for every member, with the scanner at the member's value.
// A value that each leaves alone is skipped. The key is valid during the call.
func (s *Scanner) Object(each func(key []byte) error) error {
	if err := s.open('{', "an object"); err != nil {
		return err
	}
	first, mask := len(s.keys), uint64(0)
	var many map[string]struct{}
	defer func() { s.keys = s.keys[:first] }()
	for n := 0; ; n++ {
		done, err := s.more(n, '}')
		if done || err != nil {
			return err
		}
		at := s.i
		key, err := s.key()
		if err != nil {
			return err
		}
		if s.repeats(key, first, &mask, &many) {
			s.i = at
			return s.fail("the key %q is there twice in one object", clip(key))
		}
		if s.Peek() != ':' {
			return s.fail("%s instead of ':' after the key %q", s.found(), clip(key))
		}
		s.i++
		if err := s.value(func() error { return each(key) }, each == nil); err != nil {
			return err
		}
	}
}

// Array calls each for every element, with the scanner at it. An element that
// each leaves alone is skipped.
func (s *Scanner) Array(each func() error) error {
	if err := s.open('[', "an array"); err != nil {
		return err
	}
	for n := 0; ; n++ {
		done, err := s.more(n, ']')
		if done || err != nil {
			return err
		}
		if err := s.value(each, each == nil); err != nil {
			return err
		}
	}
}

// value lets each consume the value and skips it otherwise.
func (s *Scanner) value(each func() error, skip bool) error {
	s.space()
	if !skip {
		at := s.i
		if err := each(); err != nil {
			return err
		}
		if s.i != at {
			return nil
		}
	}
	return s.Skip()
}

func (s *Scanner) open(c byte, what string) error {
	if s.Peek() != c {
		return s.fail("%s instead of %s", s.found(), what)
	}
	if s.depth++; s.depth > maxDepth {
		return s.fail("nested deeper than %d", maxDepth)
	}
	s.i++
	return nil
}

// more steps over the comma in front of member n, or over the closing bracket.
func (s *Scanner) more(n int, closing byte) (done bool, err error) {
	switch c := s.Peek(); {
	case c == closing && c != 0:
		s.i++
		s.depth--
		return true, nil
	case n == 0:
		return false, nil
	case c != ',':
		return false, s.fail("%s instead of ',' or '%c'", s.found(), closing)
	}
	s.i++
	if s.Peek() == closing {
		return false, s.fail("'%c' after a comma", closing)
	}
	return false, nil
}

// repeats notes a key of the object whose keys start at first and says whether
// it was there before. mask holds one bit per rough hash, so that most keys
// cost no comparison; large objects use a map.
func (s *Scanner) repeats(key []byte, first int, mask *uint64, many *map[string]struct{}) bool {
	const few = 64
	if *many != nil {
		if _, ok := (*many)[string(key)]; ok {
			return true
		}
		(*many)[string(key)] = struct{}{}
		return false
	}
	h := uint(len(key)) * 7
	if n := len(key); n > 0 {
		h += uint(key[0])*31 + uint(key[n-1])*17 + uint(key[n/2])*13
	}
	bit := uint64(1) << (h % 64)
	if *mask&bit != 0 {
		for _, k := range s.keys[first:] {
			if bytes.Equal(k, key) {
				return true
			}
		}
	}
	*mask |= bit
	s.keys = append(s.keys, key)
	if len(s.keys)-first == few {
		*many = make(map[string]struct{}, 2*few)
		for _, k := range s.keys[first:] {
			(*many)[string(k)] = struct{}{}
		}
	}
	return false
}

func (s *Scanner) key() ([]byte, error) {
	raw, escaped, err := s.quoted("a key")
	if err != nil || !escaped {
		return raw, err
	}
	n := len(s.text)
	s.text, err = s.unescape(s.text, raw)
	return s.text[n:len(s.text):len(s.text)], err
}

// AppendText appends the next value, a string, to dst.
func (s *Scanner) AppendText(dst []byte) ([]byte, error) {
	raw, escaped, err := s.quoted("a string")
	if err != nil {
		return dst, err
	}
	if !escaped {
		return append(dst, raw...), nil
	}
	return s.unescape(dst, raw)
}

// Text returns the next value, a string.
func (s *Scanner) Text() (string, error) {
	raw, escaped, err := s.quoted("a string")
	if err != nil {
		return "", err
	}
	if escaped {
		raw, err = s.unescape(nil, raw)
	}
	return string(raw), err
}

// quoted steps over a string and returns what is between the quotes.
func (s *Scanner) quoted(what string) (raw []byte, escaped bool, err error) {
	if s.Peek() != '"' {
		return nil, false, s.fail("%s instead of %s", s.found(), what)
	}
	start := s.i + 1
	for i := start; ; i++ {
		i = plain(s.b, i)
		if i >= len(s.b) {
			break
		}
		switch c := s.b[i]; c {
		case '"':
			s.i = i + 1
			return s.b[start:i], escaped, nil
		case '\\':
			escaped = true
			i++
		default:
			s.i = i
			return nil, false, s.fail("control character 0x%02x in a string", c)
		}
	}
	s.i = len(s.b)
	return nil, false, s.fail("the input ends inside a string")
}

// Int returns the next value, a whole number; 150, 150.0 and 1.5e2 are the
// same.
func (s *Scanner) Int() (int64, error) {
	raw, err := s.Number()
	if err != nil {
		return 0, err
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, nil
	}
	whole, frac, ok := bytes.Cut(raw, []byte{'.'})
	if ok && len(bytes.Trim(frac, "0")) == 0 {
		if n, err := strconv.ParseInt(string(whole), 10, 64); err == nil {
			return n, nil
		}
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		s.i -= len(raw)
		return 0, s.fail("%s is not a whole number of 64 bits", clip(raw))
	}
	return int64(f), nil
}

// Float returns the next value, a number.
func (s *Scanner) Float() (float64, error) {
	raw, err := s.Number()
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		s.i -= len(raw)
		return 0, s.fail("%s does not fit a number of 64 bits", clip(raw))
	}
	return f, nil
}

// Number returns the next value, a number, as it is written.
func (s *Scanner) Number() ([]byte, error) {
	s.space()
	start := s.i
	if s.at('-') {
		s.i++
	}
	for _, name := range []string{"Infinity", "NaN", "nan", "inf"} {
		if bytes.HasPrefix(s.b[s.i:], []byte(name)) {
			name = string(s.b[start:s.i]) + name
			s.i = start
			return nil, s.fail("%s is not a JSON number", name)
		}
	}
	zero := s.at('0')
	switch n := s.digits(); {
	case n == 0:
		return nil, s.fail("%s instead of a value", s.found())
	case zero && n > 1:
		s.i = start
		return nil, s.fail("a number that starts with 0")
	}
	if s.at('.') {
		if s.i++; s.digits() == 0 {
			return nil, s.fail("%s instead of a digit after the point", s.found())
		}
	}
	if s.at('e') || s.at('E') {
		if s.i++; s.at('+') || s.at('-') {
			s.i++
		}
		if s.digits() == 0 {
			return nil, s.fail("%s instead of a digit in the exponent", s.found())
		}
	}
	return s.b[start:s.i], nil
}

func (s *Scanner) at(c byte) bool { return s.i < len(s.b) && s.b[s.i] == c }

func (s *Scanner) digits() (n int) {
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
		n++
	}
	return n
}

// Bool returns the next value, true or false.
func (s *Scanner) Bool() (bool, error) {
	switch s.Peek() {
	case 't':
		return true, s.literal("true")
	case 'f':
		return false, s.literal("false")
	}
	return false, s.fail("%s instead of true or false", s.found())
}

// Null steps over the next value if it is null and says whether it was.
func (s *Scanner) Null() bool {
	return s.Peek() == 'n' && s.literal("null") == nil
}

func (s *Scanner) literal(word string) error {
	rest := s.b[s.i:]
	if bytes.HasPrefix(rest, []byte(word)) {
		s.i += len(word)
		return nil
	}
	if bytes.HasPrefix([]byte(word), rest) {
		s.i = len(s.b)
	}
	return s.fail("%s instead of a value", s.found())
}

// Raw steps over the next value and returns its bytes.
func (s *Scanner) Raw() ([]byte, error) {
	s.space()
	start := s.i
	err := s.Skip()
	return s.b[start:s.i], err
}

// Skip steps over the next value and checks it.
func (s *Scanner) Skip() error {
	switch s.Peek() {
	case '{':
		return s.Object(nil)
	case '[':
		return s.Array(nil)
	case '"':
		raw, escaped, err := s.quoted("a string")
		if err == nil && escaped {
			err = s.checkEscapes(raw)
		}
		return err
	case 't', 'f':
		_, err := s.Bool()
		return err
	case 'n':
		if bytes.HasPrefix(s.b[s.i:], []byte("nan")) {
			break
		}
		return s.literal("null")
	}
	_, err := s.Number()
	return err
}

func (s *Scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return
		}
	}
}

// fail makes an error at the current position.
func (s *Scanner) fail(format string, args ...any) error {
	e := &SyntaxError{Offset: s.i, Msg: fmt.Sprintf(format, args...)}
	if s.i >= len(s.b) {
		e.err = io.ErrUnexpectedEOF
	}
	return e
}

func (s *Scanner) found() string {
	if s.i >= len(s.b) {
		return "the end of the input"
	}
	if c := s.b[s.i]; c < ' ' || c >= 0x7f {
		return fmt.Sprintf("byte 0x%02x", c)
	}
	return fmt.Sprintf("'%c'", s.b[s.i])
}

func clip(b []byte) string {
	const most = 64
	if len(b) > most {
		return string(bytes.ToValidUTF8(b[:most], nil)) + "…"
	}
	return string(b)
}
