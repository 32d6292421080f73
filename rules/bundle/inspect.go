package bundle

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/go-digest"

	"assay/rules/internal/container"
)

// Contents is what a bundle file holds.
type Contents struct {
	Digest   digest.Digest `json:"digest"`
	Size     int64         `json:"size"` // bytes
	Family   string        `json:"family"`
	Task     string        `json:"task"`
	Sections []Section     `json:"sections"`
	// Provenance is the provenance section in canonical JSON; nil if there is
	// none, and then the bundle can be served but not validated.
	Provenance []byte `json:"-"`
}

// Section is one section of a bundle.
type Section struct {
	Name   string        `json:"name"`
	Size   int64         `json:"size"` // bytes
	Digest digest.Digest `json:"digest"`
}

// Inspect reads a whole bundle file. Errors name the byte and the section.
func Inspect(ctx context.Context, path string) (*Contents, error) {
	f, b, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	c := &Contents{Size: info.Size(), Family: b.Family, Task: b.Task}
	if c.Digest, err = digest.FromReader(f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range b.Sections {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := b.Section(s.Name)
		if err != nil {
			return nil, err
		}
		d, err := digest.FromReader(r)
		if err != nil {
			return nil, fmt.Errorf("%s: section %s: %w", path, s.Name, err)
		}
		c.Sections = append(c.Sections, Section{s.Name, s.Length, d})
	}
	provenance, err := b.Provenance()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.Provenance, err = provenance.Encode()
	return c, err
}

// Open opens a bundle file; the bundle is usable until the file is closed.
func Open(path string) (*os.File, *container.Bundle, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		var b *container.Bundle
		if b, err = container.Open(f, info.Size()); err == nil {
			return f, b, nil
		}
	}
	f.Close()
	return nil, nil, fmt.Errorf("%s: %w", path, err)
}

// Extract writes a section to a file and returns the digest of what it wrote.
func Extract(b *container.Bundle, section, path string) (digest.Digest, error) {
	r, err := b.Section(section)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := digest.SHA256.Digester()
	if _, err := io.Copy(io.MultiWriter(f, h.Hash()), r); err != nil {
		return "", fmt.Errorf("extract section %s: %w", section, err)
	}
	return h.Digest(), f.Close()
}
