package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/engine"
	"assay/engine/action"
	"assay/engine/event"
	"assay/engine/history"
	"assay/engine/key"
	"assay/rules/publish"
)

// summaryRow is a published row with a bundle, a median and a throughput.
func summaryRow(model, bundle string, p50, throughput float64) publish.Row {
	var r publish.Row
	r.Model, r.Endpoint, r.Mode = model, "chat", "streamed"
	r.Profile.Precision, r.Profile.Context, r.Profile.Bundle = "F16", 256, digest.FromString(bundle)
	r.Workload.InputTokens, r.Workload.OutputTokens, r.Workload.Concurrency = 32, 16, 1
	r.Status.State = "AIPerf-qualified"
	r.Figures.Samples, r.Figures.Measured = 1, 20
	r.Figures.LatencyMS.P50.Value, r.Figures.LatencyMS.P90.Absent = &p50, "n too small (needs 29 one-sided, 36 two-sided)"
	r.Figures.RequestsPerS = &throughput
	return r
}

func TestComparison(t *testing.T) {
	results := func(rows ...publish.Row) *publish.Results { return &publish.Results{Rows: rows} }
	a, b := summaryRow("o/a", "a", 12.5, 80), summaryRow("o/b", "b", 30, 33)
	faster := summaryRow("o/a", "a2", 11.25, 88)
	lost := b
	lost.Status = publish.Status{State: "implemented", Detail: "validation failed"}
	lost.Figures.NotCompleted.Count = 2

	const rowA, rowB = "| o/a F16, context 256, chat streamed, 32 → 16 tokens, concurrency 1 ", "| o/b F16, context 256, chat streamed, 32 → 16 tokens, concurrency 1 "
	for name, c := range map[string]struct {
		before, now *publish.Results
		want        []string
		not         string
	}{
		"nothing changed": {before: results(a, b), now: results(a, b)},
		"other order":     {before: results(b, a), now: results(a, b)},
		"one row": {before: results(a, b), now: results(faster, b), not: rowB, want: []string{
			rowA + "| status | AIPerf-qualified | AIPerf-qualified |",
			rowA + "| bundle | " + digest.FromString("a").String() + " | " + digest.FromString("a2").String() + " |",
			rowA + "| latency p50, ms | 12.500 | 11.250 |",
			rowA + "| latency p90, ms | n too small (needs 29 one-sided, 36 two-sided) | n too small (needs 29 one-sided, 36 two-sided) |",
			rowA + "| requests/s | 80.000 | 88.000 |",
			rowA + "| output tokens/s | not measured | not measured |",
		}},
		"status": {before: results(a, b), now: results(a, lost), not: rowA, want: []string{
			rowB + "| status | AIPerf-qualified | implemented, validation failed |",
			rowB + "| completed | 20 of 20 | 18 of 20 |",
		}},
		"a row more":      {before: results(a), now: results(a, b), not: rowA, want: []string{rowB + "| latency p50, ms | – | 30.000 |"}},
		"a row less":      {before: results(a, b), now: results(a), not: rowA, want: []string{rowB + "| status | AIPerf-qualified | no longer published |"}},
		"two servers":     {before: results(a, b, b), now: results(a, b, lost), want: []string{strings.TrimSuffix(rowB, " ") + " (2) | completed | 20 of 20 | 18 of 20 |"}},
		"no publications": {before: results(), now: results()},
	} {
		t.Run(name, func(t *testing.T) {
			got := comparison(c.before, c.now)
			if len(c.want) == 0 && got != "" {
				t.Errorf("nothing changed, and it says\n%s", got)
			}
			for _, line := range c.want {
				if !strings.Contains(got, "\n"+line+"\n") {
					t.Errorf("no line %q in\n%s", line, got)
				}
			}
			if c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("it tells of a row that did not change:\n%s", got)
			}
		})
	}
}

// What cannot be compared is said, and hides nothing else.
func TestSummaryOfWhatCannotBeRead(t *testing.T) {
	x := &action.Action{ID: "//:report", Attrs: map[string]any{"dir": "out"}}
	now := publication{results: &publish.Results{}}
	for name, c := range map[string]struct{ data, want string }{
		"torn":         {`{"schema": 1, "rows": [`, "Not compared: what was published before cannot be read: unexpected end of JSON input"},
		"other schema": {`{"schema": 99}`, "Not compared: what was published before cannot be read: its schema is 99, this assay writes "},
	} {
		t.Run(name, func(t *testing.T) {
			var page strings.Builder
			summarizePublication(&page, x, readResults([]byte(c.data), nil), now)
			if !strings.Contains(page.String(), c.want) {
				t.Errorf("got %s\nwant %s", page.String(), c.want)
			}
		})
	}
}

func TestSummaryTellsWhatRanAndWhatFailed(t *testing.T) {
	cache := t.TempDir()
	eng, err := engine.Open(engine.Options{Cache: cache, Workspace: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	changed := func(component, from, to string) history.Change {
		return history.Change{Change: key.Change{Component: component, Old: from, New: to}}
	}
	r := &engine.Report{Outcomes: []engine.Outcome{
		{Action: &action.Action{ID: "//:weights"}, Status: event.Cached},
		{Action: &action.Action{ID: "//:run"}, Status: event.Ran, Samples: 1, Elapsed: 1500 * time.Millisecond,
			Why: history.Why{Reason: "attrs.seed changed: 1 → 2", Changes: []history.Change{changed("attrs.seed", "1", "2"), changed("attrs.model", "a|b", "c")}}},
		{Action: &action.Action{ID: "//:valid"}, Status: event.GateFailed, Err: errors.New("//:valid did not pass:\n```<b>")},
		{Action: &action.Action{ID: "//:bad"}, Status: event.Failed, Why: history.Why{Reason: "first build"}, Err: errors.New("//:bad failed: no\nspace")},
		{Action: &action.Action{ID: "//:late"}, Status: event.Blocked, Err: errors.New("//:late needs //:bad, which failed")},
	}}
	file := filepath.Join(t.TempDir(), "summary.md")
	if err := (&app{}).writeSummary(file, eng, r, nil, "5 targets: …"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = `# Assay build

5 targets: …

## What ran, and why

| target | | time | why |
|---|---|--:|---|
| ~//:run~ | ran, 1 new sample | 1.5s | attrs.seed changed: 1 → 2; attrs.model changed: a\|b → c |
| ~//:bad~ | failed |  | first build |
| ~//:late~ | blocked |  | //:late needs //:bad, which failed |

    //:bad failed: no
    space

## Reused

2 results: ~//:weights~, ~//:valid~

## Gates

* ~//:valid~ **did not pass**

      //:valid did not pass:
      ~~~<b>
`
	if want := strings.ReplaceAll(want, "~", "`"); string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
