package audit_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/rules/audit"
	"assay/rules/internal/exports"
	"assay/rules/internal/exports/exportstest"
)

var update = flag.Bool("update", false, "write the golden files again")

// mixed is a run that AIPerf reports too well: it calls broken streams successes.
var mixed = exportstest.Run{Warmup: 2, Measured: 12, Ends: []exportstest.End{
	exportstest.Well, exportstest.Broken, exportstest.Rejected, exportstest.Broken, exportstest.Empty, exportstest.Rejected,
}}

func TestWhatPeopleRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	mixed.Write(t, dir)
	exportstest.Put(t, dir, exports.RecordsFile, mixed.Records(t))
	r, err := audit.Audit(t.Context(), audit.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	r.Folder = "run"
	var got bytes.Buffer
	if err := r.Write(&got, 100); err != nil {
		t.Fatal(err)
	}
	const file = "testdata/mixed.golden"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Error(d)
	}
	for line := range strings.Lines(got.String()) {
		if n := len([]rune(line)); n > 101 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// The figures of AIPerf's summary, each with what explains it.
func TestBesideTheLedger(t *testing.T) {
	marks := func(run exportstest.Run) (map[string]string, *audit.Beside) {
		dir := t.TempDir()
		run.Write(t, dir)
		r, err := audit.Audit(t.Context(), audit.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, f := range r.AIPerf.Figures {
			m[f.Figure] = f.Why
			if f.Agrees {
				m[f.Figure] = "agrees"
			}
		}
		return m, r.AIPerf
	}
	got, whole := marks(exportstest.Run{Measured: 400})
	if got["successes"] != "agrees" || got["latency mean"] != "agrees" || got["latency p99"] != "agrees" || whole.Over != "" {
		t.Errorf("a run that ended well: %q", got)
	}
	got, small := marks(exportstest.Run{})
	if got["latency p50"] != "agrees" || got["latency p99"] != "n too small (needs 299 one-sided, 368 two-sided)" || small.Over != "" {
		t.Errorf("ten requests: %q", got)
	}
	got, bad := marks(mixed)
	if bad.Over != "AIPerf's figures are over 9 requests, 2 of which did not complete (2 broken_stream)" || got["successes"] != "" || got["latency mean"] != "" {
		t.Errorf("broken streams: %q, %q", bad.Over, got)
	}
}

func TestLedgerFile(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "ledger.jsonl")
	mixed.Write(t, dir)
	options := audit.Options{Dir: dir, Ledger: out}
	if _, err := audit.Audit(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	var last struct{ Phase, Class string }
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || len(lines) != 14 || last.Phase != "measured" || last.Class != "completed" {
		t.Errorf("%d lines, the last is %+v, %v", len(lines), last, err)
	}
	// It overwrites nothing, least of all what it reads.
	options.Ledger = filepath.Join(dir, exports.RawFile)
	before, _ := os.ReadFile(options.Ledger)
	if _, err := audit.Audit(t.Context(), options); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Error(err)
	}
	if after, _ := os.ReadFile(options.Ledger); !bytes.Equal(before, after) {
		t.Error("the export was overwritten")
	}
	// Half a ledger does not stay.
	exportstest.Put(t, dir, exports.RecordsFile, []byte("x\n"))
	options.Ledger = filepath.Join(t.TempDir(), "half.jsonl")
	if _, err := audit.Audit(t.Context(), options); err == nil {
		t.Error("a corrupt export was audited")
	}
	if _, err := os.Stat(options.Ledger); !os.IsNotExist(err) {
		t.Error("half a ledger was left")
	}
}

// Every code that can block a program's pipeline has a page that a person can open.
func TestPages(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range exports.Codes {
		if got := audit.Page(code); got != "docs/audit.md#findings-about-the-files" || !strings.Contains(string(page), "| `"+string(code)+"` |") {
			t.Errorf("%s is not in %s", code, got)
		}
	}
	if got := audit.Page("torn_export"); got != "docs/findings/torn_export.md" {
		t.Error(got)
	}
}

// The words of a server reach the terminal as text.
func TestNothingSteersTheTerminal(t *testing.T) {
	r := audit.Report{Folder: "a\x1b[2Jb"}
	var out bytes.Buffer
	if err := r.Write(&out, 0); err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
