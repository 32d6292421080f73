package container

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Open reads the header of the bundle of size bytes behind r. A file that does
// not keep to the format gives *FormatError, or several joined.
func Open(r io.ReaderAt, size int64) (*Bundle, error) {
	if size < prefix {
		return nil, &FormatError{size, "prefix", fmt.Sprintf("the file has %d bytes, the magic and the header's length take %d", size, prefix)}
	}
	var head [prefix]byte
	if err := readAt(r, head[:], 0); err != nil {
		return nil, err
	}
	if got := head[:len(magic)]; string(got) != magic {
		return nil, &FormatError{0, "magic", fmt.Sprintf("is %q, want %q: this is no bundle", got, magic)}
	}
	length := binary.LittleEndian.Uint64(head[len(magic):])
	if length > maxHeader {
		return nil, &FormatError{int64(len(magic)), "header length", fmt.Sprintf("is %d bytes, at most %d are allowed", length, maxHeader)}
	}
	if int64(length) > size-prefix {
		return nil, &FormatError{int64(len(magic)), "header length", fmt.Sprintf("is %d bytes, and %d are left of the file's %d", length, size-prefix, size)}
	}
	header := make([]byte, length)
	if err := readAt(r, header, prefix); err != nil {
		return nil, err
	}
	b := &Bundle{r: r, payload: prefix + int64(length)}
	if err := readStrict(header, prefix, "header", b.header); err != nil {
		return nil, err
	}
	slices.SortFunc(b.Sections, func(x, y Section) int {
		return cmp.Or(cmp.Compare(x.Offset, y.Offset), cmp.Compare(x.Length, y.Length), cmp.Compare(x.Name, y.Name))
	})
	if err := b.layout(size); err != nil {
		return nil, err
	}
	return b, nil
}

func readAt(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return &FormatError{off + int64(n), "file", "it ended before its stated size"}
	}
	return fmt.Errorf("bundle: byte %d: %w", off, err)
}

func (b *Bundle) header(d *strict) error {
	keys := []string{"family", "sections", "task"}
	return d.object(keys, func(key string) error {
		var err error
		switch key {
		case "family":
			b.Family, err = d.label(key)
		case "task":
			b.Task, err = d.label(key)
		case "sections":
			err = d.object(nil, func(name string) error { return b.section(d, name) })
		default:
			err = d.unknown(keys...)
		}
		return err
	})
}

func (b *Bundle) section(d *strict, name string) error {
	if err := checkName(name); err != nil {
		return d.fail(d.dec.InputOffset(), "%v", err)
	}
	s := Section{Name: name}
	keys := []string{"length", "offset"}
	err := d.object(keys, func(key string) (err error) {
		switch key {
		case "offset":
			s.Offset, err = d.integer(0)
		case "length":
			s.Length, err = d.integer(0)
		default:
			err = d.unknown(keys...)
		}
		return err
	})
	b.Sections = append(b.Sections, s)
	return err
}

func (d *strict) label(what string) (string, error) {
	s, _, err := d.text(false)
	if err != nil {
		return "", err
	}
	if err := checkText(what, s); err != nil {
		return "", d.fail(d.dec.InputOffset(), "%v", err)
	}
	return s, nil
}

// layout checks that the sections, sorted by offset, fill the rest of the file:
// one after the other, without gap, to the last byte.
func (b *Bundle) layout(size int64) error {
	var errs []error
	fail := func(at int64, where, format string, args ...any) {
		errs = append(errs, &FormatError{b.payload + at, where, fmt.Sprintf(format, args...)})
	}
	room := size - b.payload
	var end int64
	last := "the header"
	for _, s := range b.Sections {
		where := "section " + s.Name
		if s.Offset > room || s.Length > room-s.Offset {
			fail(min(s.Offset, room), where, "%d bytes at offset %d do not fit the %d bytes after the header", s.Length, s.Offset, room)
			continue
		}
		switch {
		case s.Offset < end:
			fail(s.Offset, where, "overlaps %s by %d bytes", last, min(end-s.Offset, s.Length))
		case s.Offset > end:
			fail(end, where, "%d bytes after %s belong to no section", s.Offset-end, last)
		}
		if e := s.Offset + s.Length; e >= end {
			end, last = e, where
		}
	}
	if len(errs) == 0 && end < room {
		fail(end, "file", "%d bytes after %s belong to no section", room-end, last)
	}
	return errors.Join(errs...)
}
