package ac

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
)

var key = digest.FromString("key")

func TestResult(t *testing.T) {
	s := Open(t.TempDir())
	if _, err := s.Get(key); !errors.Is(err, cas.ErrMissing) {
		t.Fatalf("Get of nothing: %v", err)
	}
	want := Result{Key: key, Output: cas.Ref{Digest: digest.FromString("out"), Size: 3}, Started: time.Unix(1, 0).UTC(), Finished: time.Unix(2, 0).UTC()}
	if err := s.Put(want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(key)
	if err != nil || cmp.Diff(want, got) != "" {
		t.Fatalf("Get: %v\n%s", err, cmp.Diff(want, got))
	}
}

func TestCorruptRecordIsAMiss(t *testing.T) {
	for name, content := range map[string]string{
		"torn":        `{"key": "sha2`,
		"empty":       ``,
		"other key":   `{"key": "sha256:` + digest.FromString("other").Encoded() + `"}`,
		"other shape": `{"surprise": 1}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := Open(t.TempDir())
			if err := s.Put(Result{Key: key}); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.resultPath(key), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(key); !errors.Is(err, cas.ErrMissing) {
				t.Fatalf("Get: %v", err)
			}
			if err := s.Put(Result{Key: key}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSeriesIsAppendOnly(t *testing.T) {
	s := Open(t.TempDir())
	for _, id := range []string{"20260102T000000Z-b", "20260101T000000Z-a"} {
		if err := s.Append(Sample{ID: id, Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(Sample{ID: "20260101T000000Z-a", Key: key}); err == nil {
		t.Fatal("a sample was replaced")
	}
	if err := os.WriteFile(filepath.Join(s.seriesDir(key), "20260103T000000Z-c.json"), []byte("torn"), 0o644); err != nil {
		t.Fatal(err)
	}
	series, err := s.Samples(key)
	if err != nil || len(series) != 2 || series[0].ID != "20260101T000000Z-a" {
		t.Fatalf("Samples = %+v, %v", series, err)
	}
}
