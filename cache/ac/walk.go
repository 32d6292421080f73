package ac

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
	"assay/cache/durable"
)

// Results lists every result. One that cannot be read is quarantined and comes
// as an error that wraps cas.ErrMissing; any other error ends the list.
func (s *Store) Results() iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		for path, err := range records(filepath.Join(s.root, "results")) {
			if err != nil {
				yield(Result{}, err)
				return
			}
			key := keyOf(path)
			if key.Validate() != nil {
				continue // not a file of this store
			}
			r, err := s.Get(key)
			if errors.Is(err, ErrNoRecord) {
				continue // removed meanwhile
			}
			if !yield(r, err) || err != nil && !errors.Is(err, cas.ErrMissing) {
				return
			}
		}
	}
}

// AllSamples lists the samples of every series, in the manner of Results.
func (s *Store) AllSamples() iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		for path, err := range records(filepath.Join(s.root, "samples")) {
			if err != nil {
				yield(Sample{}, err)
				return
			}
			sample, err := s.sample(path)
			if errors.Is(err, ErrNoRecord) {
				continue
			}
			if !yield(sample, err) || err != nil && !errors.Is(err, cas.ErrMissing) {
				return
			}
		}
	}
}

// Remove deletes the result of key. What it names stays in the content store.
func (s *Store) Remove(key digest.Digest) error {
	if err := os.Remove(s.resultPath(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Matches lists the keys with a result or with samples whose digits start with
// prefix, each once.
func (s *Store) Matches(prefix string) ([]digest.Digest, error) {
	var keys []digest.Digest
	for path, err := range records(filepath.Join(s.root, "results")) {
		if err != nil {
			return nil, err
		}
		if key := keyOf(path); key.Validate() == nil && strings.HasPrefix(key.Encoded(), prefix) {
			keys = append(keys, key)
		}
	}
	series, err := os.ReadDir(filepath.Join(s.root, "samples"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, de := range series {
		if key := keyOf(de.Name()); key.Validate() == nil && strings.HasPrefix(key.Encoded(), prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// records lists the record files below dir.
func records(dir string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.IsDir() || !isRecord(d.Name()):
				return nil
			case !yield(path, nil):
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield("", fmt.Errorf("list the records: %w", err))
		}
	}
}

// keyOf is the key in the name of a result or of a series.
func keyOf(path string) digest.Digest {
	return digest.NewDigestFromEncoded(digest.SHA256, strings.TrimSuffix(filepath.Base(path), ".json"))
}

func isRecord(name string) bool {
	return strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, durable.TempPrefix)
}
