package aiperf

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"

	"assay/rules/internal/jsonl"
)

// canonical puts JSON values into the form of RFC 8785: members sorted by UTF-16,
// no white space, shortest escapes, numbers as ECMAScript writes them.
type canonical struct {
	out     []byte
	members []member // of the objects that are open, innermost last
	scratch []byte
	text    []byte
}

// member is one of an object, as it is in out from its key to the end of its value.
type member struct {
	key      []byte
	from, to int
}

var payloadFields = jsonl.NewFields("messages", "prompt", "model", "stream", "max_tokens", "max_completion_tokens", "stream_options")

// payload reads the body of a request.
func (c *canonical) payload(s *jsonl.Scanner, ints *ints) (p Payload, err error) {
	if s.Null() {
		return p, nil
	}
	c.out, c.members = c.out[:0], c.members[:0]
	if s.Peek() != '{' {
		err = c.value(s)
	} else {
		var legacy *int64
		err = c.object(s, payloadFields, func(key, value []byte) (err error) {
			switch string(key) {
			case "model":
				if s.Peek() == '"' {
					p.Model, err = s.Name()
				}
			case "stream":
				if !s.Null() {
					p.Stream, err = s.Bool()
				}
			case "max_completion_tokens":
				p.MaxTokens, err = ints.read(s)
			case "max_tokens":
				legacy, err = ints.read(s)
			case "messages", "prompt":
				if value[0] == '"' {
					c.text, err = s.AppendText(c.text[:0])
					value = c.text
				}
				p.PromptSHA256 = sha256.Sum256(value)
			}
			return in(key, err)
		})
		if p.MaxTokens == nil {
			p.MaxTokens = legacy
		}
	}
	p.SHA256 = sha256.Sum256(c.out)
	return p, err
}

// value appends the next value.
func (c *canonical) value(s *jsonl.Scanner) error {
	switch s.Peek() {
	case '{':
		return c.object(s, messageFields, nil)
	case '[':
		c.out = append(c.out, '[')
		n := 0
		err := s.Array(func() error {
			if n++; n > 1 {
				c.out = append(c.out, ',')
			}
			return c.value(s)
		})
		c.out = append(c.out, ']')
		return err
	}
	at := s.Offset()
	raw, err := s.Raw()
	switch {
	case err != nil:
		return err
	case raw[0] == '"' && bytes.IndexByte(raw, '\\') >= 0:
		s.Again(at)
		c.text, err = s.AppendText(c.text[:0])
		c.string(c.text)
		return err
	case raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9':
		c.number(raw)
		return nil
	}
	c.out = append(c.out, raw...)
	return nil
}

// object appends the next value, an object. look, if there is one, sees each
// member in canonical form, with the scanner at its value as it was written.
func (c *canonical) object(s *jsonl.Scanner, fields *jsonl.Fields, look func(key, value []byte) error) error {
	first, start, sorted := len(c.members), len(c.out), true
	c.out = append(c.out, '{')
	err := s.Object(fields, func(key []byte) error {
		if n := len(c.members); n > first {
			c.out = append(c.out, ',')
			sorted = sorted && compareUTF16(c.members[n-1].key, key) < 0
		}
		from := len(c.out)
		c.string(key)
		c.out = append(c.out, ':')
		at, value := s.Offset(), len(c.out)
		if err := c.value(s); err != nil {
			return err
		}
		c.members = append(c.members, member{key, from, len(c.out)})
		if look == nil {
			return nil
		}
		end := s.Offset()
		s.Again(at)
		err := look(key, c.out[value:])
		s.Again(end)
		return err
	})
	c.out = append(c.out, '}')
	if !sorted {
		c.sort(c.members[first:], start)
	}
	c.members = c.members[:first]
	return err
}

// sort puts the members of the object at start into their order.
func (c *canonical) sort(members []member, start int) {
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.key, b.key) })
	c.scratch = c.scratch[:0]
	for i, m := range members {
		c.scratch = append(c.scratch, "{,"[min(i, 1)])
		c.scratch = append(c.scratch, c.out[m.from:m.to]...)
	}
	copy(c.out[start:], c.scratch)
}

func (c *canonical) string(text []byte) {
	c.out = append(c.out, '"')
	plain := 0
	for i, b := range text {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		c.out = append(c.out, text[plain:i]...)
		plain = i + 1
		if at := bytes.IndexByte([]byte("\"\\\b\f\n\r\t"), b); at >= 0 {
			c.out = append(c.out, '\\', `"\bfnrt`[at])
			continue
		}
		const hexDigits = "0123456789abcdef"
		c.out = append(c.out, `\u00`...)
		c.out = append(c.out, hexDigits[b>>4], hexDigits[b&15])
	}
	c.out = append(c.out, text[plain:]...)
	c.out = append(c.out, '"')
}

// number writes what ECMAScript's Number.prototype.toString gives. A number
// that float64 cannot hold stays as it is written.
func (c *canonical) number(raw []byte) {
	const exact = 15 // digits that float64 keeps
	if len(raw) <= exact && raw[0] != '-' && !bytes.ContainsAny(raw, ".eE") {
		c.out = append(c.out, raw...)
		return
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	switch size := math.Abs(f); {
	case err != nil:
		c.out = append(c.out, raw...)
	case f == 0:
		c.out = append(c.out, '0')
	case size >= 1e-6 && size < 1e21:
		c.out = strconv.AppendFloat(c.out, f, 'f', -1, 64)
	default:
		// Go pads the exponent to two digits, ECMAScript does not.
		b := strconv.AppendFloat(nil, f, 'e', -1, 64)
		c.out = append(c.out, bytes.Replace(b, []byte("e-0"), []byte("e-"), 1)...)
	}
}

// compareUTF16 orders as RFC 8785 does: by UTF-16 code units, which differs
// from the order of bytes beyond the basic plane.
func compareUTF16(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] >= 0x80 || b[i] >= 0x80 {
			return slices.Compare(utf16.Encode([]rune(string(a))), utf16.Encode([]rune(string(b))))
		}
		if a[i] != b[i] {
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
