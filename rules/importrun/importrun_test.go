package importrun

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/aiperfrun"
	"assay/rules/internal/exports"
	"assay/rules/internal/exports/exportstest"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/ledger"
)

// The folder and a prefix are not in the names, so they are not in the key.
func TestFilesAreNamedAsAIPerfDoes(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  string // names, sorted, or the problem
	}{
		"a folder":   {[]string{"runs/a/profile_export_raw.jsonl", "runs/a/logs/aiperf.log"}, "logs/aiperf.log profile_export_raw.jsonl"},
		"the root":   {[]string{"profile_export_raw.jsonl", "inputs.json"}, "inputs.json profile_export_raw.jsonl"},
		"parts":      {[]string{"a/raw_records/1.jsonl", "a/raw_records/2.jsonl"}, "raw_records/1.jsonl raw_records/2.jsonl"},
		"a prefix":   {[]string{"a/x_raw.jsonl", "a/x.jsonl", "a/x.json", "a/x.csv"}, "profile_export.jsonl profile_export_aiperf.json profile_export_raw.jsonl x.csv"},
		"no export":  {[]string{"a/profile_export.jsonl"}, "none of the 1 files is a raw export, profile_export_raw.jsonl or raw_records/*.jsonl"},
		"nothing":    {nil, "none of the 0 files is a raw export, profile_export_raw.jsonl or raw_records/*.jsonl"},
		"two runs":   {[]string{"a/profile_export_raw.jsonl", "b/raw_records/1.jsonl"}, "the files are of 2 runs: a, b"},
		"two prefix": {[]string{"a/x_raw.jsonl", "a/y_raw.jsonl"}, "the files are of 2 runs: a/x_raw.jsonl, a/y_raw.jsonl"},
		"outside":    {[]string{"a/profile_export_raw.jsonl", "b/inputs.json"}, "b/inputs.json is not below a, the folder of the run"},
		"one name":   {[]string{"x_raw.jsonl", "x.jsonl", "profile_export.jsonl"}, "x.jsonl and profile_export.jsonl would both be profile_export.jsonl"},
	} {
		names, problems := place(c.files)
		got := strings.Join(slices.Sorted(maps.Values(names)), " ")
		if problems != nil {
			got = problems[0].Message
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// imported takes a folder in, and returns the sample.
func imported(t *testing.T, from string, records map[string][]byte) (string, error) {
	t.Helper()
	paths, inputs := map[string]string{}, map[string]digest.Digest{}
	add := func(role, path string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		paths[role], inputs[role] = path, digest.FromBytes(data)
	}
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(from, path)
			add(exportRole+filepath.ToSlash(name), path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := t.TempDir()
	for name, data := range records {
		exportstest.Put(t, server, name, data)
		add(recordRole+name, filepath.Join(server, name))
	}
	run := action.NewRun(func(role string) string { return paths[role] }, t.TempDir(), t.TempDir(), io.Discard)
	run.Inputs = inputs
	if err := take(t.Context(), run, "somewhere", 4096); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(run.Out)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	return filepath.Join(run.Out, entries[0].Name()), nil
}

func TestSampleOfUnknownOrigin(t *testing.T) {
	from := t.TempDir()
	run := exportstest.Run{}
	run.Write(t, from)
	records := run.Records(t)
	cut := bytes.IndexByte(records, '\n')
	// The rotated file has lost its last newline on the way.
	sample, err := imported(t, from, map[string][]byte{"log.000001.jsonl": records[:cut], "log.jsonl": records[cut+1:]})
	if err != nil {
		t.Fatal(err)
	}
	var facts aiperfrun.Sample
	if err := jsonfile.Read(filepath.Join(sample, aiperfrun.SampleFile), &facts); err != nil {
		t.Fatal(err)
	}
	want := aiperfrun.Workload{Endpoint: "chat", Streaming: true, InputTokens: 8, OutputTokens: 10, Concurrency: 1, Requests: 10, Warmup: 1, Seed: 7}
	if d := cmp.Diff(want, facts.Workload); d != "" || facts.Server.Model != "test/model" || facts.Server.Context != 4096 {
		t.Errorf("%s, %+v", d, facts.Server)
	}
	if got := facts.Started.String() + " " + facts.Finished.String(); got != "2026-07-01 10:00:00 +0000 UTC 2026-07-01 10:00:01.065 +0000 UTC" {
		t.Error(got)
	}
	got, err := Read(sample)
	if err != nil || got.Origin != "somewhere" || got.AIPerf != "0.13.0" || got.BenchmarkID != "a1b2c3d4" || len(got.Findings) != 0 || len(got.Unknown) != 4 {
		t.Errorf("%v, %+v", err, got)
	}
	joined, err := os.ReadFile(filepath.Join(sample, filepath.FromSlash(aiperfrun.Records)))
	if err != nil || !bytes.Equal(joined, records) {
		t.Errorf("the records are not the ones that were given: %v", err)
	}
	// The same files give the same bytes, whenever they are taken in.
	again, err := imported(t, from, map[string][]byte{"log.000001.jsonl": records[:cut], "log.jsonl": records[cut+1:]})
	if err != nil || filepath.Base(again) != filepath.Base(sample) {
		t.Fatalf("%s, %s, %v", sample, again, err)
	}
	for _, name := range []string{aiperfrun.SampleFile, File} {
		a, _ := os.ReadFile(filepath.Join(sample, name))
		b, _ := os.ReadFile(filepath.Join(again, name))
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs:\n%s", name, cmp.Diff(string(a), string(b)))
		}
	}
}

func TestWhatAnImportSaysOfItsFiles(t *testing.T) {
	write := func(run exportstest.Run) string {
		dir := t.TempDir()
		run.Write(t, dir)
		return dir
	}
	take := func(from, name, to string) {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		exportstest.Put(t, to, name, data)
	}
	mixed := write(exportstest.Run{})
	take(write(exportstest.Run{ID: "other", Measured: 9}), exports.FiguresFile, mixed)
	sample, err := imported(t, mixed, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(sample)
	if err != nil || len(got.Findings) == 0 || got.Findings[0].Code != ledger.WrongRun || got.Findings[0].Severity != ledger.Blocking {
		t.Errorf("%v, %+v", err, got)
	}

	damaged := write(exportstest.Run{})
	raw, err := os.ReadFile(filepath.Join(damaged, exports.RawFile))
	if err != nil {
		t.Fatal(err)
	}
	exportstest.Put(t, damaged, exports.RawFile, append(raw, "{}\n"...))
	if _, err := imported(t, damaged, nil); err == nil || !strings.Contains(err.Error(), exports.RawFile+":12: the record has no metadata") {
		t.Errorf("a damaged record: %v", err)
	}

	half := write(exportstest.Run{})
	exportstest.Put(t, half, exports.SummaryFile, []byte(`{"aiperf_version":`))
	if _, err := imported(t, half, nil); err == nil || !strings.Contains(err.Error(), exports.SummaryFile) || !strings.Contains(err.Error(), "leave what cannot be read out of `files`") {
		t.Errorf("half a summary: %v", err)
	}
	if err := os.Remove(filepath.Join(half, exports.SummaryFile)); err != nil {
		t.Fatal(err)
	}
	sample, err = imported(t, half, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Read(sample); err != nil || got.Plan.Source != exports.LogFile || !slices.Contains(got.Unknown, "the configuration of the run: there is no summary") {
		t.Errorf("%v, %+v", err, got)
	}
}
