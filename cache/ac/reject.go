package ac

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
)

// Rejection is a person's later word on a sample. It lies beside the record,
// which itself is never changed.
type Rejection struct {
	Sample string    `json:"sample"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// rejectionSuffix takes the place of ".json", so that a rejection is not taken
// for a sample.
const rejectionSuffix = ".rejected"

// Reject adds a rejection to a sample of the series of key. A sample is rejected
// once, and for good.
func (s *Store) Reject(key digest.Digest, r Rejection) error {
	path := filepath.Join(s.seriesDir(key), r.Sample+".json")
	sample, err := s.sample(path)
	switch {
	case errors.Is(err, cas.ErrMissing):
		return fmt.Errorf("there is no sample %s: %w", r.Sample, err)
	case err != nil:
		return err
	case sample.Rejected != "":
		return fmt.Errorf("sample %s is rejected already: %s", r.Sample, sample.Rejected)
	case strings.TrimSpace(r.Reason) == "":
		return fmt.Errorf("a rejection of sample %s needs a reason", r.Sample)
	}
	return writeRecord(rejectionPath(path), r)
}

func rejectionPath(sample string) string {
	return strings.TrimSuffix(sample, ".json") + rejectionSuffix
}

// sample reads a record and what was said of it since. A rejection that cannot
// be read still rejects: a sample that somebody doubted must not come back
// because a file broke.
func (s *Store) sample(path string) (Sample, error) {
	var record sampleRecord
	if err := readRecord(path, &record); err != nil {
		return Sample{}, err
	}
	sample := record.Sample
	if err := sample.check(keyOf(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".json")); err != nil {
		return Sample{}, quarantine(path, err.Error())
	}
	if _, err := os.Lstat(rejectionPath(path)); errors.Is(err, fs.ErrNotExist) {
		return sample, nil
	} else if err != nil {
		return Sample{}, err
	}
	var r Rejection
	if err := decode(rejectionPath(path), &r); err != nil {
		sample.Rejected = fmt.Sprintf("by hand; the reason cannot be read: %v", err)
		return sample, nil
	}
	sample.Rejected = r.Reason
	return sample, nil
}
