package container

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/opencontainers/go-digest"
)

// Source is a section to be written: Open must yield exactly Size bytes.
type Source struct {
	Name string
	Size int64
	Open func() (io.ReadCloser, error)
}

// Written is what Write made.
type Written struct {
	Size     int64 // of the whole file, in bytes
	Digest   digest.Digest
	Sections map[string]digest.Digest
}

type headerJSON struct {
	Family   string                 `json:"family"`
	Sections map[string]sectionJSON `json:"sections"`
	Task     string                 `json:"task"`
}

type sectionJSON struct {
	Length int64 `json:"length"`
	Offset int64 `json:"offset"`
}

// Write writes a bundle to w: the sections in the order given, without holding
// one in memory. After an error, what w took is no bundle.
func Write(ctx context.Context, w io.Writer, family, task string, sections []Source) (*Written, error) {
	header, err := plan(family, task, sections)
	if err != nil {
		return nil, err
	}
	whole := digest.SHA256.Digester()
	out := io.MultiWriter(w, whole.Hash())
	head := binary.LittleEndian.AppendUint64([]byte(magic), uint64(len(header)))
	if _, err := out.Write(append(head, header...)); err != nil {
		return nil, fmt.Errorf("bundle: writing the header: %w", err)
	}
	result := &Written{Size: prefix + int64(len(header)), Sections: map[string]digest.Digest{}}
	for _, s := range sections {
		if result.Sections[s.Name], err = copySection(ctx, out, s); err != nil {
			return nil, fmt.Errorf("bundle: section %s: %w", s.Name, err)
		}
		result.Size += s.Size
	}
	result.Digest = whole.Digest()
	return result, nil
}

// plan lays the sections out and returns the header. It reports every section
// that cannot be written.
func plan(family, task string, sections []Source) ([]byte, error) {
	errs := []error{checkText("family", family), checkText("task", task)}
	h := headerJSON{family, make(map[string]sectionJSON, len(sections)), task}
	var offset int64
	for _, s := range sections {
		errs = append(errs, checkName(s.Name))
		if _, dup := h.Sections[s.Name]; dup {
			errs = append(errs, fmt.Errorf("section %q is given twice", s.Name))
		}
		if s.Size < 0 || s.Size > math.MaxInt64-offset {
			errs = append(errs, fmt.Errorf("section %q has a size of %d bytes", s.Name, s.Size))
			continue
		}
		h.Sections[s.Name] = sectionJSON{s.Size, offset}
		offset += s.Size
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	header, err := marshal(h)
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	if len(header) > maxHeader {
		return nil, fmt.Errorf("bundle: the header would have %d bytes, at most %d are allowed", len(header), maxHeader)
	}
	return header, nil
}

func copySection(ctx context.Context, w io.Writer, s Source) (d digest.Digest, err error) {
	r, err := s.Open()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum := digest.SHA256.Digester()
	in := &contextReader{ctx, r}
	n, err := io.Copy(io.MultiWriter(w, sum.Hash()), io.LimitReader(in, s.Size))
	if err != nil {
		return "", err
	}
	if n < s.Size {
		return "", fmt.Errorf("ended after %d bytes, %d were announced", n, s.Size)
	}
	var extra [1]byte
	if n, err := io.ReadFull(in, extra[:]); n > 0 {
		return "", fmt.Errorf("has more than the %d bytes that were announced", s.Size)
	} else if err != io.EOF {
		return "", err
	}
	return sum.Digest(), nil
}

// contextReader ends a copy when the context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}
