package jsonl

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// AppendText appends the next value, a string, to dst.
func (s *Scanner) AppendText(dst []byte) ([]byte, error) {
	if s.Peek() != '"' {
		return dst, s.fail("%s instead of a string", s.found())
	}
	if text, ok := s.decode(dst, s.i+1); ok {
		return text, nil
	}
	// An escape of another kind, a fault, or the end of the buffer is near.
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
	if raw, ok := s.ascii(); ok {
		return s.texts.String(raw), nil
	}
	raw, escaped, err := s.quoted("a string")
	if err != nil {
		return "", err
	}
	if escaped {
		if s.buf, err = s.unescape(s.buf[:0], raw); err != nil {
			return "", err
		}
		raw = s.buf
	}
	return s.texts.String(raw), nil
}

// Name returns the next value, a string of few different ones: it is only
// allocated when it is not the one that was read before in its stead.
func (s *Scanner) Name() (string, error) {
	raw, ok := s.ascii()
	escaped, err := false, error(nil)
	if !ok {
		raw, escaped, err = s.quoted("a string")
	}
	if err != nil || len(raw) == 0 {
		return "", err
	}
	if escaped {
		if s.buf, err = s.unescape(s.buf[:0], raw); err != nil {
			return "", err
		}
		raw = s.buf
	}
	name := &s.names[(len(raw)*31+int(raw[0])*7+int(raw[len(raw)-1]))%len(s.names)]
	if *name != string(raw) {
		*name = string(raw)
	}
	return *name, nil
}

// ascii steps over a string of ASCII alone, without an escape, and returns what is
// between the quotes. Of any other value it says no.
func (s *Scanner) ascii() (raw []byte, ok bool) {
	b, start := s.b, s.i+1
	if start > len(b) || b[start-1] != '"' {
		return nil, false
	}
	for i := start; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		// As special, and what is not ASCII: then none of its terms needs a mask.
		if hit := (((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones) | (x - ones*' ') | x) & highs; hit != 0 {
			i += bits.TrailingZeros64(hit) / 8
			if b[i] != '"' {
				return nil, false
			}
			s.i = i + 1
			return b[start:i], true
		}
	}
	return nil, false
}

// quoted steps over a string and returns what is between the quotes.
func (s *Scanner) quoted(what string) (raw []byte, escaped bool, err error) {
	if s.Peek() != '"' {
		return nil, false, s.fail("%s instead of %s", s.found(), what)
	}
	start := s.i + 1
	for i, high := start, uint64(0); ; i++ {
		var seen uint64
		if i, seen = plain(s.b, i); i >= len(s.b) {
			break
		}
		high |= seen
		switch c := s.b[i]; c {
		case '"':
			s.i = i + 1
			raw = s.b[start:i]
			if high != 0 && !utf8.Valid(raw) {
				return nil, false, s.fail("") // names the byte
			}
			return raw, escaped, nil
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
	s.space()
	if n, size := s.digitsAt(s.i); size > 0 {
		s.i += size
		return n, nil
	}
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

// OptInt returns the next value, a whole number or null, and whether it is a number.
func (s *Scanner) OptInt() (n int64, known bool, err error) {
	if n, size := s.digitsAt(s.i); size > 0 {
		s.i += size
		return n, true, nil
	}
	if s.Null() {
		return 0, false, nil
	}
	n, err = s.Int()
	return n, true, err
}

// digitsAt reads, at an offset, the form that nearly all numbers have: 1 to 19 digits, the
// first not 0 if there are more, and then no more of the number. Else the size is 0.
func (s *Scanner) digitsAt(i int) (n int64, size int) {
	if i >= len(s.b) {
		return 0, 0
	}
	here := s.ahead(i)
	x := binary.LittleEndian.Uint64(here[:]) ^ ones*'0'
	rest := others(x)
	if rest == 0 {
		n, size = eight(x), 8
		x = binary.LittleEndian.Uint64(here[8:]) ^ ones*'0'
		if rest = others(x); rest == 0 {
			n, size = n*1e8+eight(x), 16
			x = binary.LittleEndian.Uint64(here[16:]) ^ ones*'0'
			rest = others(x)
		}
	}
	k := bits.TrailingZeros64(rest) &^ 7
	if size += k / 8; size == 0 || size > 19 || size > 1 && here[0] == '0' {
		return 0, 0
	}
	n = n*powers[k/8&7] + eight(x<<(64-k)) // a shift by 64, too, gives 0 digits
	if c := here[size]; n < 0 || c == '.' || c|0x20 == 'e' {
		return 0, 0
	}
	return n, size
}

// others marks the bytes of x that are above 9 by their high bits. Above the lowest
// it may mark others.
func others(x uint64) uint64 { return (x + ones*(0x80-10) | x) & highs }

// eight is the number of eight digits from 0 to 9, the first in the lowest byte.
func eight(x uint64) int64 {
	x = x*10 + x>>8 // pairs, in every other byte
	return int64(((x&0x000000ff000000ff)*(100+1000000<<32) + (x>>16&0x000000ff000000ff)*(1+10000<<32)) >> 32)
}

var powers = [8]int64{1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7}

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
	if s.i < len(s.b) && s.b[s.i] > '9' {
		for _, name := range []string{"Infinity", "NaN", "nan", "inf"} {
			if bytes.HasPrefix(s.b[s.i:], []byte(name)) {
				name = string(s.b[start:s.i]) + name
				s.i = start
				return nil, s.fail("%s is not a JSON number", name)
			}
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
		m := s.Members(nil)
		for m.Next() {
		}
		return m.err
	case '[':
		e := s.Elements()
		for e.Next() {
		}
		return e.err
	case '"':
		if _, ok := s.ascii(); ok {
			return nil
		}
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
