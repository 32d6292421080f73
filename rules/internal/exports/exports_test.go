package exports_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/rules/internal/exports"
	"assay/rules/internal/exports/exportstest"
	"assay/rules/internal/ledger"
)

// outcome is what an audit of a folder comes to.
type outcome struct {
	summary  ledger.Summary
	checks   []exports.Check
	findings []ledger.Finding
	plan     exports.Plan
}

func audit(dir, records string) (outcome, error) {
	run, err := exports.Open(dir, records)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{plan: run.Plan()}
	o.summary, o.checks, err = run.Ledger(context.Background(), 0, func(*ledger.Entry) error { return nil })
	o.findings = run.Findings()
	return o, err
}

// codes are severity and code of all findings, the ledger's and the files'.
func (o outcome) codes() []string {
	var list []string
	for _, f := range exports.Merge(o.summary.Findings, o.findings) {
		list = append(list, string(f.Severity)+" "+string(f.Code))
	}
	return list
}

func (o outcome) count(class ledger.Class) int { return o.summary.Counts[ledger.Measured][class] }

// evidence is all that was said of a finding.
func (o outcome) evidence(code string) string {
	var said []string
	for _, f := range exports.Merge(o.summary.Findings, o.findings) {
		if string(f.Code) == code {
			for _, e := range f.Evidence {
				said = append(said, e.RequestID+" "+e.Detail)
			}
		}
	}
	return strings.Join(said, "\n")
}

var (
	other = exportstest.Run{ID: "other", Start: time.Date(2026, 6, 1, 9, 0, 0, 0, time.UTC), Warmup: 1, Measured: 10, Slower: time.Millisecond}
	// alone is the warning that every run without server records has.
	alone = "warning client_only"
)

