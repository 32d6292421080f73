package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func connect(t *testing.T, h http.Handler) *client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	k, err := dial(context.Background(), s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	return k
}

// Client and engine understand each other, and stamps are of one clock.
func TestStandInOverHTTP(t *testing.T) {
	k := connect(t, engine())
	var s streamed
	for range 3 { // on one connection
		if err := k.stream("a", job{Stream: true, Pieces: 20, GapUS: 100}, 0, &s); err != nil {
			t.Fatal(err)
		}
		if took, err := k.whole("b"); err != nil || took <= 0 {
			t.Fatal(took, err)
		}
	}
	if len(s.seen) != 20 || len(s.emitted) != 20 {
		t.Fatalf("%d of %d pieces", len(s.seen), len(s.emitted))
	}
	times := append([]int64{s.sent}, s.emitted...)
	if !slices.IsSorted(times) || !slices.IsSorted(s.seen) || s.end < s.seen[19] {
		t.Errorf("sent, then emitted: %v; seen: %v; end: %d", times, s.seen, s.end)
	}
	for i := range s.seen {
		if s.seen[i] < s.emitted[i] {
			t.Errorf("piece %d was seen before it was emitted", i)
		}
	}
	if err := k.stream("c", job{Stream: true, Pieces: 20}, 5, &s); err != nil || len(s.seen) != 5 {
		t.Errorf("left after 5 pieces: %d, %v", len(s.seen), err)
	}
}

func TestClientChecksStreams(t *testing.T) {
	event := func(numbers ...int) string {
		text := ""
		for _, n := range numbers {
			text += string(appendPiece(nil, n))
		}
		return chunkHead + text + chunkTail
	}
	for _, c := range []struct{ name, body, err string }{
		{"as it should be", event(0) + event(1) + event(2) + lastChunk, ""},
		{"pieces joined", event(0, 1) + event(2) + lastChunk, ""},
		{"a piece lost", event(0) + event(2) + lastChunk, "piece 2 came where 1 was due"},
		{"a piece twice", event(0) + event(0), "piece 0 came where 1 was due"},
		{"too short", event(0) + event(1) + lastChunk, "after 2 of 3 pieces, [DONE] true"},
		{"no end", event(0) + event(1) + event(2), "after 3 of 3 pieces, [DONE] false"},
		{"garbled", chunkHead + "@12" + chunkTail, "not a piece"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, c.body) }))
			err := k.stream("a", job{Stream: true, Pieces: 3}, 0, new(streamed))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v, want %q", err, c.err)
			}
		})
	}
	k := connect(t, http.NotFoundHandler())
	if _, err := k.whole("a"); err == nil || err.Error() != "status 404" {
		t.Error(err)
	}
}

