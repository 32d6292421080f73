package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// strict reads JSON of a known shape. encoding/json would take a key in another
// case for the same, keep the last of two equal keys, skip unknown ones, and
// round large numbers; each of these lets two readers see two different things
// in one file. It stops at the first error.
type strict struct {
	dec  *json.Decoder
	base int64 // offset of the JSON in what the errors count in
	part string
	path []string
}

// readStrict reads one JSON value, by read, from data, which starts at base and
// is called part in errors.
func readStrict(data []byte, base int64, part string, read func(*strict) error) error {
	d := &strict{dec: json.NewDecoder(bytes.NewReader(data)), base: base, part: part}
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, n := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return d.fail(int64(at), "not UTF-8")
	}
	d.dec.UseNumber()
	if err := read(d); err != nil {
		return err
	}
	end := d.dec.InputOffset()
	if rest := bytes.TrimLeft(data[end:], " \t\r\n"); len(rest) > 0 {
		return d.fail(int64(len(data)-len(rest)), "more follows after the JSON value")
	}
	return nil
}

func (d *strict) fail(at int64, format string, args ...any) error {
	where := d.part
	if len(d.path) > 0 {
		where = strings.Join(d.path, ".")
	}
	return &FormatError{d.base + at, where, fmt.Sprintf(format, args...)}
}

// token returns the next token and the offset of its end.
func (d *strict) token() (json.Token, int64, error) {
	t, err := d.dec.Token()
	at := d.dec.InputOffset()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return nil, at, d.fail(syntax.Offset, "broken JSON: %s", syntax)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, at, d.fail(at, "broken JSON: it ends too early")
	case err != nil:
		return nil, at, d.fail(at, "broken JSON: %v", err)
	}
	return t, at, nil
}

// object reads an object and calls member for the value of each key, which must
// read it. Every key of required must be there.
func (d *strict) object(required []string, member func(key string) error) error {
	t, at, err := d.token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return d.fail(at, "is %s, want an object", kind(t))
	}
	seen := map[string]bool{}
	for d.dec.More() {
		t, at, err := d.token()
		if err != nil {
			return err
		}
		key, _ := t.(string) // an object's keys are strings, or the token is an error
		if seen[key] {
			return d.fail(at, "key %q occurs twice", key)
		}
		seen[key] = true
		d.path = append(d.path, key)
		if err := member(key); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
	}
	_, at, err = d.token()
	if err != nil {
		return err
	}
	for _, key := range required {
		if !seen[key] {
			return d.fail(at, "key %q is missing", key)
		}
	}
	return nil
}

// unknown is the error for a key that has no place here.
func (d *strict) unknown(known ...string) error {
	return d.fail(d.dec.InputOffset(), "unknown key; known are %q", known)
}

// text reads a string; null gives ok false, and is an error unless allowed.
func (d *strict) text(null bool) (s string, ok bool, err error) {
	t, at, err := d.token()
	if err != nil {
		return "", false, err
	}
	if s, ok = t.(string); ok {
		return s, true, nil
	}
	if t == nil && null {
		return "", false, nil
	}
	return "", false, d.fail(at, "is %s, want text", kind(t))
}

// integer reads a whole number from least to 2^63-1, written without fraction
// or exponent.
func (d *strict) integer(least int64) (int64, error) {
	t, at, err := d.token()
	if err != nil {
		return 0, err
	}
	n, ok := t.(json.Number)
	if !ok {
		return 0, d.fail(at, "is %s, want a whole number", kind(t))
	}
	v, err := strconv.ParseInt(n.String(), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, d.fail(at, "%s does not fit 63 bits", n)
	}
	if err != nil {
		return 0, d.fail(at, "%s is not a whole number in plain digits", n)
	}
	if v < least {
		return 0, d.fail(at, "%d is less than %d", v, least)
	}
	return v, nil
}

func (d *strict) truth() (bool, error) {
	t, at, err := d.token()
	if err != nil {
		return false, err
	}
	b, ok := t.(bool)
	if !ok {
		return false, d.fail(at, "is %s, want true or false", kind(t))
	}
	return b, nil
}

// integers reads an array of whole numbers from 0 on.
func (d *strict) integers() ([]int64, error) {
	t, at, err := d.token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('[') {
		return nil, d.fail(at, "is %s, want an array", kind(t))
	}
	out := []int64{}
	for d.dec.More() {
		n, err := d.integer(0)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	_, _, err = d.token()
	return out, err
}

func kind(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case bool:
		return "a truth value"
	case json.Number:
		return "a number"
	case string:
		return "text"
	case json.Delim:
		if t == '[' {
			return "an array"
		}
	}
	return "an object"
}

// marshal writes canonical JSON: keys of structs must be declared in order, and
// texts must not hold the two characters that encoding/json escapes for the
// sake of JavaScript (U+2028, U+2029); for the types here that is RFC 8785.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
