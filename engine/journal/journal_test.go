package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"assay/engine/event"
)

// write leaves a log with these events.
func write(t *testing.T, dir, invocation, checkout, torn string, events ...event.Event) {
	t.Helper()
	path := filepath.Join(dir, invocation, File)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log := event.NewLog(f)
	log.Handle(event.Event{Kind: event.Begin, Schema: event.Schema, Invocation: invocation, Checkout: checkout})
	for _, e := range events {
		log.Handle(e)
	}
	if _, err := f.WriteString(torn); err != nil || log.Err() != nil {
		t.Fatal(err, log.Err())
	}
}

func finished(id string, seconds float64, needs ...string) event.Event {
	return event.Event{Kind: event.Finished, Action: id, Status: event.Ran, Seconds: seconds, Needs: needs, Time: time.Unix(int64(10*seconds), 0)}
}

func TestBuildIsFoundByNameOrAsTheLast(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "20260101T000000.000Z-aa", "here", "")
	write(t, dir, "20260102T000000.000Z-bb", "here", `{"kind":"star`)
	write(t, dir, "20260103T000000.000Z-cc", "elsewhere", "")
	for _, test := range []struct{ prefix, want string }{
		{"", "20260102T000000.000Z-bb"}, // the last one of this checkout, torn as it is
		{"20260101", "20260101T000000.000Z-aa"},
		{"20260103", "20260103T000000.000Z-cc"},
	} {
		b, err := Open(dir, test.prefix, "here")
		if err != nil || b.Invocation != test.want || len(b.Events) != 1 {
			t.Errorf("%q: %+v, %v", test.prefix, b, err)
		}
	}
	for prefix, want := range map[string]string{"2026": "3 builds are called 2026", "1999": "no build is called 1999"} {
		if _, err := Open(dir, prefix, "here"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	if _, err := Open(dir, "", "nowhere"); err == nil || !strings.Contains(err.Error(), "no log of a build of this workspace") {
		t.Error(err)
	}
}

func TestDamageAndNewerFormsAreNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a", "here", "not json\n")
	write(t, dir, "b", "here", "", event.Event{Schema: event.Schema + 1})
	for name, want := range map[string]string{"a": "a/events.jsonl:2: ", "b": "use a newer one"} {
		if _, err := Read(dir, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatRan(t *testing.T) {
	b := Build{Events: []event.Event{
		{Kind: event.Finished, Action: "cached", Status: event.Cached},
		{Kind: event.Started, Action: "a", Reason: "its key changed"},
		{Kind: event.Started, Action: "cut off", Reason: "first build"},
		finished("a", 2),
	}}
	var got []string
	for _, e := range b.Ran() {
		got = append(got, fmt.Sprintf("%s %s (%s)", e.Action, e.Status, e.Reason))
	}
	if s := strings.Join(got, ", "); s != "a ran (its key changed), cut off interrupted (first build)" {
		t.Fatal(s)
	}
}

func TestCriticalPath(t *testing.T) {
	for name, test := range map[string]struct {
		events []event.Event
		want   string
	}{
		"the longest sum wins, not the longest chain": {
			[]event.Event{finished("a", 5), finished("b", 1), finished("c", 1, "b"), finished("d", 1, "c"), finished("e", 2, "a", "d")}, "a e",
		},
		"what took no time is left out": {
			[]event.Event{finished("a", 3), finished("b", 0, "a"), finished("c", 1, "b")}, "a c",
		},
		"nothing ran":          {[]event.Event{finished("a", 0)}, ""},
		"a need is not logged": {[]event.Event{finished("a", 1, "gone")}, "a"},
		"a damaged log":        {[]event.Event{finished("a", 1, "b"), finished("b", 1, "a")}, "b a"},
	} {
		var got []string
		b := Build{Events: test.events}
		for _, e := range b.CriticalPath() {
			got = append(got, e.Action)
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("%s: %s, want %s", name, s, test.want)
		}
	}
}
