package jsonl

import (
	"bytes"
	"fmt"
	"io"
	"slices"
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
	names [64]string
}

// Reset starts on b, which must not change while it is scanned.
func (s *Scanner) Reset(b []byte) {
	s.b, s.i, s.depth, s.keys, s.text = b, 0, 0, s.keys[:0], s.text[:0]
}

// Offset is the position in the buffer, in bytes.
func (s *Scanner) Offset() int { return s.i }

// Again goes back to an offset, to the start of a value.
func (s *Scanner) Again(offset int) { s.i = offset }

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
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return s.b[s.i]
	}
	return s.peek()
}

func (s *Scanner) peek() byte {
	if s.space(); s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// Fields are the names of members that a reader of an object expects. They are
// found without a search, and without one for repetitions, as far as the object has
// them in this order; an object may lack some of them and have others between.
type Fields struct {
	names [][]byte
	next  []string // ,"name": as compact JSON has it behind another member
}

// NewFields returns Fields of 64 names at most.
func NewFields(names ...string) *Fields {
	f := &Fields{}
	for _, name := range names {
		f.names = append(f.names, []byte(name))
		f.next = append(f.next, `,"`+name+`":`)
	}
	return f
}

var noFields = &Fields{}

// Object calls each for every member, with its key, which is valid until Reset, and
// with the scanner at its value. A value that each leaves alone is skipped. The
// fields may be nil.
func (s *Scanner) Object(f *Fields, each func(key []byte) error) error {
	if f == nil {
		f = noFields
	}
	if err := s.open('{', "an object"); err != nil {
		return err
	}
	others := repeats{first: len(s.keys)}
	next, seen := 0, uint64(0)
	for n := 0; ; n++ {
		comma := min(n, 1)
		at := s.i + comma
		field := s.expected(f, next, 1-comma)
		var key []byte
		if field < 0 {
			done, err := s.more(n, '}')
			if done || err != nil {
				s.keys = s.keys[:others.first]
				return err
			}
			at = s.i
			if key, err = s.key(); err != nil {
				return err
			}
			field = slices.IndexFunc(f.names, func(name []byte) bool { return string(name) == string(key) })
			if field < 0 && s.repeats(key, &others) {
				return s.twice(at, key)
			}
		}
		if field >= 0 {
			if key = f.names[field]; seen>>field&1 != 0 {
				return s.twice(at, key)
			}
			seen |= 1 << field
			next = field + 1
		}
		s.space()
		at = s.i
		if each != nil {
			if err := each(key); err != nil {
				return err
			}
		}
		if s.i == at {
			if err := s.Skip(); err != nil {
				return err
			}
		}
	}
}

// expected steps over the key of the first field, from next on, that stands here in
// compact form, and over the comma before it; it returns -1 if there is none. from
// is 1 for a first member, which has no comma.
func (s *Scanner) expected(f *Fields, next, from int) int {
	rest := s.b[s.i:]
	if len(rest) < 3 || rest[1-from] != '"' {
		return -1
	}
	first := rest[2-from]
	for field := next; field < len(f.next); field++ {
		if q := f.next[field][from:]; q[2-from] == first && len(rest) >= len(q) && string(rest[:len(q)]) == q {
			s.i += len(q)
			return field
		}
	}
	return -1
}

func (s *Scanner) twice(at int, key []byte) error {
	s.i = at
	return s.fail("the key %q is there twice in one object", clip(key))
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
		at := s.i
		if each != nil {
			if err := each(); err != nil {
				return err
			}
		}
		if s.i == at {
			if err := s.Skip(); err != nil {
				return err
			}
		}
	}
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
	case c == ',' && n > 0:
		s.i++
	case c == closing:
		s.i++
		s.depth--
		return true, nil
	case n == 0:
		return false, nil
	default:
		return false, s.fail("%s instead of ',' or '%c'", s.found(), closing)
	}
	if s.Peek() == closing {
		return false, s.fail("'%c' after a comma", closing)
	}
	return false, nil
}

// repeats finds keys that an object has twice. mask holds one bit per rough hash,
// so that most keys cost no comparison; large objects use a map.
type repeats struct {
	first int // of the object's keys in Scanner.keys
	mask  uint64
	many  map[string]struct{}
}

// repeats notes a key and says whether it was there before.
func (s *Scanner) repeats(key []byte, r *repeats) bool {
	const few = 64
	if r.many != nil {
		if _, ok := r.many[string(key)]; ok {
			return true
		}
		r.many[string(key)] = struct{}{}
		return false
	}
	h := uint(len(key)) * 7
	if n := len(key); n > 0 {
		h += uint(key[0])*31 + uint(key[n-1])*17 + uint(key[n/2])*13
	}
	bit := uint64(1) << (h % 64)
	if r.mask&bit != 0 {
		for _, k := range s.keys[r.first:] {
			if bytes.Equal(k, key) {
				return true
			}
		}
	}
	r.mask |= bit
	s.keys = append(s.keys, key)
	if len(s.keys)-r.first == few {
		r.many = make(map[string]struct{}, 2*few)
		for _, k := range s.keys[r.first:] {
			r.many[string(k)] = struct{}{}
		}
	}
	return false
}

// key steps over a key and its colon.
func (s *Scanner) key() ([]byte, error) {
	key, escaped, err := s.quoted("a key")
	if err == nil && escaped {
		n := len(s.text)
		s.text, err = s.unescape(s.text, key)
		key = s.text[n:len(s.text):len(s.text)]
	}
	if err != nil {
		return nil, err
	}
	if s.Peek() != ':' {
		return nil, s.fail("%s instead of ':' after the key %q", s.found(), clip(key))
	}
	s.i++
	return key, nil
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

// fail makes an error at the current position. What is not UTF-8 is named first,
// wherever it is.
func (s *Scanner) fail(format string, args ...any) error {
	if err := checkUTF8(s.b); err != nil {
		return err
	}
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
