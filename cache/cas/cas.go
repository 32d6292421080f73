// Package cas is the content store: blobs under the digest of their bytes, and
// Merkle trees of blobs. A blob is durable before anything names it; a blob that
// no longer has its digest's bytes is moved to quarantine and counts as missing.
package cas

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/opencontainers/go-digest"

	"assay/cache/durable"
)

// ErrMissing is wrapped by every error that means "not in the store"; the
// remedy is to run the producer again.
var ErrMissing = errors.New("not in the store")

// Ref names a blob: digest and size in bytes. The size is checked on every
// access, the digest on the first read of each process.
type Ref struct {
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"`
}

// Store is a content store in a directory. It may be shared by processes.
type Store struct {
	root     string
	verified sync.Map // digest.Digest → struct{}: read and checked by this process
}

// Open opens or creates the store at root.
func Open(root string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(root, "sha256"), 0o755); err != nil {
		return nil, fmt.Errorf("open content store: %w", err)
	}
	return &Store{root: root}, nil
}

func (s *Store) path(d digest.Digest) string {
	hex := d.Encoded()
	return filepath.Join(s.root, "sha256", hex[:2], hex)
}

// Put stores all of r.
func (s *Store) Put(r io.Reader) (Ref, error) {
	f, err := durable.Create(filepath.Join(s.root, "sha256", "incoming"), 0o444)
	if err != nil {
		return Ref{}, err
	}
	defer f.Discard()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), r)
	if err != nil {
		return Ref{}, err
	}
	ref := Ref{digest.NewDigest(digest.SHA256, h), n}
	if s.present(ref) == nil {
		return ref, nil
	}
	path := s.path(ref.Digest)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return Ref{}, err
	}
	return ref, f.Commit(path)
}

// PutBytes stores data.
func (s *Store) PutBytes(data []byte) (Ref, error) {
	ref := Ref{digest.FromBytes(data), int64(len(data))}
	if s.present(ref) == nil {
		return ref, nil
	}
	return ref, durable.WriteFile(s.path(ref.Digest), data, 0o444)
}

// PutFile stores a copy of the file at path.
func (s *Store) PutFile(path string) (Ref, error) {
	f, err := os.Open(path)
	if err != nil {
		return Ref{}, err
	}
	defer f.Close()
	return s.Put(f)
}

// present reports whether the blob is there with its size.
func (s *Store) present(ref Ref) error {
	if err := ref.Digest.Validate(); err != nil {
		return fmt.Errorf("blob %q: %w", ref.Digest, err)
	}
	info, err := os.Lstat(s.path(ref.Digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("blob %s: %w", ref.Digest, ErrMissing)
	case err != nil:
		return err
	case info.Size() != ref.Size:
		return s.quarantine(ref.Digest, fmt.Sprintf("has %d bytes, its record says %d", info.Size(), ref.Size))
	}
	return nil
}

// verify checks the blob's bytes against its digest, once per process.
func (s *Store) verify(ref Ref) error {
	if err := s.present(ref); err != nil {
		return err
	}
	if _, ok := s.verified.Load(ref.Digest); ok {
		return nil
	}
	f, err := os.Open(s.path(ref.Digest))
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("read blob %s: %w", ref.Digest, err)
	}
	if got := digest.NewDigest(digest.SHA256, h); got != ref.Digest {
		return s.quarantine(ref.Digest, "its bytes have digest "+got.String())
	}
	s.verified.Store(ref.Digest, struct{}{})
	return nil
}

// quarantine moves a corrupt blob out of the way and returns the miss.
func (s *Store) quarantine(d digest.Digest, reason string) error {
	dir := filepath.Join(s.root, "quarantine")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	base := filepath.Join(dir, d.Encoded())
	if err := os.Rename(s.path(d), base); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("quarantine blob %s (%s): %w", d, reason, err)
	}
	s.verified.Delete(d)
	if err := durable.WriteFile(base+".reason", []byte(reason+"\n"), 0o644); err != nil {
		return err
	}
	return fmt.Errorf("blob %s is corrupt (%s), moved to quarantine: %w", d, reason, ErrMissing)
}

// Open opens a blob for reading after checking its bytes.
func (s *Store) Open(ref Ref) (*os.File, error) {
	if err := s.verify(ref); err != nil {
		return nil, err
	}
	return os.Open(s.path(ref.Digest))
}

// Bytes reads a whole blob.
func (s *Store) Bytes(ref Ref) ([]byte, error) {
	f, err := s.Open(ref)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