func TestRunIsWhole(t *testing.T) {
	dir := t.TempDir()
	exportstest.Run{}.Write(t, dir)
	exportstest.Put(t, dir, exports.RecordsFile, exportstest.Run{}.Records(t))
	got, err := audit(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got.checks {
		if c.Holds == nil || !*c.Holds {
			t.Errorf("%s: %v, %s", c.Question, c.Holds, c.Detail)
		}
	}
	if codes := got.codes(); codes != nil || got.count(ledger.Completed) != 10 || got.summary.Quality.Identical != 11 {
		t.Errorf("%v, %+v", codes, got.summary)
	}
	if !got.plan.Known() || *got.plan.Warmup != 1 || *got.plan.Measured != 10 {
		t.Errorf("plan %+v", got.plan)
	}
}

// A folder as people have them: each case changes a whole one.
func TestFolders(t *testing.T) {
	read := func(t *testing.T, dir, name string) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	// swap takes a file over from another run.
	swap := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			from := t.TempDir()
			other.Write(t, from)
			exportstest.Put(t, dir, name, read(t, from, name))
		}
	}
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	edit := func(name, old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			data := read(t, dir, name)
			if !bytes.Contains(data, []byte(old)) {
				t.Fatalf("%s does not hold %s", name, old)
			}
			exportstest.Put(t, dir, name, bytes.Replace(data, []byte(old), []byte(new), 1))
		}
	}
	for name, c := range map[string]struct {
		run    exportstest.Run
		change func(t *testing.T, dir string)
		codes  []string // beside alone
		says   string   // in the evidence
		check  func(t *testing.T, o outcome)
	}{
		"a summary of another run": {
			change: swap(exports.SummaryFile),
			codes:  []string{"blocking wrong_run", "warning summary_mismatch"}, says: "the summary's latencies are those of the figures: 10 of them",
		},
		"figures of another run": {
			change: swap(exports.FiguresFile),
			codes:  []string{"blocking wrong_run", "warning missing_file"}, says: "11 of 11 are not, the first is other-0000",
		},
		"a manifest of another run": {
			change: swap(exports.ManifestFile),
			codes:  []string{"blocking wrong_run"}, says: "the phase warmup was from 2026-06-01 08:59:59",
		},
		"a summary of a phase of another run": {
			change: edit("phases/profiling/"+exports.SummaryFile, "a1b2c3d4", "otherone"),
			codes:  []string{"blocking wrong_run"}, says: "otherone",
		},
		"inputs of another run": {
			change: func(t *testing.T, dir string) {
				exportstest.Put(t, dir, exports.InputsFile, []byte(`{"data":[{"session_id":"session_000000","payloads":[]}]}`))
			},
			codes: []string{"blocking wrong_run"}, says: "is not",
		},
		"two runs in one export": {
			change: func(t *testing.T, dir string) {
				from := t.TempDir()
				other.Write(t, from)
				exportstest.Put(t, dir, exports.RawFile, append(read(t, from, exports.RawFile), read(t, dir, exports.RawFile)...))
			},
			codes: []string{"blocking plan_mismatch", "blocking wrong_run", "warning clock_step", "warning missing_file", "warning summary_mismatch"}, says: "11 have that of another",
		},
		"parts of a killed run beside a whole one": {
			change: func(t *testing.T, dir string) { exportstest.Put(t, dir, "raw_records/raw_1.jsonl", nil) },
			codes:  []string{"warning stale_file"}, says: "raw_records/raw_1.jsonl",
		},
		"a summary that is older than the answers": {
			change: func(t *testing.T, dir string) {
				old := time.Date(2026, 7, 1, 9, 0, 0, 0, time.UTC)
				if err := os.Chtimes(filepath.Join(dir, exports.SummaryFile), old, old); err != nil {
					t.Fatal(err)
				}
			},
			codes: []string{"warning stale_file"}, says: "profile_export_aiperf.json was written at 2026-07-01 09:00:00",
		},
		"half a record at the end": {
			change: func(t *testing.T, dir string) {
				data := read(t, dir, exports.RawFile)
				exportstest.Put(t, dir, exports.RawFile, data[:len(data)-100])
			},
			codes: []string{"blocking torn_export", "warning summary_mismatch"}, says: "profile_export_raw.jsonl:11: torn record",
			check: func(t *testing.T, o outcome) {
				if o.count(ledger.Incomplete) != 1 || o.count(ledger.Completed) != 9 {
					t.Errorf("%v", o.summary.Counts)
				}
			},
		},
		"half a record, and the next one behind it": {
			change: func(t *testing.T, dir string) {
				lines := bytes.SplitAfter(read(t, dir, exports.RawFile), []byte("\n"))
				lines[4] = lines[4][:len(lines[4])/2]
				exportstest.Put(t, dir, exports.RawFile, bytes.Join(lines, nil))
			},
			codes: []string{"blocking torn_export", "warning summary_mismatch"}, says: "profile_export_raw.jsonl:5: torn record",
			check: func(t *testing.T, o outcome) {
				if o.count(ledger.Incomplete) != 1 || o.count(ledger.Completed) != 9 {
					t.Errorf("%v", o.summary.Counts)
				}
			},
		},
		"half a record, and the same one whole": {
			change: func(t *testing.T, dir string) {
				lines := bytes.SplitAfter(read(t, dir, exports.RawFile), []byte("\n"))
				lines[4] = slices.Concat(lines[4][:len(lines[4])/2], lines[4])
				exportstest.Put(t, dir, exports.RawFile, bytes.Join(lines, nil))
			},
			codes: []string{"blocking torn_export"}, says: "profile_export_raw.jsonl:5: torn record",
			check: func(t *testing.T, o outcome) {
				if o.count(ledger.Completed) != 10 || o.summary.Unplanned != 0 {
					t.Errorf("%+v", o.summary)
				}
			},
		},
		"a damaged record": {
			change: edit(exports.RawFile, `"request_start_ns":1`, `"request_start_ns":NaN1`),
			codes:  []string{"blocking torn_export"}, says: "request_start_ns: NaN is not a JSON number",
			check: func(t *testing.T, o outcome) {
				if o.count(ledger.Completed) != 10 || o.summary.Counts[ledger.Warmup][ledger.Incomplete] != 1 {
					t.Errorf("%v", o.summary.Counts)
				}
			},
		},
		"a request twice": {
			change: func(t *testing.T, dir string) {
				lines := bytes.SplitAfter(read(t, dir, exports.RawFile), []byte("\n"))
				exportstest.Put(t, dir, exports.RawFile, bytes.Join(slices.Insert(lines, 4, lines[4]), nil))
			},
			codes: []string{"blocking ambiguous_id", "blocking plan_mismatch", "blocking wrong_run", "warning repeated_prompt", "warning summary_mismatch"}, says: "2 client and 0 server records",
		},
		"killed: parts, and no summary": {
			change: func(t *testing.T, dir string) {
				data := read(t, dir, exports.RawFile)
				exportstest.Put(t, dir, "raw_records/raw_1.jsonl", data[:len(data)/2])
				remove(exports.RawFile, exports.SummaryFile, exports.ManifestFile, exports.FiguresFile)(t, dir)
			},
			codes: []string{"blocking missing_file", "blocking plan_mismatch", "blocking torn_export"}, says: "no summary of the run: it was killed",
			check: func(t *testing.T, o outcome) {
				if o.plan.Source != exports.LogFile || *o.plan.Measured != 10 || o.count(ledger.NotSent) == 0 {
					t.Errorf("plan %+v, %v", o.plan, o.summary.Counts)
				}
			},
		},
		"no request succeeded": {
			run:   exportstest.Run{ID: "busy", Measured: 2, Ends: []exportstest.End{exportstest.Rejected, exportstest.Rejected}},
			codes: []string{"blocking nothing_completed", "warning missing_file"}, says: "2 measured requests, none of them completed",
			check: func(t *testing.T, o outcome) {
				if !strings.Contains(o.evidence("missing_file"), "AIPerf writes none when no request succeeded") {
					t.Errorf("%v", o.findings)
				}
			},
		},
		"nothing says what was planned": {
			change: remove(exports.SummaryFile, exports.LogFile),
			codes:  []string{"blocking missing_file"}, says: "no summary",
			check: func(t *testing.T, o outcome) {
				if o.plan.Known() || o.summary.Plan.Warmup != 1 || o.summary.Plan.Measured != 10 {
					t.Errorf("plan %+v, closed with %+v", o.plan, o.summary.Plan)
				}
			},
		},
		"no figures": {
			change: remove(exports.FiguresFile),
			codes:  []string{"warning missing_file"}, says: "no figures",
		},
		"half a summary": {
			change: func(t *testing.T, dir string) {
				data := read(t, dir, exports.SummaryFile)
				exportstest.Put(t, dir, exports.SummaryFile, data[:len(data)/2])
			},
			codes: []string{"warning unread_file"}, says: "profile_export_aiperf.json: unexpected end",
		},
		"figures that are none": {
			change: edit(exports.FiguresFile, `"x_request_id":"a1b2c3d4-0003"`, `"x_request_id":"a1b2c3d4-0003",,`),
			codes:  []string{"warning unread_file"}, says: "profile_export.jsonl:4:",
		},
		"an error in the figures that AIPerf gives to no request": {
			change: func(t *testing.T, dir string) {
				const failed = `{"metadata":{"session_num":9,"benchmark_phase":"profiling"},"metrics":{},"error":{"type":"InvalidInferenceResultError","message":"Invalid inference result: "}}`
				exportstest.Put(t, dir, exports.FiguresFile, append(read(t, dir, exports.FiguresFile), failed+"\n"...))
			},
		},
		"inputs that are none": {
			change: func(t *testing.T, dir string) { exportstest.Put(t, dir, exports.InputsFile, []byte(`[]`)) },
			codes:  []string{"warning unread_file"}, says: "inputs.json: byte 1: [ instead of {",
		},
		"a pipe for a summary": {
			change: func(t *testing.T, dir string) {
				remove(exports.SummaryFile)(t, dir)
				if err := syscall.Mkfifo(filepath.Join(dir, exports.SummaryFile), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			codes: []string{"blocking missing_file", "warning unread_file"}, says: "no summary",
		},
		"another version": {
			change: func(t *testing.T, dir string) {
				edit(exports.SummaryFile, `"aiperf_version":"0.13.0"`, `"aiperf_version":"0.15.1"`)(t, dir)
				edit(exports.SummaryFile, `"benchmark_id":"a1b2c3d4"`, `"benchmark_id":7`)(t, dir)
			},
			codes: []string{"info other_version"}, says: `the summary is of AIPerf "0.15.1"`,
			check: func(t *testing.T, o outcome) {
				if !strings.Contains(o.evidence("other_version"), `the value of "benchmark_id" has another form`) {
					t.Errorf("%v", o.findings)
				}
			},
		},
		"records of another form": {
			change: edit(exports.RawFile, `"session_num"`, `"request_num"`),
			codes:  []string{"info other_version"}, says: "profile_export_raw.jsonl: keys that 0.13.0 writes and it does not: session_num",
			check: func(t *testing.T, o outcome) {
				if !strings.Contains(o.evidence("other_version"), "keys that 0.13.0 does not write: request_num") {
					t.Errorf("%v", o.findings)
				}
			},
		},
		"a phase that ends by time": {
			change: edit(exports.SummaryFile, `"requests":10`, `"duration":60,"requests":1000`),
			check: func(t *testing.T, o outcome) {
				if o.plan.Measured != nil || *o.plan.Warmup != 1 || o.summary.Plan.Measured != 10 {
					t.Errorf("plan %+v, closed with %+v", o.plan, o.summary.Plan)
				}
			},
		},
		"a run cut short": {
			change: edit(exports.SummaryFile, `"was_cancelled":false`, `"was_cancelled":true`),
			codes:  []string{"blocking aiperf_exit"}, says: "cancelled true",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.run.Write(t, dir)
			if c.change != nil {
				c.change(t, dir)
			}
			got, err := audit(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			codes := slices.DeleteFunc(got.codes(), func(s string) bool { return s == alone || strings.HasPrefix(s, "warning ledger_disagrees") })
			if !slices.Equal(codes, c.codes) {
				t.Errorf("findings %q, want %q\n%+v", codes, c.codes, got.findings)
			}
			var said strings.Builder
			for _, code := range codes {
				said.WriteString(got.evidence(strings.Fields(code)[1]) + "\n")
			}
			if !strings.Contains(said.String(), c.says) {
				t.Errorf("the evidence does not say %q:\n%s", c.says, said.String())
			}
			if c.check != nil {
				c.check(t, got)
			}
		})
	}
}

// What cannot be audited says what it is, and why not.
func TestNoRun(t *testing.T) {
	put := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { exportstest.Put(t, dir, name, []byte(text)) }
	}
	write := func(below ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, name := range below {
				exportstest.Run{}.Write(t, filepath.Join(dir, name))
			}
		}
	}
	whole := write(".")
	for name, c := range map[string]struct {
		make    func(t *testing.T, dir string)
		records string
		want    []string
	}{
		"empty":     {func(*testing.T, string) {}, "", []string{"is empty"}},
		"unrelated": {put("notes.txt", "x"), "", []string{"holds no run of AIPerf: neither profile_export_raw.jsonl nor raw_records/*.jsonl"}},
		"not raw":   {put(exports.FiguresFile, ""), "", []string{"--export-level raw"}},
		"vLLM":      {put("r.json", `{"date":"x","tokenizer_id":"m","input_lens":[1,2],"mean_ttft_ms":1.5}`), "", []string{"r.json is the result of vLLM's benchmark"}},
		"GenAI-Perf": {put("profile_export.json", `{"service_kind":"openai","endpoint":"","experiments":[{"requests":[]}]}`), "",
			[]string{"profile_export.json is an export of GenAI-Perf"}},
		"GuideLLM": {put("benchmarks.json", `{"metadata":{},"benchmarks":[`+strings.Repeat(" ", 1<<20)), "", []string{"benchmarks.json is the result of GuideLLM"}},
		"a file": {func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			exportstest.Put(t, filepath.Dir(dir), filepath.Base(dir), []byte("x"))
		}, "", []string{"is a file, not a folder"}},
		"nothing": {func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}, "", []string{"no such file"}},
		"a run below":   {write("artifacts/run"), "", []string{"holds no run itself; the folder artifacts/run does"}},
		"several below": {write("a", "b"), "", []string{"2 below it: a, b"}},
		"several in one": {func(t *testing.T, dir string) {
			exportstest.Put(t, dir, "x_raw.jsonl", nil)
			exportstest.Put(t, dir, "y_raw.jsonl", nil)
		}, "", []string{"holds 2 runs (x_raw.jsonl, y_raw.jsonl)"}},
		"a loop of links": {func(t *testing.T, dir string) {
			if err := os.Symlink(exports.RawFile, filepath.Join(dir, exports.RawFile)); err != nil {
				t.Fatal(err)
			}
		}, "", []string{exports.RawFile, "too many levels of symbolic links"}},
		"a pipe": {func(t *testing.T, dir string) {
			if err := syscall.Mkfifo(filepath.Join(dir, exports.RawFile), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "", []string{exports.RawFile, "is not a regular file"}},
		"no request and no plan": {put(exports.RawFile, "\n"), "", []string{"profile_export_raw.jsonl holds no request"}},
		"no such records":        {whole, "gone.jsonl", []string{"server records", "no such file"}},
		"a corrupt record": {func(t *testing.T, dir string) {
			whole(t, dir)
			exportstest.Put(t, dir, exports.RecordsFile, []byte("{\"schema\":9,\"request_id\":\"a\"}\n"))
			data := bytes.Replace(exportstest.Run{}.Records(t), []byte("schema"), []byte("scheme"), 1)
			exportstest.Put(t, dir, exports.RawFile, append([]byte("{\"metadata\":{}}\n"), data...))
		}, "", []string{"profile_export_raw.jsonl:1: metadata: benchmark_phase", "records.jsonl:1: schema 9; this build reads 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			c.make(t, dir)
			if c.records != "" {
				c.records = filepath.Join(dir, c.records)
			}
			_, err := audit(dir, c.records)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}

func TestUnreadableExport(t *testing.T) {
	dir := t.TempDir()
	exportstest.Run{}.Write(t, dir)
	if err := os.Chmod(filepath.Join(dir, exports.RawFile), 0); err != nil {
		t.Fatal(err)
	}
	withoutPrivilege(t, dir)
	if _, err := audit(dir, ""); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), exports.RawFile) {
		t.Error(err)
	}
}

// A record of 300 MiB costs itself only.
func TestEnormousRecord(t *testing.T) {
	dir := t.TempDir()
	exportstest.Run{}.Write(t, dir)
	name := filepath.Join(dir, exports.RawFile)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	// Zeros that no disk holds: the record is too long, whatever is in it.
	if _, err := f.Write(first[:300]); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(append([]byte("\n"), rest...), 300<<20); err != nil {
		t.Fatal(err)
	}
	got, err := audit(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if said := got.evidence("torn_export"); !strings.Contains(said, "profile_export_raw.jsonl:1: the line has 314572800 bytes") {
		t.Errorf("%s", said)
	}
	if got.count(ledger.Completed) != 10 || got.summary.Counts[ledger.Warmup][ledger.Incomplete] != 1 {
		t.Errorf("%v", got.summary.Counts)
	}
}

func TestPrefixAndRotatedRecords(t *testing.T) {
	dir := t.TempDir()
	exportstest.Run{}.Write(t, dir)
	for from, to := range map[string]string{exports.RawFile: "mine_raw.jsonl", exports.FiguresFile: "mine.jsonl", exports.SummaryFile: "mine.json"} {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	server := t.TempDir()
	records := exportstest.Run{}.Records(t)
	cut := bytes.IndexByte(records, '\n') + 1
	exportstest.Put(t, server, "log.000001.jsonl", records[:cut])
	exportstest.Put(t, server, "log.jsonl", records[cut:])
	got, err := audit(dir, filepath.Join(server, "log.jsonl"))
	if err != nil || got.codes() != nil || got.summary.Quality.OneToOne != 11 {
		t.Errorf("%v, %v, %+v", err, got.codes(), got.summary.Quality)
	}
}

// A record of the server that is damaged costs itself only, too.
func TestDamagedRecordOfTheServer(t *testing.T) {
	dir := t.TempDir()
	exportstest.Run{}.Write(t, dir)
	exportstest.Put(t, dir, exports.RecordsFile, bytes.Replace(exportstest.Run{}.Records(t), []byte(`"schema":1`), []byte(`"schema":9`), 1))
	got, err := audit(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if codes := got.codes(); !slices.Equal(codes, []string{"blocking client_only", "blocking torn_export"}) || got.summary.Quality.OneToOne != 10 {
		t.Errorf("%v, %+v", codes, got.summary.Quality)
	}
	if said := got.evidence("torn_export"); !strings.Contains(said, "records.jsonl:1: schema 9") {
		t.Error(said)
	}
}

// A file that begins with many lines that are no records holds something else; what
// comes behind them does not make it a run.
func TestFileOfOtherThings(t *testing.T) {
	dir := t.TempDir()
	exportstest.Run{}.Write(t, dir)
	name := filepath.Join(dir, exports.RawFile)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for lines, want := range map[int]bool{99: true, 100: false} {
		exportstest.Put(t, dir, exports.RawFile, append(bytes.Repeat([]byte("{}\n"), lines), data...))
		_, err := audit(dir, "")
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), exports.RawFile+":1: ") {
			t.Errorf("%d lines: %v", lines, err)
		}
	}
}

func TestRecordsOfAnotherRun(t *testing.T) {
	dir := t.TempDir()
	exportstest.Run{}.Write(t, dir)
	exportstest.Put(t, dir, exports.RecordsFile, other.Records(t))
	got, err := audit(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got.codes(), "blocking wrong_run") {
		t.Errorf("%v", got.codes())
	}
	if c := got.checks[len(got.checks)-1]; *c.Holds || c.Detail != "0 of its 11 records are of requests in the raw export" {
		t.Errorf("%+v", c)
	}
}

func TestReadingEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	exportstest.Run{}.Write(t, dir)
	run, err := exports.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, _, err := run.Ledger(ctx, 0, func(*ledger.Entry) error { return nil }); !errors.Is(err, stop) {
		t.Error(err)
	}
}
