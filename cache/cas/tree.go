package cas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
)

// Entry is one name in a tree: a file (with the digest of its bytes) or a
// directory (with the digest of its own tree blob).
type Entry struct {
	Name       string        `json:"name"`
	Type       string        `json:"type"` // "file" or "dir"
	Digest     digest.Digest `json:"digest"`
	Size       int64         `json:"size"` // bytes of the file or of the tree blob
	Executable bool          `json:"executable,omitempty"`
}

// Ref is the blob that holds the entry's content.
func (e Entry) Ref() Ref { return Ref{e.Digest, e.Size} }

// Tree is a directory: entries sorted by name. Its encoding is canonical, so
// equal directories have equal digests, whatever their times, owners and modes.
type Tree struct {
	Entries []Entry `json:"entries"`
}

// PutTree stores the directory at dir. Only regular files and directories are
// content; anything else is an error that names it.
func (s *Store) PutTree(ctx context.Context, dir string) (Ref, error) {
	names, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return Ref{}, err
	}
	tree := Tree{Entries: []Entry{}}
	for _, de := range names {
		if err := ctx.Err(); err != nil {
			return Ref{}, err
		}
		path := filepath.Join(dir, de.Name())
		if err := checkName(de.Name()); err != nil {
			return Ref{}, fmt.Errorf("%q: %w", path, err)
		}
		info, err := de.Info()
		if err != nil {
			return Ref{}, err
		}
		e := Entry{Name: de.Name()}
		var ref Ref
		switch {
		case info.IsDir():
			e.Type = "dir"
			ref, err = s.PutTree(ctx, path)
		case info.Mode().IsRegular():
			e.Type, e.Executable = "file", info.Mode()&0o100 != 0
			ref, err = s.PutFile(ctx, path)
		default:
			err = fmt.Errorf("%s is a %s; an output holds regular files and directories only", path, info.Mode().Type())
		}
		if err != nil {
			return Ref{}, err
		}
		e.Digest, e.Size = ref.Digest, ref.Size
		tree.Entries = append(tree.Entries, e)
	}
	return s.PutTreeBlob(tree)
}

// PutTreeBlob stores a tree whose entries are in the store already, sorted by name.
func (s *Store) PutTreeBlob(t Tree) (Ref, error) {
	if err := t.validate(); err != nil {
		return Ref{}, fmt.Errorf("store a tree: %w", err)
	}
	if t.Entries == nil {
		t.Entries = []Entry{} // the empty tree has one encoding
	}
	data, err := json.Marshal(t)
	if err != nil {
		return Ref{}, err
	}
	return s.PutBytes(data)
}

// validate reports the first entry that no directory could have, or that would
// give equal directories unequal encodings.
func (t Tree) validate() error {
	last := ""
	for _, e := range t.Entries {
		if err := checkName(e.Name); err != nil {
			return err
		}
		switch {
		case e.Name <= last:
			return fmt.Errorf("%q is out of order after %q", e.Name, last)
		case e.Type != "file" && e.Type != "dir":
			return fmt.Errorf("%q has type %q", e.Name, e.Type)
		case e.Type == "dir" && e.Executable:
			return fmt.Errorf("%q is an executable directory", e.Name)
		}
		if err := e.Ref().Validate(); err != nil {
			return fmt.Errorf("%q: %w", e.Name, err)
		}
		last = e.Name
	}
	return nil
}

// checkName refuses what is no file name, and names that JSON would alter.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not a file name", name)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("the name %q is not valid UTF-8; rename the file", name)
	}
	return nil
}

// Tree reads and checks one tree blob. A blob that is no tree counts as missing:
// whoever names it as one is wrong, and the producer can make the right one.
func (s *Store) Tree(ref Ref) (Tree, error) {
	return s.tree(context.Background(), ref)
}

func (s *Store) tree(ctx context.Context, ref Ref) (Tree, error) {
	f, err := s.open(ctx, ref)
	if err != nil {
		return Tree{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return Tree{}, fmt.Errorf("read tree %s: %w", ref.Digest, err)
	}
	t, err := decodeTree(data)
	if err != nil {
		return Tree{}, fmt.Errorf("blob %s is no tree (%v): %w", ref.Digest, err, ErrMissing)
	}
	return t, nil
}

func decodeTree(data []byte) (Tree, error) {
	var t Tree
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return Tree{}, err
	}
	return t, t.validate()
}

// Complete checks that every blob of the tree is in the store with its size.
func (s *Store) Complete(ref Ref) error {
	t, err := s.Tree(ref)
	if err != nil {
		return err
	}
	for _, e := range t.Entries {
		if e.Type == "dir" {
			err = s.Complete(e.Ref())
		} else {
			err = s.present(e.Ref())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return nil
}

// Lookup finds the entry at a slash-separated path below the tree; the empty
// path is the tree itself.
func (s *Store) Lookup(ref Ref, path string) (Entry, error) {
	entry := Entry{Type: "dir", Digest: ref.Digest, Size: ref.Size}
	if path == "" {
		return entry, nil
	}
	for name := range strings.SplitSeq(path, "/") {
		if entry.Type != "dir" {
			return Entry{}, fmt.Errorf("%s: %s is a file", path, entry.Name)
		}
		t, err := s.Tree(entry.Ref())
		if err != nil {
			return Entry{}, err
		}
		found := false
		for _, e := range t.Entries {
			if e.Name == name {
				entry, found = e, true
				break
			}
		}
		if !found {
			return Entry{}, fmt.Errorf("the output has no %q", path)
		}
	}
	return entry, nil
}

// Materialise makes the entry appear at path, which must not exist. Files are
// read-only and may share storage with the store: reflink where the file system
// can, hard link, else a copy.
func (s *Store) Materialise(ctx context.Context, e Entry, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.Type == "file" {
		return s.materialiseFile(ctx, e, path)
	}
	t, err := s.tree(ctx, e.Ref())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for _, child := range t.Entries {
		if err := s.Materialise(ctx, child, filepath.Join(path, child.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) materialiseFile(ctx context.Context, e Entry, path string) error {
	src, err := s.open(ctx, e.Ref())
	if err != nil {
		return err
	}
	defer src.Close()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o444)
	if e.Executable {
		mode = 0o555
	}
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer dst.Close()
	if reflink(dst, src) != nil {
		// A hard link shares the mode, so an executable needs a copy of its own.
		if !e.Executable && os.Remove(path) == nil && os.Link(src.Name(), path) == nil {
			return nil
		}
		if dst, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644); err != nil {
			return err
		}
		defer dst.Close()
		if _, err := io.Copy(dst, reader{ctx, src}); err != nil {
			return err
		}
	}
	return errors.Join(dst.Chmod(mode), dst.Close())
}