// As a worker it speaks the protocol, also when it is told to stop.
func TestStandInAsWorker(t *testing.T) {
	in, gateway := net.Pipe()
	frames, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- work(in, out) }()
	lines := bufio.NewReader(frames)
	type frame struct {
		Frame, ID, Text string
		Status          int
		Task            struct {
			WallNS     int64  `json:"wall_ns"`
			Increments int    `json:"increments"`
			SHA256     string `json:"text_sha256"`
			Bytes      int    `json:"text_bytes"`
			Engine     map[string]float64
		}
	}
	next := func() (f frame) {
		t.Helper()
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &f); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		return f
	}
	if f := next(); f.Frame != "hello" {
		t.Fatal(f)
	}
	if f := next(); f.Frame != "ready" {
		t.Fatal(f)
	}
	check := func(f frame, text string, pieces int) {
		t.Helper()
		sum := sha256.Sum256([]byte(text))
		if f.Task.SHA256 != hex.EncodeToString(sum[:]) || f.Task.Bytes != len(text) || f.Task.Increments != pieces {
			t.Errorf("%+v of %q", f, text)
		}
		if inside := f.Task.Engine["true_ms"] * 1e6; inside <= 0 || float64(f.Task.WallNS) < inside {
			t.Errorf("the call took %d ns and %f ns of it inside", f.Task.WallNS, inside)
		}
	}

	fmt.Fprintln(gateway, `{"frame":"generate","id":"r1","endpoint":"chat","stream":true,"body":{"max_tokens":3,"gap_us":10}}`)
	text := ""
	for range 3 {
		f := next()
		if f.Frame != "delta" || f.ID != "r1" {
			t.Fatal(f)
		}
		text += f.Text
	}
	f := next()
	if f.Frame != "done" || f.ID != "r1" {
		t.Fatal(f)
	}
	check(f, text, 3)

	fmt.Fprintln(gateway, `{"frame":"generate","id":"r2","endpoint":"chat","stream":false,"body":{"max_tokens":3}}`)
	if f = next(); f.Frame != "done" || f.ID != "r2" {
		t.Fatal(f)
	}
	check(f, f.Text, 1)

	fmt.Fprintln(gateway, `{"frame":"generate","id":"r3","endpoint":"chat","stream":true,"body":{"max_tokens":1000000}}`)
	if f = next(); f.Frame != "delta" {
		t.Fatal(f)
	}
	fmt.Fprintln(gateway, `{"frame":"cancel","id":"r2"}`) // late, and for no call
	fmt.Fprintln(gateway, `{"frame":"cancel","id":"r3"}`)
	for f = next(); f.Frame == "delta"; f = next() {
	}
	if f.Frame != "error" || f.ID != "r3" || f.Status != 499 {
		t.Error(f)
	}
	gateway.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPercentile(t *testing.T) {
	var hundred []float64
	var ns []int64
	for i := 1; i <= 100; i++ {
		hundred, ns = append(hundred, float64(i)), append(ns, int64(i)*1000)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 50.5, 0.99: 99.01, 1: 100} {
		if got := percentile(hundred, p); got != want {
			t.Errorf("percentile %v of 1 to 100: %v, want %v", p, got, want)
		}
	}
	slices.Reverse(ns)
	if q := quantilesOf(ns); q.N != 100 || *q.P50 != 50.5 || *q.Max != 100 || q.P99 != nil {
		t.Errorf("of too few for a 99th: %+v", q)
	}
	if q := quantilesOf(nil); q.N != 0 || q.P50 != nil {
		t.Errorf("of none: %+v", q)
	}
	if got := slope([]float64{1, 2, 3}, []float64{5, 7, 9}); got != 2 {
		t.Errorf("slope %v", got)
	}
}

func TestTurnsAreBalanced(t *testing.T) {
	var all []*system
	for _, name := range names {
		all = append(all, &system{name: name})
	}
	first, after := map[string]int{}, map[[2]string]int{}
	for round := range all {
		order := turn(all, round)
		first[order[0].name]++
		for i := 1; i < len(order); i++ {
			after[[2]string{order[i-1].name, order[i].name}]++
		}
	}
	for _, a := range names {
		if first[a] != 1 {
			t.Errorf("%s is first %d times", a, first[a])
		}
		for _, b := range names {
			if a != b && after[[2]string{a, b}] != 1 {
				t.Errorf("%s comes %d times after %s", b, after[[2]string{a, b}], a)
			}
		}
	}
	if len(turn(all, -1)) != len(all) || len(turn(nil, 0)) != 0 {
		t.Error("the warm-up has an order too, and so have no systems")
	}
}

func value(v float64) *float64 { return &v }

func cellOf(r regime, name string, p50, p99 float64) *cell {
	q := quantiles{N: 1000, P50: value(p50), P99: value(p99), Max: value(2 * p99)}
	return &cell{Regime: r, Streams: 8, System: name, Chunk: q, Request: q, ChunkRounds: []quantiles{q}, RequestRounds: []quantiles{q}, RateRounds: []float64{1}}
}

