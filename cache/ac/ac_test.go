package ac

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
)

var (
	key      = digest.FromString("key")
	preimage = cas.Ref{Digest: digest.FromString("pre"), Size: 3}
	output   = cas.Ref{Digest: digest.FromString("out"), Size: 3}
)

const sampleID = "20260101T000000Z-a"

func result() Result { return Result{Key: key, Preimage: preimage, Output: output} }

func sample(id string) Sample { return Sample{ID: id, Key: key, Preimage: preimage, Output: output} }

func TestResult(t *testing.T) {
	s := Open(t.TempDir())
	if _, err := s.Get(key); !errors.Is(err, ErrNoRecord) {
		t.Fatalf("Get of nothing: %v", err)
	}
	want := result()
	want.Started, want.Finished = time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC()
	if err := s.Put(want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(key)
	if err != nil || cmp.Diff(want, got) != "" {
		t.Fatalf("Get: %v\n%s", err, cmp.Diff(want, got))
	}
}

// edited is v as JSON with some members replaced or, by nil, removed.
func edited(t *testing.T, v any, changes map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]any{}
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	for name, value := range changes {
		if members[name] = value; value == nil {
			delete(members, name)
		}
	}
	if raw, err = json.Marshal(members); err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// fate is what becomes of a record file with this content.
type fate struct{ content, want string }

// contents are ways to change the record v.
func contents(t *testing.T, v any) map[string]fate {
	edit := func(name string, value any) string { return edited(t, v, map[string]any{name: value}) }
	return map[string]fate{
		"whole":             {edit("version", 1), "used"},
		"without a version": {edit("version", nil), "used"},
		"newer version":     {edit("version", 2), "left"},
		"newer and unlike":  {edited(t, v, map[string]any{"version": 2, "key": []int{1}, "output": "x"}), "left"},
		"unknown field":     {edit("surprise", 1), "left"},
		"torn":              {`{"key": "sha2`, "set aside"},
		"empty":             {``, "set aside"},
		"null":              {`null`, "set aside"},
		"nothing in it":     {`{}`, "set aside"},
		"text after it":     {edit("version", 1) + "x", "set aside"},
		"version no number": {edit("version", "one"), "set aside"},
		"other type":        {edit("output", "x"), "set aside"},
		"other key":         {edit("key", digest.FromString("other")), "set aside"},
		"no output":         {edit("output", nil), "set aside"},
		"bad output digest": {edit("output", map[string]any{"digest": "sha256:00", "size": 1}), "set aside"},
		"negative size":     {edit("output", map[string]any{"digest": output.Digest, "size": -1}), "set aside"},
		"foreign algorithm": {edit("preimage", map[string]any{"digest": "sha512:" + strings.Repeat("0", 128), "size": 0}), "set aside"},
	}
}

// became looks what happened to the record at path.
func became(t *testing.T, path string, err error) string {
	t.Helper()
	_, there := os.Lstat(path)
	_, aside := os.Lstat(path + corruptSuffix)
	switch {
	case err == nil && there == nil && aside != nil:
		return "used"
	case errors.Is(err, ErrNewer) && errors.Is(err, cas.ErrMissing) && there == nil && aside != nil:
		return "left"
	case errors.Is(err, cas.ErrMissing) && !errors.Is(err, ErrNewer) && there != nil && aside == nil:
		return "set aside"
	}
	t.Fatalf("error %v; the record: %v; set aside: %v", err, there, aside)
	return ""
}

func TestWhatBecomesOfAResult(t *testing.T) {
	for name, test := range contents(t, result()) {
		t.Run(name, func(t *testing.T) {
			s := Open(t.TempDir())
			if err := s.Put(result()); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.resultPath(key), []byte(test.content), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := s.Get(key)
			if got := became(t, s.resultPath(key), err); got != test.want {
				t.Fatalf("%s, want %s (%v)", got, test.want, err)
			}
			if err := s.Put(result()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(key); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhatBecomesOfASample(t *testing.T) {
	tests := contents(t, sample(sampleID))
	tests["other id"] = fate{edited(t, sample("else"), nil), "set aside"}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := Open(t.TempDir())
			for _, id := range []string{sampleID, "20260102T000000Z-b"} {
				if err := s.Append(sample(id)); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(s.seriesDir(key), sampleID+".json")
			if err := os.WriteFile(path, []byte(test.content), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := s.sample(path)
			if got := became(t, path, err); got != test.want {
				t.Fatalf("%s, want %s (%v)", got, test.want, err)
			}
			series, err := s.Samples(key)
			want := 1
			if test.want == "used" {
				want = 2
			}
			if err != nil || len(series) != want || series[want-1].ID != "20260102T000000Z-b" {
				t.Fatalf("Samples = %+v, %v", series, err)
			}
		})
	}
}

// Two processes may find the same damage.
func TestSettingAsideTwiceIsAMissTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := quarantine(path, "empty"); !errors.Is(err, cas.ErrMissing) {
			t.Fatalf("quarantine: %v", err)
		}
	}
}

func TestRecordsHaveTheirVersion(t *testing.T) {
	root := t.TempDir()
	s := Open(root)
	if err := errors.Join(s.Put(result()), s.Append(sample(sampleID))); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		data, err := os.ReadFile(path)
		if !strings.HasPrefix(string(data), "{\n  \"version\": 1,\n  \"") {
			t.Errorf("%s starts with %.40q", path, data)
		}
		return err
	})
	if err != nil || n != 2 {
		t.Fatalf("%d records, %v", n, err)
	}
}

// What reading would set aside is not written in the first place.
func TestOnlyWholeRecordsAreWritten(t *testing.T) {
	s := Open(t.TempDir())
	for name, err := range map[string]error{
		"result without a key":       s.Put(Result{Preimage: preimage, Output: output}),
		"result without an output":   s.Put(Result{Key: key, Preimage: preimage}),
		"sample without a key":       s.Append(Sample{ID: sampleID, Preimage: preimage, Output: output}),
		"sample without a preimage":  s.Append(Sample{ID: sampleID, Key: key, Output: output}),
		"sample without an id":       s.Append(sample("")),
		"sample with a path as name": s.Append(sample("../x")),
		"sample with a hidden name":  s.Append(sample(".tmp-x")),
	} {
		if err == nil {
			t.Errorf("wrote a %s", name)
		}
	}
	if _, err := s.Get("key"); err == nil || errors.Is(err, cas.ErrMissing) {
		t.Errorf("Get of no key: %v", err)
	}
	if _, err := s.Samples("key"); err == nil {
		t.Error("Samples of no key")
	}
}

func TestSeriesIsAppendOnly(t *testing.T) {
	s := Open(t.TempDir())
	for _, id := range []string{"20260102T000000Z-b", sampleID} {
		if err := s.Append(sample(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(sample(sampleID)); err == nil {
		t.Fatal("a sample was replaced")
	}
	series, err := s.Samples(key)
	if err != nil || len(series) != 2 || series[0].ID != sampleID {
		t.Fatalf("Samples = %+v, %v", series, err)
	}
}
