// Package cas is the content store: blobs under the digest of their bytes, and
// Merkle trees of blobs. A blob is durable before anything names it; a blob that
// no longer has its digest's bytes is moved to quarantine and counts as missing.
//
// What is checked when:
//
//   - Every access looks whether the blob is there and has the size in the Ref.
//   - Reading one (Open, Bytes, Tree, Lookup, Materialise) hashes it, once in a
//     process for as long as the file keeps its inode, size and time.
//   - Complete hashes the trees, not the files: planning must not read
//     gigabytes. Reading finds what it does not.
//   - Putting hashes what is put, and the blob that is there under that digest
//     like a read does, so that the right bytes replace damaged ones. A blob that
//     was just written is not trusted either; its first read hashes it.
//   - Where the sizes differ, the bytes decide who is wrong: a blob that has its
//     digest stays, and the Ref counts as missing.
//
// A file that changes behind these stamps, by a failing disk say, is found by
// the next process, or by Verify.
package cas

import (
	"context"
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

// Ref names a blob: digest and size in bytes.
type Ref struct {
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"`
}

// Validate reports whether the ref can name a blob at all.
func (r Ref) Validate() error {
	if err := r.Digest.Validate(); err != nil {
		return fmt.Errorf("blob %q: %w", r.Digest, err)
	}
	if r.Digest.Algorithm() != digest.SHA256 {
		return fmt.Errorf("blob %q: the store knows %s only", r.Digest, digest.SHA256)
	}
	if r.Size < 0 {
		return fmt.Errorf("blob %s: %d is no size", r.Digest, r.Size)
	}
	return nil
}

// Store is a content store in a directory. It may be shared by processes.
type Store struct {
	root     string
	verified sync.Map // digest.Digest → *checked
}

// checked is what this process knows of a blob's bytes.
type checked struct {
	busy chan struct{} // holds a token while the blob is hashed, or known is read
	// known describes the file whose bytes had the digest; nil if none had yet.
	known fs.FileInfo
}

// is reports whether info describes the file that was hashed. The time of status
// change is left out: hard links set it.
func (c *checked) is(info fs.FileInfo) bool {
	return c.known != nil && os.SameFile(c.known, info) && c.known.Size() == info.Size() && c.known.ModTime().Equal(info.ModTime())
}

// Open opens or creates the store at root.
func Open(root string) (*Store, error) {
	if err := durable.MkdirAll(filepath.Join(root, "sha256"), 0o755); err != nil {
		return nil, fmt.Errorf("open content store: %w", err)
	}
	return &Store{root: root}, nil
}

func (s *Store) path(d digest.Digest) string {
	hex := d.Encoded()
	return filepath.Join(s.root, "sha256", hex[:2], hex)
}

// Put stores all of r.
func (s *Store) Put(ctx context.Context, r io.Reader) (Ref, error) {
	f, err := durable.Create(filepath.Join(s.root, "sha256", "incoming"), 0o444)
	if err != nil {
		return Ref{}, err
	}
	defer f.Discard()
	ref, err := hash(ctx, io.TeeReader(r, f))
	if err != nil {
		return Ref{}, err
	}
	if err := s.verify(ctx, ref); !errors.Is(err, ErrMissing) {
		return ref, err
	}
	path := s.path(ref.Digest)
	if err := durable.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return Ref{}, err
	}
	return ref, f.Commit(path)
}

// PutBytes stores data.
func (s *Store) PutBytes(data []byte) (Ref, error) {
	ref := Ref{digest.FromBytes(data), int64(len(data))}
	if err := s.verify(context.Background(), ref); !errors.Is(err, ErrMissing) {
		return ref, err
	}
	return ref, durable.WriteFile(s.path(ref.Digest), data, 0o444)
}

// PutFile stores a copy of the file at path. The file is copied only if its
// content is not in the store yet.
func (s *Store) PutFile(ctx context.Context, path string) (Ref, error) {
	f, err := os.Open(path)
	if err != nil {
		return Ref{}, err
	}
	defer f.Close()
	return s.putSeeker(ctx, f)
}

// putSeeker hashes first and copies what is missing. The copy is hashed again
// and stored under what it is, as the file may have changed in between.
func (s *Store) putSeeker(ctx context.Context, r io.ReadSeeker) (Ref, error) {
	ref, err := hash(ctx, r)
	if err != nil {
		return Ref{}, err
	}
	if err := s.verify(ctx, ref); !errors.Is(err, ErrMissing) {
		return ref, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return Ref{}, err
	}
	return s.Put(ctx, r)
}

// present reports whether the blob is there with its size.
func (s *Store) present(ref Ref) error {
	if err := ref.Validate(); err != nil {
		return err
	}
	info, err := os.Lstat(s.path(ref.Digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing(ref)
	case err != nil:
		return err
	case info.Size() != ref.Size:
		return s.verify(context.Background(), ref)
	}
	return nil
}

func missing(ref Ref) error { return fmt.Errorf("blob %s: %w", ref.Digest, ErrMissing) }

// verify reports whether the blob is there with its size and its bytes.
func (s *Store) verify(ctx context.Context, ref Ref) error {
	f, err := s.open(ctx, ref)
	if err != nil {
		return err
	}
	return f.Close()
}

// open opens a blob, its bytes checked against the digest.
func (s *Store) open(ctx context.Context, ref Ref) (_ *os.File, err error) {
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	f, err := os.Open(s.path(ref.Digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(ref)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx, ref.Digest, f, info); err != nil {
		return nil, err
	}
	if info.Size() != ref.Size {
		return nil, fmt.Errorf("blob %s is sound and has %d bytes, its record says %d: %w", ref.Digest, info.Size(), ref.Size, ErrMissing)
	}
	return f, nil
}

// check hashes f, which info describes, unless that was done before, and leaves
// it at its start. Of several callers at a time one hashes.
func (s *Store) check(ctx context.Context, d digest.Digest, f *os.File, info fs.FileInfo) error {
	v, _ := s.verified.LoadOrStore(d, &checked{busy: make(chan struct{}, 1)})
	c := v.(*checked)
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.is(info) {
		return nil
	}
	got, err := hash(ctx, f)
	if err != nil {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	if got.Digest != d {
		return s.quarantine(d, info, fmt.Sprintf("its %d bytes have digest %s", got.Size, got.Digest))
	}
	c.known = info
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// quarantine moves a corrupt blob out of the way and returns the miss.
func (s *Store) quarantine(d digest.Digest, corrupt fs.FileInfo, reason string) error {
	dir := filepath.Join(s.root, "quarantine")
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	base := filepath.Join(dir, d.Encoded())
	if now, err := os.Lstat(s.path(d)); err == nil && os.SameFile(now, corrupt) { // else somebody mended it meanwhile
		if err := os.Rename(s.path(d), base); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("quarantine blob %s (%s): %w", d, reason, err)
		}
	}
	if err := durable.WriteFile(base+".reason", []byte(reason+"\n"), 0o644); err != nil {
		return err
	}
	return fmt.Errorf("blob %s is corrupt (%s), moved to quarantine: %w", d, reason, ErrMissing)
}

// Open opens a blob for reading after checking its bytes.
func (s *Store) Open(ref Ref) (*os.File, error) {
	return s.open(context.Background(), ref)
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

// hash reads all of r.
func hash(ctx context.Context, r io.Reader) (Ref, error) {
	h := sha256.New()
	n, err := io.Copy(h, reader{ctx, r})
	if err != nil {
		return Ref{}, err
	}
	return Ref{digest.NewDigest(digest.SHA256, h), n}, nil
}

// reader ends a long copy when its context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}
