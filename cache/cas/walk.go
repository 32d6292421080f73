package cas

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/cache/durable"
)

// All lists every blob by name and size, unchecked, in the order of the digests.
// What a killed writer left behind is not listed.
func (s *Store) All() iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		root := filepath.Join(s.root, "sha256")
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // removed meanwhile
			case err != nil:
				return err
			case d.IsDir() || strings.HasPrefix(d.Name(), durable.TempPrefix):
				return nil
			}
			name := digest.NewDigestFromEncoded(digest.SHA256, d.Name())
			if name.Validate() != nil {
				return nil
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(Ref{name, info.Size()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Ref{}, fmt.Errorf("list the content store: %w", err))
		}
	}
}

// Verify reads a blob and compares its bytes with its digest. A corrupt one is
// moved to quarantine, and the error wraps ErrMissing.
func (s *Store) Verify(ctx context.Context, ref Ref) error {
	s.verified.Delete(ref.Digest)
	return s.verify(ctx, ref)
}

// Remove deletes a blob. The caller knows that nothing names it.
func (s *Store) Remove(d digest.Digest) error {
	s.verified.Delete(d)
	if err := os.Remove(s.path(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
