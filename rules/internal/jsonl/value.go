package jsonl

import (
	"bytes"
	"math"
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
	raw, escaped, err := s.quoted("a string")
	if err != nil {
		return "", err
	}
	if escaped {
		raw, err = s.unescape(nil, raw)
	}
	return string(raw), err
}

// Name returns the next value, a string of few different ones: it is only
// allocated when it is not the one that was read before in its stead.
func (s *Scanner) Name() (string, error) {
	raw, escaped, err := s.quoted("a string")
	if err != nil || len(raw) == 0 {
		return "", err
	}
	if escaped {
		if raw, err = s.unescape(nil, raw); err != nil {
			return "", err
		}
	}
	name := &s.names[(len(raw)*31+int(raw[0])*7+int(raw[len(raw)-1]))%len(s.names)]
	if *name != string(raw) {
		*name = string(raw)
	}
	return *name, nil
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
	if n, size := digits(s.b[s.i:]); size > 0 {
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

// digits reads the form that nearly all numbers have: 1 to 19 digits, the first
// not 0, and then no more of the number. Else the size is 0.
func digits(b []byte) (n int64, size int) {
	u := uint64(0)
	for size < len(b) && b[size]-'0' <= 9 {
		u = u*10 + uint64(b[size]-'0')
		size++
	}
	if size == 0 || size > 19 || u > math.MaxInt64 || b[0] == '0' && size > 1 || size < len(b) && (b[size] == '.' || b[size]|0x20 == 'e') {
		return 0, 0
	}
	return int64(u), size
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
		return s.Object(nil, nil)
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
