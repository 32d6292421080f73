// Package ac keeps what actions produced: one result per key for pure actions
// and effects, and an append-only series of samples per key for measurements.
// A record is written after the blobs it names.
//
// A record that cannot be used counts as missing. One that is damaged, or not
// what its name says, is set aside under another name. One that a newer assay
// wrote, by its version or by a field that is not known here, stays where it is:
// the newer assay can still use it.
package ac

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	Output cas.Ref `json:"output"`
	// Receipt marks the record of an effect: what it tells of is outside the
	// store and cannot be made again by looking.
	Receipt    bool      `json:"receipt,omitempty"`
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
	// Rejected is the reason why the sample may not be used; empty if it may. The
	// rule gave it with the measurement, or a person later, with Reject.
	Rejected   string    `json:"rejected,omitempty"`
	Invocation string    `json:"invocation"`
	Started    time.Time `json:"started"`
	Finished   time.Time `json:"finished"`
}

// ErrNoRecord says that nothing was ever recorded, as opposed to lost. It is a
// cas.ErrMissing.
var ErrNoRecord = fmt.Errorf("no record: %w", cas.ErrMissing)

// ErrNewer says that a record has a form that is not known here; probably a
// newer assay wrote it, and what it refers to is not known either. It is a
// cas.ErrMissing.
var ErrNewer = fmt.Errorf("it was written by a newer assay: %w", cas.ErrMissing)

// version is that of the form of the records that this package writes. Records
// of the first form may lack it.
const version = 1

type resultRecord struct {
	Version int `json:"version"`
	Result
}

type sampleRecord struct {
	Version int `json:"version"`
	Sample
}

// check reports what shows that r is not the record of key.
func (r Result) check(key digest.Digest) error {
	if r.Key != key {
		return fmt.Errorf("it is the record of key %q", r.Key)
	}
	return checkRefs(r.Preimage, r.Output)
}

// check reports what shows that s is not the sample id of key.
func (s Sample) check(key digest.Digest, id string) error {
	switch {
	case s.Key != key:
		return fmt.Errorf("it is a sample of key %q", s.Key)
	case s.ID != id:
		return fmt.Errorf("it is the sample %q", s.ID)
	}
	return checkRefs(s.Preimage, s.Output)
}

func checkRefs(preimage, output cas.Ref) error {
	if err := preimage.Validate(); err != nil {
		return fmt.Errorf("preimage: %w", err)
	}
	if err := output.Validate(); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
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
	if err := key.Validate(); err != nil {
		return Result{}, fmt.Errorf("key %q: %w", key, err)
	}
	var r resultRecord
	if err := readRecord(s.resultPath(key), &r); err != nil {
		return Result{}, err
	}
	if err := r.check(key); err != nil {
		return Result{}, quarantine(s.resultPath(key), err.Error())
	}
	return r.Result, nil
}

// Put records a result, replacing an older one of the same key.
func (s *Store) Put(r Result) error {
	if err := errors.Join(r.Key.Validate(), r.check(r.Key)); err != nil {
		return fmt.Errorf("record the result of key %q: %w", r.Key, err)
	}
	return writeRecord(s.resultPath(r.Key), resultRecord{version, r})
}

// Append adds a sample to the series of its key.
func (s *Store) Append(sample Sample) error {
	err := errors.Join(sample.Key.Validate(), sample.check(sample.Key, sample.ID))
	if sample.ID == "" || sample.ID != filepath.Base(sample.ID) || !isRecord(sample.ID+".json") {
		err = errors.Join(err, errors.New("the id is no file name"))
	}
	if err != nil {
		return fmt.Errorf("record sample %q of key %q: %w", sample.ID, sample.Key, err)
	}
	path := filepath.Join(s.seriesDir(sample.Key), sample.ID+".json")
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("sample %s exists; samples are immutable", sample.ID)
	}
	return writeRecord(path, sampleRecord{version, sample})
}

// Samples returns the series of key, oldest first. Records that cannot be used
// are left out: losing one must not hide the others.
func (s *Store) Samples(key digest.Digest) ([]Sample, error) {
	if err := key.Validate(); err != nil {
		return nil, fmt.Errorf("key %q: %w", key, err)
	}
	names, err := os.ReadDir(s.seriesDir(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var series []Sample
	for _, de := range names { // ids start with the time, so name order is age
		if !isRecord(de.Name()) {
			continue
		}
		sample, err := s.sample(filepath.Join(s.seriesDir(key), de.Name()))
		switch {
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
	err := decode(path, v)
	var malformed *malformedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("record %s: %w", filepath.Base(path), ErrNoRecord)
	case errors.As(err, &malformed):
		return quarantine(path, err.Error())
	}
	return err
}

// malformedError says that a file was read and is no record.
type malformedError struct{ error }

func decode(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var form struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return &malformedError{err}
	}
	if form.Version > version { // whatever else is in it
		return fmt.Errorf("record %s has version %d, known here is %d; %w", filepath.Base(path), form.Version, version, ErrNewer)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return &malformedError{err}
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil { // the only objection that is left
		return fmt.Errorf("record %s: %v; %w", filepath.Base(path), err, ErrNewer)
	}
	return nil
}

const corruptSuffix = ".corrupt"

// quarantine sets a corrupt record aside and returns the miss. Another process
// may have done so first.
func quarantine(path, reason string) error {
	if err := os.Rename(path, path+corruptSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("quarantine record %s (%s): %w", path, reason, err)
	}
	return fmt.Errorf("record %s is corrupt (%s), set aside: %w", filepath.Base(path), reason, cas.ErrMissing)
}