func TestVerdicts(t *testing.T) {
	r := report{Cells: []*cell{
		cellOf(paced, "direct", 10, 100), cellOf(paced, "nginx", 20, 200),
		cellOf(paced, "assay-native", 19, 220), cellOf(paced, "assay-upstream", 21, 221),
		cellOf(buffered, "direct", 10, 100), cellOf(buffered, "nginx", 20, 90),
		cellOf(buffered, "assay-native", 15, 80), {Regime: buffered, Streams: 8, System: "assay-upstream", NotRun: "too heavy"},
		cellOf(unpaced, "direct", 1, 1), {Regime: unpaced, Streams: 8, System: "haproxy", NotRun: "not installed: apt-get install haproxy"},
	}, Tasks: []accuracy{
		{Regime: paced, Streams: 8, Task: quantiles{N: 3, P50: value(1), Max: value(100)}},
		{Regime: buffered, Streams: 8, Task: quantiles{N: 3, P50: value(1), Max: value(101)}, Beyond: 1},
		{Regime: unpaced, Streams: 8, Task: quantiles{N: 3, P50: value(1), Max: value(1)}, Unfit: 1},
	}}
	r.judge()
	var got []string
	for _, v := range r.Verdicts {
		got = append(got, v.Result)
	}
	want := []string{
		"not met", "not met", "met", "met", // upstream 21 > 20, 121 > 1.2 × 100; native 19 < 20, 120 ≤ 1.2 × 100
		"not judged", "not judged", "met", "not judged", // upstream did not run; nginx is faster than direct at p99
		"met", "not met", "not met",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	text := r.markdown()
	for _, line := range []string{
		"* added p50 below nginx's: **not met** (met in 2 of 4, not judged in 1)",
		"| 8 | assay-upstream | not run: too heavy |",
		"| 8 | haproxy | not run: not installed: apt-get install haproxy |",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is missing in\n%s", line, text)
		}
	}
	r.Verdicts = []verdict{{Target: p50Target, Result: "met"}, {Target: p50Target, Result: "not judged"}}
	if got := r.overall(p50Target); !strings.HasPrefix(got, "**not judged**") {
		t.Errorf("a target that is met where it was judged, and not judged everywhere: %s", got)
	}
}

func TestErrorsAreNotMet(t *testing.T) {
	r := report{Cells: []*cell{cellOf(paced, "direct", 10, 100), cellOf(paced, "nginx", 20, 200), cellOf(paced, "assay-native", 12, 110)}}
	r.Cells[2].Errors, r.Cells[2].Error = 1, "status 500"
	r.judge()
	for _, v := range r.Verdicts {
		if strings.HasPrefix(v.Where, "assay-native") && strings.HasSuffix(v.Where, "chunk") && (v.Result != "not met" || v.Detail != "1 errors: status 500") {
			t.Errorf("%+v", v)
		}
	}
}

func TestAccuracyFromRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	record := func(id, outcome string, total, wall int, engine string) string {
		return fmt.Sprintf(`{"request_id":%q,"outcome":%q,"total_ns":%d,"task":{"scope":"s","wall_ns":%d,"engine":{%s}}}`+"\n", id, outcome, total, wall, engine)
	}
	data := record("connect-1", "completed", 9, 9, `"true_ms":1`) +
		record("paced-2", "completed", 1_500_000, 1_001_000, `"true_ms":1`) +
		record("paced-3", "completed", 1_600_000, 999_000, `"true_ms":1`) +
		record("paced-7", "completed", 1_600_000, 1_100_001, `"true_ms":1`) +
		record("paced-4", "completed", 9, 9, ``) +
		record("paced-5", "failed", 9, 9, `"true_ms":1`) +
		`{"request_id":"buffered-6","outcome":"rejected","total_ns":5}` + "\n"
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := readAccuracy(path, 8)
	if err != nil || len(all) != len(regimes) {
		t.Fatal(all, err)
	}
	for _, a := range all {
		switch a.Regime {
		case paced:
			if a.Task.N != 3 || *a.Task.Max != 100 || *a.Task.P50 != 1 || a.Beyond != 1 || *a.Gateway.Max != 600 || a.Short != 1 || a.Unfit != 2 {
				t.Errorf("%+v", a)
			}
		case buffered:
			if a.Task.N != 0 || a.Unfit != 1 {
				t.Errorf("%+v", a)
			}
		}
	}
}

func TestSoakVerdict(t *testing.T) {
	looks := func(growth float64) (all []look) {
		mallocs := 1.0
		for i := range 20 {
			all = append(all, look{Seconds: float64(i), Requests: int64(i) * 100, Metrics: map[string]float64{"go_memstats_mallocs_total": mallocs}})
			mallocs += 100 * (50 + growth*float64(i))
		}
		return all
	}
	for growth, want := range map[float64]string{0: "met", 2: "not met"} {
		// The gateway did not tell at the last look.
		r := soakReport{Looks: append(looks(growth), look{Seconds: 20, Requests: 2000}), SkippedAt: 4}
		if r.sum(); r.Verdict.Result != want {
			t.Errorf("growth %v: %+v", growth, r.Verdict)
		}
	}
	r := soakReport{Looks: make([]look, 20)}
	if r.sum(); r.Verdict.Result != "not judged" || len(r.Trends) != 3 {
		t.Errorf("without metrics: %+v", r)
	}
}
