package gc

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/ac"
	"assay/cache/cas"
)

// stores are an empty content store and an empty store of records.
type stores struct {
	t       *testing.T
	blobs   *cas.Store
	results *ac.Store
}

func open(t *testing.T) stores {
	blobs, err := cas.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return stores{t, blobs, ac.Open(t.TempDir())}
}

// tree stores a directory with dir/x of this text.
func (s stores) tree(text string) cas.Ref {
	dir := s.t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "dir"), 0o755), os.WriteFile(filepath.Join(dir, "dir", "x"), []byte(text), 0o644)); err != nil {
		s.t.Fatal(err)
	}
	ref, err := s.blobs.PutTree(s.t.Context(), dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return ref
}

func (s stores) blob(text string) cas.Ref {
	ref, err := s.blobs.PutBytes([]byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return ref
}

func (s stores) result(name string, receipt bool) ac.Result {
	r := ac.Result{
		Key: digest.FromString(name), Preimage: s.blob("preimage of " + name), Output: s.tree(name), Receipt: receipt,
		Started: time.Unix(100, 0), Finished: time.Unix(107, 0),
	}
	if err := s.results.Put(r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s stores) sample(name string) ac.Sample {
	sample := ac.Sample{ID: name, Key: digest.FromString(name), Preimage: s.blob("preimage of " + name), Output: s.tree(name)}
	if err := s.results.Append(sample); err != nil {
		s.t.Fatal(err)
	}
	return sample
}

func TestWhatNothingRefersToGoes(t *testing.T) {
	s := open(t)
	kept := s.result("kept", false)
	old := s.result("old", false)
	receipt := s.result("receipt", true)
	measured := s.sample("measured")
	rejected := s.sample("rejected")
	if err := s.results.Reject(rejected.Key, ac.Rejection{Sample: rejected.ID, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	remembered := s.tree("remembered")
	s.blob("a source that is no output")

	roots := Roots{Keys: map[digest.Digest]bool{kept.Key: true}, Trees: []cas.Ref{remembered}, Since: time.Unix(1000, 0)}
	g, err := Find(t.Context(), s.blobs, s.results, roots)
	if err != nil {
		t.Fatal(err)
	}
	// Of old its preimage, two trees and a file; and the source.
	if len(g.Results) != 1 || g.Results[0].Key != old.Key || len(g.Blobs) != 5 || g.Cost() != 7*time.Second || len(g.Broken) > 0 {
		t.Fatalf("garbage %+v, cost %s", g, g.Cost())
	}
	if err := g.Remove(t.Context(), s.blobs, s.results); err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]cas.Ref{
		"kept": kept.Output, "receipt": receipt.Output, "measured": measured.Output, "rejected": rejected.Output, "remembered": remembered,
	} {
		if err := s.blobs.Complete(ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.blobs.Bytes(measured.Preimage); err != nil {
		t.Error(err)
	}
	if _, err := s.results.Get(old.Key); !errors.Is(err, cas.ErrMissing) {
		t.Errorf("the record is still there: %v", err)
	}
	if g, err = Find(t.Context(), s.blobs, s.results, roots); err != nil || len(g.Blobs)+len(g.Results) > 0 {
		t.Fatalf("a second time: %+v, %v", g, err)
	}
}

func TestYoungResultsStay(t *testing.T) {
	s := open(t)
	s.result("young", false)
	g, err := Find(t.Context(), s.blobs, s.results, Roots{Since: time.Unix(107, 0)})
	if err != nil || len(g.Results)+len(g.Blobs) > 0 {
		t.Fatalf("%+v, %v", g, err)
	}
}

// What is left of something incomplete stays: a sample may be all there is.
func TestBrokenSampleIsToldAndKept(t *testing.T) {
	s := open(t)
	sample := s.sample("measured")
	entry, err := s.blobs.Lookup(sample.Output, "dir")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.blobs.Remove(entry.Digest); err != nil {
		t.Fatal(err)
	}
	g, err := Find(t.Context(), s.blobs, s.results, Roots{})
	if err != nil || len(g.Broken) != 1 {
		t.Fatalf("%+v, %v", g, err)
	}
	for _, b := range g.Blobs {
		if b == sample.Output || b == sample.Preimage {
			t.Errorf("%s would be removed", b.Digest)
		}
	}
}

func TestRecordOfANewerAssayStopsIt(t *testing.T) {
	dir := t.TempDir()
	s := stores{t, open(t).blobs, ac.Open(dir)}
	r := s.result("newer", false)
	path := filepath.Join(dir, "results", r.Key.Encoded()[:2], r.Key.Encoded()+".json")
	if err := os.WriteFile(path, []byte(`{"version": 99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), s.blobs, s.results, Roots{}); !errors.Is(err, ac.ErrNewer) {
		t.Fatal(err)
	}
}
