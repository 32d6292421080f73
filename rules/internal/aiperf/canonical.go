package aiperf

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"

	"assay/rules/internal/jsonl"
)

// canonical hashes JSON values in the form of RFC 8785: members sorted by
// UTF-16, no white space, shortest escapes, numbers as ECMAScript writes them.
// It writes to the hash as it goes; a picture in a prompt is not copied.
type canonical struct {
	hash hash.Hash
	w    *bufio.Writer
	text []byte
}

// payload reads the body of a request.
func (c *canonical) payload(s *jsonl.Scanner) (p Payload, err error) {
	if s.Null() {
		return p, nil
	}
	raw, err := s.Raw()
	if err != nil {
		return p, err
	}
	if p.SHA256, err = c.digest(raw); err != nil || raw[0] != '{' {
		return p, err
	}
	var legacy *int64
	err = each(raw, func(s *jsonl.Scanner, key []byte) (err error) {
		switch string(key) {
		case "model":
			if s.Peek() == '"' {
				p.Model, err = s.Text()
			}
		case "stream":
			if !s.Null() {
				p.Stream, err = s.Bool()
			}
		case "max_completion_tokens":
			p.MaxTokens, err = optInt(s)
		case "max_tokens":
			legacy, err = optInt(s)
		case "messages", "prompt":
			p.PromptSHA256, err = c.prompt(s)
		}
		return in(key, err)
	})
	if p.MaxTokens == nil {
		p.MaxTokens = legacy
	}
	return p, err
}

func (c *canonical) prompt(s *jsonl.Scanner) (string, error) {
	if s.Peek() != '"' {
		raw, err := s.Raw()
		if err != nil {
			return "", err
		}
		return c.digest(raw)
	}
	text, err := s.AppendText(c.text[:0])
	c.text = text
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

func (c *canonical) digest(raw []byte) (string, error) {
	if c.hash == nil {
		c.hash = sha256.New()
		c.w = bufio.NewWriter(c.hash)
	}
	c.hash.Reset()
	c.w.Reset(c.hash)
	if err := c.write(raw); err != nil {
		return "", err
	}
	c.w.Flush()
	return hex.EncodeToString(c.hash.Sum(nil)), nil
}

// each walks the members of an object.
func each(raw []byte, member func(s *jsonl.Scanner, key []byte) error) error {
	var s jsonl.Scanner
	if err := s.Reset(raw); err != nil {
		return err
	}
	return s.Object(func(key []byte) error { return member(&s, key) })
}

// write writes one value, which was scanned before.
func (c *canonical) write(raw []byte) error {
	switch raw[0] {
	case '{':
		return c.object(raw)
	case '[':
		return c.array(raw)
	case '"':
		if !bytes.ContainsRune(raw, '\\') {
			c.w.Write(raw)
			return nil
		}
		var s jsonl.Scanner
		if err := s.Reset(raw); err != nil {
			return err
		}
		text, err := s.AppendText(c.text[:0])
		c.text = text
		c.string(text)
		return err
	case 't', 'f', 'n':
		c.w.Write(raw)
		return nil
	}
	c.number(raw)
	return nil
}

func (c *canonical) object(raw []byte) error {
	type member struct{ key, value []byte }
	var members []member
	err := each(raw, func(s *jsonl.Scanner, key []byte) error {
		value, err := s.Raw()
		members = append(members, member{bytes.Clone(key), value})
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.key, b.key) })
	for i, m := range members {
		c.w.WriteByte("{,"[min(i, 1)])
		c.string(m.key)
		c.w.WriteByte(':')
		if err := c.write(m.value); err != nil {
			return err
		}
	}
	if len(members) == 0 {
		c.w.WriteByte('{')
	}
	return c.w.WriteByte('}')
}

func (c *canonical) array(raw []byte) error {
	var s jsonl.Scanner
	if err := s.Reset(raw); err != nil {
		return err
	}
	c.w.WriteByte('[')
	n := 0
	err := s.Array(func() error {
		value, err := s.Raw()
		if err != nil {
			return err
		}
		if n++; n > 1 {
			c.w.WriteByte(',')
		}
		return c.write(value)
	})
	c.w.WriteByte(']')
	return err
}

func (c *canonical) string(text []byte) {
	c.w.WriteByte('"')
	plain := 0
	for i, b := range text {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		c.w.Write(text[plain:i])
		plain = i + 1
		if at := bytes.IndexByte([]byte("\"\\\b\f\n\r\t"), b); at >= 0 {
			c.w.WriteByte('\\')
			c.w.WriteByte(`"\bfnrt`[at])
			continue
		}
		const hexDigits = "0123456789abcdef"
		c.w.WriteString(`\u00`)
		c.w.WriteByte(hexDigits[b>>4])
		c.w.WriteByte(hexDigits[b&15])
	}
	c.w.Write(text[plain:])
	c.w.WriteByte('"')
}

// number writes what ECMAScript's Number.prototype.toString gives. A number
// that float64 cannot hold stays as it is written.
func (c *canonical) number(raw []byte) {
	f, err := strconv.ParseFloat(string(raw), 64)
	switch size := math.Abs(f); {
	case err != nil:
		c.w.Write(raw)
	case f == 0:
		c.w.WriteByte('0')
	case size >= 1e-6 && size < 1e21:
		c.w.Write(strconv.AppendFloat(c.w.AvailableBuffer(), f, 'f', -1, 64))
	default:
		// Go pads the exponent to two digits, ECMAScript does not.
		b := strconv.AppendFloat(nil, f, 'e', -1, 64)
		c.w.Write(bytes.Replace(b, []byte("e-0"), []byte("e-"), 1))
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
