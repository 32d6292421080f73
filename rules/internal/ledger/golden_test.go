package ledger_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

var update = flag.Bool("update", false, "write the golden files again")

// The folders of testdata hold what AIPerf 0.13.0 exported from runs against a
// server that misbehaved on purpose, and that server's own records.
var runs = map[string]ledger.Input{
	// Streaming chat, one request of each kind of ending.
	"mixed": {Plan: ledger.Plan{Warmup: 2, Measured: 20}},
	// Buffered chat.
	"buffered": {Plan: ledger.Plan{Warmup: 1, Measured: 7}},
	// Every second request is given up by the client, on purpose.
	"cancelled": {Plan: ledger.Plan{Measured: 4}},
	// Nothing but 429: AIPerf exits with 1 and leaves parts, no summary.
	"refused": {Plan: ledger.Plan{Measured: 3}, Exit: ledger.Exit{Code: 1}},
}

func load(t *testing.T, name string) ledger.Input {
	t.Helper()
	in := runs[name]
	folder := os.DirFS(filepath.Join("testdata", name))
	open := func(file string) fs.File {
		f, err := folder.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	files, err := aiperf.RawFiles(folder)
	if err != nil {
		t.Fatal(err)
	}
	in.Client = func(yield func(*aiperf.Request, error) bool) {
		for _, file := range files {
			for r, err := range aiperf.ReadRaw(open(file), file, 0) {
				if !yield(r, err) {
					return
				}
			}
		}
	}
	in.Figures = aiperf.ReadFigures(open("profile_export.jsonl"), "profile_export.jsonl", 0)
	in.Server = ledger.ReadServer(open("server.jsonl"), "server.jsonl", 0)
	if f, err := folder.Open("profile_export_aiperf.json"); err == nil {
		t.Cleanup(func() { f.Close() })
		if in.Summary, err = aiperf.ReadSummary(f, "profile_export_aiperf.json"); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// closed is a ledger with all its entries.
type closed struct {
	Entries []ledger.Entry
	Summary ledger.Summary
}

func closeBooks(in ledger.Input) (*closed, error) {
	var l closed
	var err error
	l.Summary, err = ledger.Build(in, func(e *ledger.Entry) error {
		l.Entries = append(l.Entries, *e)
		return nil
	})
	return &l, err
}

func build(t *testing.T, in ledger.Input) *closed {
	t.Helper()
	l, err := closeBooks(in)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// file is the ledger as it is written.
func (l *closed) file(t require) []byte {
	t.Helper()
	var b bytes.Buffer
	w := ledger.NewWriter(&b)
	for i := range l.Entries {
		if err := w.Write(&l.Entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// require is what *testing.T and *rapid.T share.
type require interface {
	Helper()
	Fatal(...any)
}

func rowOf(samples ...*closed) metrics.Row { return rowWithin(nil, samples...) }

// rowWithin is a row whose good requests end within a latency; nil is no limit.
func rowWithin(latencyMS *float64, samples ...*closed) metrics.Row {
	b := metrics.Builder{Limits: &metrics.Limits{LatencyMS: latencyMS}}
	for _, l := range samples {
		for i := range l.Entries {
			b.Add(&l.Entries[i])
		}
		b.Sample(l.Summary)
	}
	return b.Row()
}

func TestRealExports(t *testing.T) {
	for name := range runs {
		t.Run(name, func(t *testing.T) {
			l := build(t, load(t, name))
			got := l.file(t)
			summary, err := json.MarshalIndent(l.Summary, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name, "ledger.jsonl.golden"), got)
			golden(t, filepath.Join("testdata", name, "summary.json.golden"), append(summary, '\n'))

			again := build(t, load(t, name)).file(t)
			if !bytes.Equal(got, again) {
				t.Error("the same input gave other bytes")
			}
			var back []ledger.Entry
			for e, err := range ledger.Read(bytes.NewReader(again), "ledger.jsonl") {
				if err != nil {
					t.Fatal(err)
				}
				back = append(back, *e)
			}
			if d := cmp.Diff(l.Entries, back); d != "" {
				t.Error("a ledger that is read back differs:", d)
			}
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (run with -update if that is right): %s", file, d)
	}
}

// ends lists class and reason of the entries of a phase, in order.
func ends(l *closed, phase ledger.Phase) (s []string) {
	for _, e := range l.Entries {
		if e.Phase != phase {
			continue
		}
		end := string(e.Class)
		if e.Reason != "" {
			end += "/" + string(e.Reason)
		}
		s = append(s, end)
	}
	return s
}

// The requests are in the order of what the server did to them. AIPerf's own
// summary of this run has 11 successes.
func TestMisbehavingServer(t *testing.T) {
	in := load(t, "mixed")
	l := build(t, in)
	want := []string{
		"completed", "completed", "completed", // well-behaved
		"rejected",             // 429
		"failed/broken_stream", // ends after a chunk, neither finish reason nor [DONE]
		"failed/stream_error",  // error event after a chunk
		"empty",                // role, finish reason, [DONE]
		"failed/transport",     // connection reset before an answer
		"failed/transport",     // ... and after a chunk
		"rejected",             // overload error as the first event of a 200
		"rejected",             // 503, queue full
		"invalid",              // 400, context exceeded
		"failed/server_error",  // 500
		"failed/broken_stream", // 200 with a body of zero bytes
		"completed",            // with comments between events
		"completed",            // CRLF in the midst of LF
		"completed",            // one event over many data lines
		"completed",            // with reasoning
		"completed",            // finish reason, no [DONE]
		"completed",            // [DONE], no finish reason
	}
	if d := cmp.Diff(want, ends(l, ledger.Measured)); d != "" {
		t.Error(d)
	}
	disagreed := 0
	for _, e := range l.Entries {
		if e.Client != nil && e.Client.Disagrees {
			disagreed++
		}
		if e.Class == ledger.Completed && e.Identity.Text != ledger.Equal {
			t.Errorf("%s: text %s", e.RequestID, e.Identity.Text)
		}
	}
	if disagreed != 2 || *in.Summary.Successes != 11 {
		t.Errorf("%d disagreements with AIPerf (its successes: %d), want 2: it counts both broken streams", disagreed, *in.Summary.Successes)
	}
	if q := l.Summary.Quality; q.OneToOne != 22 || q.ClientOnly+q.ServerOnly+q.Ambiguous+q.Retried != 0 {
		t.Errorf("join quality %+v", q)
	}
	row := rowOf(l)
	if row.LatencyMS.N != 9 || row.Rejected.Count != 3 || row.Rejected.Of != 20 || !row.AcceptedOnly {
		t.Errorf("%+v", row)
	}
	if row.TTFTMS.Mean == nil || row.Streams.Verified == 0 {
		t.Errorf("streams that arrived as they were made are withheld: %+v", row.Streams)
	}
}

func codes(l *closed) []ledger.Code {
	set := map[ledger.Code]bool{}
	for _, f := range l.Summary.Findings {
		set[f.Code] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func finding(t *testing.T, l *closed, code ledger.Code) ledger.Finding {
	t.Helper()
	for _, f := range l.Summary.Findings {
		if f.Code == code {
			return f
		}
	}
	t.Fatalf("no finding %s; there are %v", code, codes(l))
	return ledger.Finding{}
}

// seq yields values without errors.
func seq[T any](values ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range values {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func ids(n int) (s []string) {
	for i := range n {
		s = append(s, fmt.Sprintf("r%03d", i))
	}
	return s
}
