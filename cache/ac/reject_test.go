package ac

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/cache/cas"
)

func TestRejectionLiesBesideTheSample(t *testing.T) {
	s := Open(t.TempDir())
	for _, id := range []string{"20260101T000000Z-a", "20260102T000000Z-b"} {
		if err := s.Append(sample(id)); err != nil {
			t.Fatal(err)
		}
	}
	record := filepath.Join(s.seriesDir(key), "20260101T000000Z-a.json")
	before, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Reject(key, Rejection{Sample: "20260101T000000Z-a", Reason: "the fan was broken"}); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(record); err != nil || string(after) != string(before) {
		t.Fatalf("the record changed: %v\n%s", err, after)
	}
	series, err := s.Samples(key)
	if err != nil || len(series) != 2 || series[0].Rejected != "the fan was broken" || series[1].Rejected != "" {
		t.Fatalf("series = %+v, %v", series, err)
	}

	// Once, for something that is there, and with a reason.
	for _, test := range []struct {
		r    Rejection
		want string
	}{
		{Rejection{Sample: "20260101T000000Z-a", Reason: "again"}, "rejected already: the fan was broken"},
		{Rejection{Sample: "20260103T000000Z-c", Reason: "x"}, "there is no sample"},
		{Rejection{Sample: "20260102T000000Z-b", Reason: " "}, "needs a reason"},
	} {
		if err := s.Reject(key, test.r); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.r, err, test.want)
		}
	}
}

func TestBrokenRejectionStillRejects(t *testing.T) {
	s := Open(t.TempDir())
	if err := s.Append(sample("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.seriesDir(key), "a"+rejectionSuffix), []byte("{torn"), 0o644); err != nil {
		t.Fatal(err)
	}
	series, err := s.Samples(key)
	if err != nil || len(series) != 1 || series[0].Rejected == "" {
		t.Fatalf("series = %+v, %v", series, err)
	}
}

func TestAllRecordsAreListed(t *testing.T) {
	s := Open(t.TempDir())
	if err := errors.Join(s.Put(result()), s.Append(sample("a")), s.Append(sample("b"))); err != nil {
		t.Fatal(err)
	}
	// Neither what is not a record nor a corrupt one ends the list.
	if err := errors.Join(
		os.WriteFile(filepath.Join(s.root, "results", "x.json"), []byte("{}"), 0o644),
		os.WriteFile(filepath.Join(s.seriesDir(key), "c.json"), []byte("torn"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	results, samples, broken := 0, 0, 0
	for _, err := range s.Results() {
		if err != nil {
			t.Fatal(err)
		}
		results++
	}
	for _, err := range s.AllSamples() {
		switch {
		case errors.Is(err, cas.ErrMissing):
			broken++
		case err != nil:
			t.Fatal(err)
		default:
			samples++
		}
	}
	if results != 1 || samples != 2 || broken != 1 {
		t.Fatalf("%d results, %d samples, %d broken", results, samples, broken)
	}
	keys, err := s.Matches(key.Encoded()[:6])
	if err != nil || len(keys) != 2 {
		t.Fatalf("%v, %v", keys, err)
	}
	if keys, err := s.Matches("zz"); err != nil || len(keys) != 0 {
		t.Fatalf("%v, %v", keys, err)
	}
}
