package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"assay/engine/action"
	"assay/engine/event"
	"assay/engine/layout"
	"assay/engine/lock"
	"assay/engine/upkeep"
)

var nobody = event.SinkFunc(func(event.Event) {})

func all(string) bool { return true }

func TestVerifyNamesEachFileThatDiffers(t *testing.T) {
	l := newLab(t)
	second := false
	honest := l.pure("honest", func(string) string { return "x" }, nil)
	liar := l.pure("liar", nil, nil)
	liar.Run = func(_ context.Context, run *action.Run) error {
		files := map[string]string{"same": "s", "text": "abcdef", "longer": "ab", "dir/gone": "g"}
		if second {
			files = map[string]string{"same": "s", "text": "abcxef", "longer": "abc", "dir/new": "n"}
		}
		for name, text := range files {
			path := filepath.Join(run.Out, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	var n atomic.Int64
	actions := []*action.Action{honest, liar, l.measurement(1, nil, fine, &n)}
	before := l.build(actions...)
	second = true
	checks, err := l.open().Verify(t.Context(), actions, all, nobody)
	if err != nil || len(checks) != 3 {
		t.Fatalf("%+v, %v", checks, err)
	}
	if len(checks[0].Differences) > 0 || checks[0].Err != nil || checks[0].Skipped != "" {
		t.Errorf("honest: %+v", checks[0])
	}
	var got []string
	for _, d := range checks[1].Differences {
		got = append(got, d.Path+" "+d.What)
	}
	want(t, strings.Join(got, "\n"), "dir/gone is in the record and was not made again\ndir/new is not in the record\nlonger has 3 bytes, had 2\ntext differs from byte 3 on")
	if !strings.Contains(checks[2].Skipped, "measurement is not pure") || n.Load() != 1 {
		t.Errorf("measurement: %+v, %d runs", checks[2], n.Load())
	}
	// The record is what it was.
	after := l.build(actions...)
	want(t, statuses(after), "honest=cached liar=cached m=cached")
	if after.Outcomes[1].Output != before.Outcomes[1].Output {
		t.Error("the record changed")
	}
	if left, _ := filepath.Glob(filepath.Join(l.cache, "work", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestVerifyNeedsARecord(t *testing.T) {
	l := newLab(t)
	checks, err := l.open().Verify(t.Context(), l.chain("one"), func(id string) bool { return id == "c" }, nobody)
	if err != nil || len(checks) != 1 || !strings.Contains(checks[0].Skipped, "no result to compare with: waits for") {
		t.Fatalf("%+v, %v", checks, err)
	}
	want(t, l.took(), "")
}

func TestRejectedByHandIsMeasuredAnew(t *testing.T) {
	l := newLab(t)
	var n atomic.Int64
	m := func() []*action.Action { return []*action.Action{l.measurement(2, nil, fine, &n)} }
	l.build(m()...)
	e := l.open()
	s, err := e.Samples(t.Context(), m(), "m")
	if err != nil || len(s.All) != 2 || !s.Used(s.All[0].ID) {
		t.Fatalf("%+v, %v", s, err)
	}
	for prefix, wrong := range map[string]string{"2": "2 samples of m start with 2", "x": "m has no sample x; it has 2"} {
		if _, err := e.Reject(t.Context(), s, prefix, "because"); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	if _, err := e.Reject(t.Context(), s, s.All[0].ID, "the fan was broken"); err != nil {
		t.Fatal(err)
	}
	r := l.build(m()...)
	want(t, statuses(r), "m=ran")
	if !strings.HasPrefix(r.Outcomes[0].Why.Reason, "1 of 2 samples, 1 rejected") || n.Load() != 3 {
		t.Fatalf("why %q, %d runs", r.Outcomes[0].Why.Reason, n.Load())
	}
	s, err = l.open().Samples(t.Context(), m(), "m")
	if err != nil || len(s.All) != 3 || s.Used(s.All[0].ID) || s.All[0].Rejected != "the fan was broken" {
		t.Fatalf("%+v, %v", s, err)
	}
}

func TestExplainShowsWhatAKeyIsMadeOf(t *testing.T) {
	l := newLab(t)
	r := l.build(l.chain("one")...)
	key := r.Outcomes[1].Key
	x, err := l.open().Explain(key.Encoded()[:12])
	if err != nil || x.Key != key || x.Result == nil || x.Preimage.Rule != "test" {
		t.Fatalf("%+v, %v", x, err)
	}
	want(t, strings.Join(x.Labels, " ")+" from "+x.Sources["a"], "b from a")
	for name, wrong := range map[string]string{
		"//x": "never built in this workspace", "xyz": "neither a label nor the digits of a key", "sha256:": "neither",
	} {
		if _, err := l.open().Explain(name); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a build is about to use must not be cleaned away under it.
func TestCleaningWaitsForBuilds(t *testing.T) {
	l := newLab(t)
	dir := layout.Dir(l.cache)
	cleaned := make(chan error, 1)
	waits := make(chan struct{})
	a := l.pure("a", nil, nil)
	a.Run = func(_ context.Context, run *action.Run) error {
		go func() {
			_, err := upkeep.Collect(t.Context(), dir, upkeep.Policy{Waiting: func() { close(waits) }})
			cleaned <- err
		}()
		<-waits
		if release, ok := lock.Try(dir.InUse()); ok {
			release()
			t.Error("the cache is not in use")
		}
		return os.WriteFile(filepath.Join(run.Out, "x"), []byte("x"), 0o644)
	}
	r := l.build(a)
	want(t, statuses(r), "a=ran")
	if err := <-cleaned; err != nil {
		t.Fatal(err)
	}
	want(t, statuses(l.build(a)), "a=cached")
}
