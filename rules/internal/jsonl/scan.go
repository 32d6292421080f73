package jsonl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
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
	buf   []byte
	tail  [8 * words]byte
	names [64]string
	texts Texts
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
type Fields struct{ list []field }

// field is a name in the form that compact JSON has it in behind another member,
// ,"name": as words of eight bytes with masks.
type field struct {
	size       int
	form, mask [words]uint64
	name       []byte
}

const words = 4

// NewFields returns Fields of 64 names at most, each of 28 bytes at most.
func NewFields(names ...string) *Fields {
	f := &Fields{}
	for _, name := range names {
		form := `,"` + name + `":`
		q := field{size: len(form), name: []byte(name)}
		if len(form) > 8*words || len(names) > 64 {
			panic("jsonl: too many fields, or too long a name: " + name)
		}
		for i := range len(form) {
			q.form[i/8] |= uint64(form[i]) << (i % 8 * 8)
			q.mask[i/8] |= 0xff << (i % 8 * 8)
		}
		f.list = append(f.list, q)
	}
	return f
}

var noFields = &Fields{}

// Members walks the members of an object:
//
//	for m := s.Members(fields); m.Next(); {
//		switch string(m.Key()) {
//
// with the scanner at the value of each. A value that is left alone is skipped. Err
// says whether the walk ended before the object did.
type Members struct {
	s      *Scanner
	list   []field
	field  int    // of the member, in list; or other
	next   int    // the field that is expected
	seen   uint64 // fields
	at     int    // of the value; -1 before the first member
	first  uint64 // makes the brace before the first member a comma
	key    []byte // of another
	others repeats
	err    error
}

// Members steps into the next value, an object. The fields may be nil.
func (s *Scanner) Members(f *Fields) (m Members) {
	if f == nil {
		f = noFields
	}
	m.s, m.list, m.others.first, m.at, m.first = s, f.list, len(s.keys), -1, ','^'{'
	if m.err = s.open('{', "an object"); m.err == nil {
		s.i-- // back to the brace, which stands where commas do
	}
	return m
}

// Key is the name of the member, valid until Reset.
func (m *Members) Key() []byte {
	if m.field >= 0 {
		return m.list[m.field].name
	}
	return m.key
}

// Err is the fault that ended the walk, nil at the end of the object.
func (m *Members) Err() error { return m.err }

// Next goes to the next member.
func (m *Members) Next() bool {
	s := m.s
	if s.i == m.at && m.err == nil {
		m.err = s.Skip()
	}
	if m.err != nil {
		return false
	}
	b, i := s.b, s.i
	if i < len(b) {
		here := s.ahead(i)
		x := binary.LittleEndian.Uint64(here[:]) ^ m.first
		list := m.list
		for n := m.next; n < len(list); n++ {
			q := &list[n]
			if (x^q.form[0])&q.mask[0] != 0 ||
				(binary.LittleEndian.Uint64(here[8:])^q.form[1])&q.mask[1]|
					(binary.LittleEndian.Uint64(here[16:])^q.form[2])&q.mask[2]|
					(binary.LittleEndian.Uint64(here[24:])^q.form[3])&q.mask[3] != 0 {
				continue
			}
			bit := uint64(1) << (n & 63)
			i += q.size
			if m.seen&bit != 0 || i >= len(b) || b[i] <= ' ' {
				i = s.i // a search says what is wrong, or steps over the space
				break
			}
			m.seen |= bit
			m.field, m.next, m.first, m.at, s.i = n, n+1, 0, i, i
			return true
		}
		// The end in compact form.
		if b[i] == '}' {
			s.i = i + 1
			m.leave()
			return false
		}
	}
	return m.search()
}

// ahead is what stands at i, and zeros behind the end.
func (s *Scanner) ahead(i int) *[8 * words]byte {
	if len(s.b)-i >= 8*words {
		return (*[8 * words]byte)(s.b[i:])
	}
	s.tail = [8 * words]byte{}
	copy(s.tail[:], s.b[i:])
	return &s.tail
}

const other = -1 // a member that is none of the fields

// search is Next for a member in whatever form it is.
func (m *Members) search() bool {
	s, n := m.s, 1
	if m.at < 0 {
		s.i++ // the brace
		n = 0
	}
	done, err := s.more(n, '}')
	if done {
		m.leave()
		return false
	}
	at := s.i
	if err == nil {
		m.key, err = s.key()
	}
	if err != nil {
		m.err = err
		return false
	}
	m.field, m.first = other, 0
	for i := range m.list {
		if string(m.list[i].name) == string(m.key) {
			m.field, m.next = i, i+1
			break
		}
	}
	twice := false
	if m.field == other {
		twice = s.repeats(m.key, &m.others)
	} else {
		bit := uint64(1) << m.field
		twice = m.seen&bit != 0
		m.seen |= bit
	}
	if twice {
		m.err = s.twice(at, m.key)
		return false
	}
	s.space()
	m.at = s.i
	return true
}

// leave forgets the keys of the object.
func (m *Members) leave() {
	m.s.depth--
	m.s.keys = m.s.keys[:m.others.first]
}

// Object calls each for every member, with its key, as Members does.
func (s *Scanner) Object(f *Fields, each func(key []byte) error) error {
	m := s.Members(f)
	for m.Next() {
		if err := each(m.Key()); err != nil {
			return err
		}
	}
	return m.err
}

func (s *Scanner) twice(at int, key []byte) error {
	s.i = at
	return s.fail("the key %q is there twice in one object", clip(key))
}

// Elements walks the elements of an array, as Members does those of an object.
type Elements struct {
	s    *Scanner
	at   int // of the element
	more bool
	err  error
}

// Elements steps into the next value, an array.
func (s *Scanner) Elements() (e Elements) {
	e.s = s
	e.err = s.open('[', "an array")
	return e
}

// Err is the fault that ended the walk, nil at the end of the array.
func (e *Elements) Err() error { return e.err }

// Next goes to the next element.
func (e *Elements) Next() bool {
	s, n := e.s, 0
	if e.more {
		n = 1
	}
	if e.err == nil && e.more && s.i == e.at {
		e.err = s.Skip()
	}
	if e.err != nil {
		return false
	}
	done, err := s.more(n, ']')
	if e.err = err; done || err != nil {
		s.depth--
		return false
	}
	e.at, e.more = s.i, true
	return true
}

// Array calls each for every element, as Elements does.
func (s *Scanner) Array(each func() error) error {
	e := s.Elements()
	for e.Next() {
		if err := each(); err != nil {
			return err
		}
	}
	return e.err
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
