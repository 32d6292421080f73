// Package lockfile reads hash-pinned requirement locks, as
// `uv pip compile --universal --generate-hashes --no-header` writes them: the
// identity of a Python environment. A lock pins every package with == and the
// SHA-256 of every file that may be installed for it, and names no index, so
// that it means the same bytes wherever it is installed from.
//
// The form is that of pip's requirements files, of which a lock uses this much:
//
//	name==version ; marker \
//	    --hash=sha256:… \
//	    --hash=sha256:…
//	    # comment
package lockfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Lock is a parsed lock.
type Lock struct {
	// Packages are sorted by name, version and marker.
	Packages []Package `json:"packages"`
}

// Package is one pinned package. A package can occur several times, for
// different markers.
type Package struct {
	// Hashes are "sha256:" and 64 hexadecimal digits each, sorted.
	Hashes []string `json:"hashes"`
	// Marker is the environment marker as written, with single spaces; empty if
	// the package is always installed.
	Marker string `json:"marker"`
	// Name is in the normal form of PEP 503: lower case, words joined by '-'.
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Error is one thing that is wrong in a lock. Line and Col count from 1, Col in
// bytes.
type Error struct {
	File      string
	Line, Col int
	Problem   string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Problem)
}

// Package returns the pins of a package, one for each marker; none if the lock
// does not have it.
func (l *Lock) Package(name string) []Package {
	name = normalise(name)
	var out []Package
	for _, p := range l.Packages {
		if p.Name == name {
			out = append(out, p)
		}
	}
	return out
}

// Canonical is JSON that is equal for two locks exactly if they pin the same:
// comments, order and layout of the file do not show.
func (l *Lock) Canonical() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(l) // texts cannot fail to encode, nor a buffer to take them
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func (p Package) compare(q Package) int {
	return cmp.Or(cmp.Compare(p.Name, q.Name), cmp.Compare(p.Version, q.Version), cmp.Compare(p.Marker, q.Marker))
}

func (l *Lock) sort() {
	for i := range l.Packages {
		p := &l.Packages[i]
		slices.Sort(p.Hashes)
		p.Hashes = slices.Compact(p.Hashes)
	}
	slices.SortFunc(l.Packages, Package.compare)
}

// normalise is the normal form of a package's name (PEP 503).
func normalise(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return strings.Join(words, "-")
}
