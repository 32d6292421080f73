// Package ac keeps what actions produced: one result per key for pure actions
// and effects, and an append-only series of samples per key for measurements.
// A record is written after the blobs it names.
package ac

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
	"assay/cache/durable"
)

// Result is the record of one pure action or effect.
type Result struct {
	Key      digest.Digest `json:"key"`
	Preimage cas.Ref       `json:"preimage"`
	// Output is the tree the action wrote, for an effect the tree it published.
	Output     cas.Ref   `json:"output"`
	Invocation string    `json:"invocation"`
	Started    time.Time `json:"started"`
	Finished   time.Time `json:"finished"`
}

// Sample is the immutable record of one measurement.
type Sample struct {
	ID       string        `json:"id"`
	Key      digest.Digest `json:"key"`
	Preimage cas.Ref       `json:"preimage"`
	Output   cas.Ref       `json:"output"`
	// Environment is what the sample depends on without declaring it: CPU model,
	// set sizes, memory class. Samples of unlike environments are not pooled.
	Environment map[string]string `json:"environment"`
	// Rejected is the reason why the sample may not be used; empty if it may.
	Rejected   string    `json:"rejected,omitempty"`
	Invocation string    `json:"invocation"`
	Started    time.Time `json:"started"`
	Finished   time.Time `json:"finished"`
}

// Store keeps records in a directory. It may be shared by processes.
type Store struct{ root string }

// Open returns the store at root.
func Open(root string) *Store { return &Store{root} }

func (s *Store) resultPath(key digest.Digest) string {
	return filepath.Join(s.root, "results", key.Encoded()[:2], key.Encoded()+".json")
}

func (s *Store) seriesDir(key digest.Digest) string {
	return filepath.Join(s.root, "samples", key.Encoded())
}

// Get returns the result of key; an error that wraps cas.ErrMissing if there is none.
func (s *Store) Get(key digest.Digest) (Result, error) {
	var r Result
	err := readRecord(s.resultPath(key), &r)
	if err == nil && r.Key != key {
		err = quarantine(s.resultPath(key), fmt.Sprintf("it is the record of key %s", r.Key))
	}
	return r, err
}

// Put records a result, replacing an older one of the same key.
func (s *Store) Put(r Result) error {
	return writeRecord(s.resultPath(r.Key), r)
}

// Append adds a sample to the series of its key.
func (s *Store) Append(sample Sample) error {
	path := filepath.Join(s.seriesDir(sample.Key), sample.ID+".json")
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("sample %s exists; samples are immutable", sample.ID)
	}
	return writeRecord(path, sample)
}

// Samples returns the series of key, oldest first. Records that cannot be read
// are quarantined and left out: losing one must not hide the others.
func (s *Store) Samples(key digest.Digest) ([]Sample, error) {
	names, err := os.ReadDir(s.seriesDir(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var series []Sample
	for _, de := range names { // ids start with the time, so name order is age
		if !strings.HasSuffix(de.Name(), ".json") || strings.HasPrefix(de.Name(), durable.TempPrefix) {
			continue
		}
		var sample Sample
		switch err := readRecord(filepath.Join(s.seriesDir(key), de.Name()), &sample); {
		case errors.Is(err, cas.ErrMissing):
			continue
		case err != nil:
			return nil, err
		}
		series = append(series, sample)
	}
	return series, nil
}

func writeRecord(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(data, '\n'), 0o644)
}

func readRecord(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record %s: %w", filepath.Base(path), cas.ErrMissing)
	}
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return quarantine(path, err.Error())
	}
	return nil
}

// quarantine sets a corrupt record aside and returns the miss.
func quarantine(path, reason string) error {
	if err := os.Rename(path, path+".corrupt"); err != nil {
		return fmt.Errorf("quarantine record %s (%s): %w", path, reason, err)
	}
	return fmt.Errorf("record %s is corrupt (%s), set aside: %w", filepath.Base(path), reason, cas.ErrMissing)
}
