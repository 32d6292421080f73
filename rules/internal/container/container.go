// Package container reads and writes bundles: one file with everything that a
// server is started from, and a section that says where the checkpoint came
// from. A bundle is
//
//	"BUNDLE\x01\x00"
//	u64, little endian: length of the header in bytes, at most 100 MiB
//	header, JSON: {"family": …, "task": …, "sections": {name: {"offset": …, "length": …}}}
//	the sections; offsets count from the end of the header
//
// The writer is deterministic: same sections in the same order, same bytes. The
// reader believes nothing: every byte of the file belongs to the header or to
// exactly one section, or the file is refused.
package container

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

const (
	magic     = "BUNDLE\x01\x00"
	prefix    = int64(len(magic) + 8) // bytes before the header
	maxHeader = 100 << 20
	maxText   = 256 // bytes in a name, a family or a task
)

// Section is a named part of a bundle. Offset and Length are in bytes; Offset
// counts from the end of the header.
type Section struct {
	Name           string
	Offset, Length int64
}

// Bundle is an opened bundle. It stays usable as long as its reader does.
type Bundle struct {
	Family, Task string
	// Sections are in the order of the file.
	Sections []Section

	r       io.ReaderAt
	payload int64 // where offset 0 is in the file
}

// FormatError says where a bundle breaks the format.
type FormatError struct {
	// Offset is in bytes from the start of the file, or of the section where the
	// error lies inside of one.
	Offset int64
	// Where names the part: "magic", "header", "sections.weights.length".
	Where   string
	Problem string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("bundle: byte %d, %s: %s", e.Offset, e.Where, e.Problem)
}

// Section returns the bytes of a section.
func (b *Bundle) Section(name string) (*io.SectionReader, error) {
	for _, s := range b.Sections {
		if s.Name == name {
			return io.NewSectionReader(b.r, b.payload+s.Offset, s.Length), nil
		}
	}
	names := make([]string, len(b.Sections))
	for i, s := range b.Sections {
		names[i] = s.Name
	}
	slices.Sort(names)
	return nil, fmt.Errorf("bundle: no section %q; there are %q", name, names)
}

// checkName accepts what is a plain relative path everywhere, so that sections
// can be unpacked into a folder.
func checkName(name string) error {
	if name == "" || len(name) > maxText {
		return fmt.Errorf("a section's name has 1 to %d bytes, this one has %d", maxText, len(name))
	}
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !plain(r) }); i >= 0 {
		return fmt.Errorf("section name %q has %q at byte %d; letters, digits and ._-/ are allowed", name, []rune(name[i:])[0], i)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || part[0] == '-' {
			return fmt.Errorf("section name %q has the part %q, which is empty or starts with '.' or '-'", name, part)
		}
	}
	return nil
}

// checkText accepts a family or a task: printable, and the same after any
// detour through JSON.
func checkText(what, s string) error {
	if s == "" || len(s) > maxText {
		return fmt.Errorf("a %s has 1 to %d bytes, this one has %d", what, maxText, len(s))
	}
	bad := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if i := strings.IndexFunc(s, bad); i >= 0 {
		return fmt.Errorf("%s %q has a character at byte %d that is not printable", what, s, i)
	}
	return nil
}
