package aiperf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
)

var update = flag.Bool("update", false, "write the golden files again")

// testdata holds real exports of AIPerf 0.13.0.
func TestRealExport(t *testing.T) {
	for _, name := range []string{"mixed_raw", "cancelled_raw"} {
		f, err := os.Open(filepath.Join("testdata", name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var got bytes.Buffer
		enc := json.NewEncoder(&got)
		for r, err := range aiperf.ReadRaw(f, name, 0) {
			if err != nil {
				t.Fatal(err)
			}
			enc.Encode(r)
		}
		file := filepath.Join("testdata", name+".golden")
		if *update {
			os.WriteFile(file, got.Bytes(), 0o644)
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got.String()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestRealFigures(t *testing.T) {
	f, err := os.Open("testdata/mixed.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for r, err := range aiperf.ReadFigures(f, "mixed.jsonl", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; r.ID == "" || *r.InputTokens != 8 || *r.OutputTokens != 25 || *r.LatencyMS <= *r.TTFTMS {
			t.Errorf("%+v", r)
		}
	}
	if n != 4 {
		t.Errorf("%d records", n)
	}
}

func TestRealSummary(t *testing.T) {
	f, err := os.Open("testdata/mixed_summary.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := aiperf.ReadSummary(f, "summary")
	if err != nil {
		t.Fatal(err)
	}
	if s.SchemaVersion != "1.4" || s.AIPerfVersion != "0.13.0" || *s.Successes != 11 || *s.Errors != 9 || s.WasCancelled || !*s.IsComplete {
		t.Errorf("%+v", s)
	}
	if at := s.StartWallNS; at == nil || *at != time.Date(2026, 11, 30, 21, 50, 37, 905_820_000, time.UTC).UnixNano() {
		t.Errorf("start %v", at)
	}
	for _, other := range []string{"null", "5", `"yesterday"`, `{"at":1}`} {
		if s, err := aiperf.ReadSummary(strings.NewReader(`{"start_time":`+other+`,"request_count":{"avg":20}}`), "s"); err != nil || s.StartWallNS != nil || *s.Successes != 20 {
			t.Errorf("start %s: %+v, %v", other, s, err)
		}
	}
	if s, err := aiperf.ReadSummary(strings.NewReader(`{"request_count":{"avg":20}}`), "s"); err != nil || s.Errors != nil || *s.Successes != 20 {
		t.Errorf("an absent error count is not zero: %+v, %v", s, err)
	}
	for _, bad := range []string{`{"request_count":{"avg":1.5}}`, `{"was_cancelled":"no"}`, `[]`, `{}{}`, `{"x":NaN}`} {
		if _, err := aiperf.ReadSummary(strings.NewReader(bad), "summary.json"); err == nil || !strings.Contains(err.Error(), "summary.json") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestRawFiles(t *testing.T) {
	parts := fstest.MapFS{"raw_records/b.jsonl": {}, "raw_records/a.jsonl": {}}
	if got, err := aiperf.RawFiles(parts); err != nil || cmp.Diff([]string{"raw_records/a.jsonl", "raw_records/b.jsonl"}, got) != "" {
		t.Errorf("%v, %v", got, err)
	}
	parts["profile_export_raw.jsonl"] = &fstest.MapFile{}
	if got, err := aiperf.RawFiles(parts); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := aiperf.RawFiles(fstest.MapFS{}); err == nil {
		t.Error("no export is no error")
	}
}

// line makes a raw record around responses.
func line(responses string) string {
	return `{"metadata":{"x_request_id":"a","benchmark_phase":"profiling","request_start_ns":1796073242391736010.0,"unknown":{"x":[1]}},"start_perf_ns":1000,"status":200.0,"responses":[` +
		responses + `],"payload":{"model":"m","prompt":"p","stream":true,"max_tokens":512},"future":null}`
}

func read(t *testing.T, line string) *aiperf.Request {
	t.Helper()
	for r, err := range aiperf.ReadRaw(strings.NewReader(line), "raw.jsonl", 0) {
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Fatal("no record")
	return nil
}

// packets makes one event out of name, value pairs.
func packets(perf int, nameValue ...string) string {
	var fields []map[string]string
	for i := 0; i < len(nameValue); i += 2 {
		fields = append(fields, map[string]string{"name": nameValue[i], "value": nameValue[i+1]})
	}
	b, _ := json.Marshal(map[string]any{"perf_ns": perf, "packets": fields})
	return string(b)
}

func content(text string) string {
	b, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]string{"content": text}}}})
	return string(b)
}

const finish = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// However a server splits and terminates its events, the answer is the same.
func TestLegalEventFormsGiveOneAnswer(t *testing.T) {
	a, b := content("中"), content("😀!")
	indented := func(s string) (fields []string) {
		var buf bytes.Buffer
		json.Indent(&buf, []byte(s), "", " ")
		for l := range strings.Lines(buf.String()) {
			fields = append(fields, "data", strings.TrimSuffix(l, "\n"))
		}
		return fields
	}
	end := packets(3000, "data", finish) + "," + packets(3000, "data", "[DONE]")
	for name, c := range map[string]struct {
		responses string
		comments  int
	}{
		"one event each":      {packets(2000, "data", a) + "," + packets(3000, "data", b) + "," + end, 0},
		"other fields":        {packets(2000, "id", "7", "event", "message", "data", a, "retry", "10") + "," + packets(3000, "data", b, "x", "y") + "," + end, 0},
		"many data lines":     {packets(2000, indented(a)...) + "," + packets(3000, indented(b)...) + "," + end, 0},
		"events run together": {packets(2000, "data", a) + "," + packets(3000, "data", b, "data", finish, "data", "[DONE]"), 0},
		"keep-alive":          {packets(2000, "data", a) + "," + packets(2500, "comment", "ping") + "," + packets(3000, "data", b) + "," + end, 1},
		"escaped":             {packets(2000, "data", strings.Replace(a, "中", `\u4e2d`, 1)) + "," + packets(3000, "data", strings.Replace(b, "😀", `\ud83d\ude00`, 1)) + "," + end, 0},
	} {
		r := read(t, line(c.responses)).Response
		if r.Text != "中😀!" || r.SHA256.String() != hash("中😀!") || len(r.Chunks) != 2 || r.Chunks[0].PerfNS != 2000 || r.Chunks[1].PerfNS != 3000 ||
			r.FinishReason != "stop" || !r.Done || r.Malformed != "" || r.Comments != c.comments {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestUsageIsReadWhereverItStands(t *testing.T) {
	var events []string
	for i := range 7 {
		events = append(events, packets(1000+100+20*i, "data", fmt.Sprintf(`{"choices":[{"index":0,"text":"t%d","finish_reason":null}],"usage":null}`, i)))
	}
	for name, last := range map[string]string{
		"with the finish": packets(1230, "data", `{"choices":[{"text":"","finish_reason":"stop","index":0}],"usage":{"prompt_tokens":0,"completion_tokens":7}}`),
		"on its own": packets(1230, "data", `{"choices":[{"text":"","finish_reason":"stop","index":0}]}`) + "," +
			packets(1240, "data", `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":7.0,"prompt_tokens_details":null}}`) + "," + packets(1240, "data", `{"choices":[],"usage":{}}`),
	} {
		r := read(t, line(strings.Join(events, ",")+","+last))
		a := r.Response
		if a.Usage.Completion == nil || *a.Usage.Completion != 7 || len(a.Chunks) != 7 || a.Chunks[6].PerfNS != 1220 {
			t.Errorf("%s: %+v", name, a)
		}
		if a.Usage.Prompt != nil || a.Usage.Cached != nil {
			t.Errorf("%s: unknown token counts are not zero: %+v", name, a.Usage)
		}
		if *r.Payload.MaxTokens != 512 || r.StartWallNS != 1796073242391736010 || *r.Status != 200 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestChannels(t *testing.T) {
	r := read(t, line(strings.Join([]string{
		packets(1, "data", `{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}`),
		packets(2, "data", `{"choices":[{"index":0,"delta":{"reasoning_content":"hm","reasoning":"hm"}}]}`),
		packets(3, "data", `{"choices":[{"delta":{"content":"other"},"index":1,"finish_reason":"length"},{"delta":{"content":"yes"},"index":0}]}`),
		packets(4, "data", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}}]}`),
		packets(5, "data", finish),
	}, ","))).Response
	want := []aiperf.Chunk{{PerfNS: 2, ReasoningSize: 2}, {PerfNS: 3, TextSize: 3}, {PerfNS: 4, ToolSize: 3}}
	if d := cmp.Diff(want, r.Chunks); d != "" || r.Text != "yes" || r.Reasoning != "hm" || r.SHA256.String() != hash("yes") || r.RoleChunks != 1 || r.FinishReason != "stop" {
		t.Errorf("%+v %s", r, d)
	}
}

func TestErrorsInTheAnswer(t *testing.T) {
	chunk := packets(2, "data", content("a"))
	for name, c := range map[string]struct {
		responses string
		status    int64 // 0 for none
		after     bool
	}{
		"first event":    {packets(2, "data", `{"error":{"code":503,"type":"overloaded_error","message":"full"}}`), 503, false},
		"after content":  {chunk + "," + packets(3, "data", `{"error":{"code":"500","message":"died"}}`), 500, true},
		"words alone":    {packets(2, "data", `{"error":{"code":"overloaded","type":"t","message":"m"}}`), 0, false},
		"a string":       {packets(2, "data", `{"error":"boom"}`), 0, false},
		"unwrapped":      {packets(2, "data", `{"object":"error","message":"full","type":"t","code":429}`), 429, false},
		"event: error":   {packets(2, "event", "error", "data", `{"code":500,"message":"m"}`), 500, false},
		"error, no JSON": {packets(2, "event", "error", "data", "overloaded"), 0, false},
		"in a body":      {`{"perf_ns":2,"text":"{\"error\":{\"code\":400,\"message\":\"m\"}}","content_type":"application/json"}`, 400, false},
	} {
		r := read(t, line(c.responses)).Response
		if r.Failure == nil || r.AfterContent != c.after {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		if got := r.Failure.Status; (got == nil) != (c.status == 0) || got != nil && *got != c.status {
			t.Errorf("%s: %+v", name, r.Failure)
		}
	}
	for _, fine := range []string{`{"error":null,"choices":[]}`, `{"error":"","choices":[]}`, `{"choices":null}`} {
		if r := read(t, line(packets(2, "data", fine))).Response; r.Failure != nil || r.Malformed != "" {
			t.Errorf("%s: %+v", fine, r)
		}
	}
}

// What a server sends is not the export's fault: the record stays readable.
func TestMalformedAnswers(t *testing.T) {
	for name, responses := range map[string]string{
		"not JSON":       packets(2, "data", "oops"),
		"cut":            packets(2, "data", `{"choices":[{"delta":{"con`),
		"not an object":  packets(2, "data", `[1]`),
		"repeated key":   packets(2, "data", `{"choices":[],"choices":[]}`),
		"NaN":            packets(2, "data", `{"choices":[],"x":NaN}`),
		"wrong type":     packets(2, "data", `{"choices":[{"index":0,"delta":{"content":5}}]}`),
		"half surrogate": packets(2, "data", `{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}`),
		"HTML":           `{"perf_ns":2,"text":"<html>","content_type":"text/html"}`,
	} {
		if r := read(t, line(responses)).Response; !strings.HasPrefix(r.Malformed, "response 1: ") {
			t.Errorf("%s: %q", name, r.Malformed)
		}
	}
}

func TestFaultsNameFilePlaceAndReason(t *testing.T) {
	good := line(packets(2, "data", finish))
	for bad, want := range map[string]string{
		`{"metadata":{"x_request_id":"a","x_request_id":"b"}}`:              `raw.jsonl:2:33: metadata: the key "x_request_id" is there twice`,
		`{"metadata":{"turn_index":Infinity}}`:                              "Infinity is not a JSON number",
		`{"metadata":{"turn_index":1.5}}`:                                   "turn_index: 1.5 is not a whole number",
		`{"metadata":{"benchmark_phase":"ramp","request_start_ns":1}}`:      `benchmark_phase is "ramp"`,
		`{"metadata":{"benchmark_phase":"warmup","request_start_ns":null}}`: "no request_start_ns",
		`{"status":200}`: "no metadata",
		strings.Replace(good, `"perf_ns":2`, `"perf_ns":null`, 1):   "no perf_ns",
		strings.Replace(good, `"stream":true`, `"stream":"yes"`, 1): "payload: stream:",
		good + "x": "after the end of the value",
	} {
		var errs []error
		for _, e := range aiperf.ReadRaw(strings.NewReader(good+"\n"+bad+"\n"+good+"\n"), "raw.jsonl", 0) {
			errs = append(errs, e)
		}
		n, err := len(errs), errs[1]
		var c *jsonl.CorruptError
		if !errors.As(err, &c) || n != 3 || errs[0] != nil || errs[2] != nil || !strings.HasPrefix(err.Error(), "raw.jsonl:2") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v after %d records\nwant %s", bad, err, n, want)
		}
	}
}

// A writer that was cut off anywhere, and went on in the same line, costs the one
// record that it had begun.
func TestHalfARecordCostsItself(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "mixed_raw.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	for i := range lines[:len(lines)-2] {
		half, next := lines[i], lines[i+1]
		want := idIn(t, next)
		for cut := 1; cut < len(half)-1; cut += 1 + len(half)/200 {
			var gaps, whole []string
			for r, err := range aiperf.ReadRaw(bytes.NewReader(slices.Concat(half[:cut], next)), "raw.jsonl", 0) {
				var gap *aiperf.Gap
				switch {
				case errors.As(err, &gap):
					gaps = append(gaps, gap.ID)
				case err != nil:
					t.Fatalf("line %d, cut at %d: %v", i+1, cut, err)
				default:
					whole = append(whole, r.ID)
				}
			}
			if len(gaps) != 1 || len(whole) != 1 || whole[0] != want || gaps[0] == want {
				t.Fatalf("line %d, cut at %d: whole %q, torn %q; want %q whole", i+1, cut, whole, gaps, want)
			}
		}
	}
}

// idIn is the id of the one record of a line.
func idIn(t *testing.T, line []byte) (id string) {
	t.Helper()
	for r, err := range aiperf.ReadRaw(bytes.NewReader(line), "raw.jsonl", 0) {
		if err != nil {
			t.Fatal(err)
		}
		id = r.ID
	}
	return id
}

func TestGapKeepsIdentity(t *testing.T) {
	whole := line(packets(2, "data", finish))
	for name, in := range map[string]string{"torn": whole[:120], "too long": whole + strings.Repeat(" ", 4096)} {
		for _, err := range aiperf.ReadRaw(strings.NewReader(in), "raw.jsonl", 2048) {
			var g *aiperf.Gap
			if !errors.As(err, &g) || g.ID != "a" || g.Phase != "profiling" {
				t.Errorf("%s: %v %+v", name, err, g)
			}
		}
	}
}

// The digest of a body is that of its RFC 8785 form; jcs is the judge.
func TestCanonicalBody(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"a \u00e9 \"q\" \\ \n \u0001 \/"}],"stream":true,"temperature":0.0}`,
		`{ "b" : [ ] , "a" : { } , "" : [1, 2.50, -0, 1e21, 1E-7, 123456789012345680000, 0.000001, 1e-10, 5e-324] }`,
		`{"\ud83d\ude00":1,"\uffee":2,"\u20ac":3,"a":4,"aa":5,"A":6}`,
		`[true,false,null,"x"]`,
	} {
		want, err := jcs.Transform([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r := read(t, strings.Replace(line(""), `{"model":"m","prompt":"p","stream":true,"max_tokens":512}`, body, 1))
		if r.Payload.SHA256.String() != hash(string(want)) {
			t.Errorf("%s: the digest is not that of %s", body, want)
		}
	}
	chat := read(t, strings.Replace(line(""), `"prompt":"p"`, `"messages":[{"role":"user","content":"hi"}]`, 1)).Payload
	if chat.PromptSHA256.String() != hash(`[{"content":"hi","role":"user"}]`) || read(t, line("")).Payload.PromptSHA256.String() != hash("p") {
		t.Errorf("%+v", chat)
	}
}

func FuzzReader(f *testing.F) {
	for _, name := range []string{"mixed_raw.jsonl", "cancelled_raw.jsonl", "mixed.jsonl"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for l := range bytes.Lines(b) {
			// Long seeds keep the fuzzer busy with making them shorter.
			if len(l) < 2<<10 {
				f.Add(l)
			}
		}
	}
	f.Add([]byte(`{"schema_version":"1.4","request_count":{"unit":"requests","avg":11.0},"was_cancelled":false}`))
	f.Add([]byte(line(packets(2, "event", "error", "data", "x", "data", "[DONE]"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		for r, err := range aiperf.ReadRaw(bytes.NewReader(b), "f", 1<<16) {
			if (r == nil) == (err == nil) {
				t.Fatal("neither record nor error")
			}
		}
		for range aiperf.ReadFigures(bytes.NewReader(b), "f", 1<<16) {
		}
		aiperf.ReadSummary(bytes.NewReader(b), "f")
	})
}

// BenchmarkReader sets the reader beside encoding/json, which decodes the same
// lines into any, without looking into the packets.
func BenchmarkReader(b *testing.B) {
	export, err := os.ReadFile("testdata/mixed_raw.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	export = bytes.Repeat(export, 50)
	b.Run("ReadRaw", func(b *testing.B) {
		b.SetBytes(int64(len(export)))
		b.ReportAllocs()
		for b.Loop() {
			for _, err := range aiperf.ReadRaw(bytes.NewReader(export), "f", 0) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(export)))
		b.ReportAllocs()
		for b.Loop() {
			for l := range bytes.Lines(export) {
				var v any
				if err := json.Unmarshal(l, &v); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
