package joined

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/pyenv/pyenvtest"
)

// DuckDB, Polars and pandas read what the JSON lines say, and the examples of the
// documentation, run as they stand, find the figures that a report has.
func TestDuckDBPolarsAndPandasReadIt(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an environment of some 100 MB")
	}
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	python := pyenvtest.Environment(t, filepath.Join(testdata, "requirements.txt")).Python()
	page, err := os.ReadFile("../../../docs/joined.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	row := writeSamples(t, filepath.Join(dir, "ledger"), filepath.Join(dir, "joined"))
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), python, append([]string{"-I", "-X", "utf8"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}

	columns := len(parquet.SchemaOf(newRow("", &ledger.Entry{})).Columns())
	want := fmt.Sprintf("by_duckdb: %[1]d columns\nby_polars: %[1]d columns\nby_pandas: %[1]d columns\n", columns)
	if got := run(filepath.Join(testdata, "check.py")); got != want {
		t.Errorf("check.py:\n%s", got)
	}

	examples := regexp.MustCompile("(?s)```(sql|python)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(examples) != 3 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, example := range examples {
		code := example[2]
		if example[1] == "sql" {
			code = fmt.Sprintf("import duckdb\nprint(duckdb.sql(%q).fetchall())", strings.TrimRight(code, "; \n"))
		}
		out := run("-c", code)
		var numbers []float64
		for _, n := range regexp.MustCompile(`[0-9.]+`).FindAllString(out, -1) {
			v, err := strconv.ParseFloat(n, 64)
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, v)
		}
		p50 := *row.LatencyMS.P50.Value
		if len(numbers) != 3 || int(numbers[0]) != row.Measured || int(numbers[1]) != row.Rejected.Count || numbers[2] < p50*(1-1e-9) || numbers[2] > p50*(1+1e-9) {
			t.Errorf("the report has %d, %d and %v, this prints %s:\n%s", row.Measured, row.Rejected.Count, p50, out, code)
		}
	}
}

// writeSamples writes the records of two samples in both forms and returns their
// figures.
func writeSamples(t *testing.T, lineDir, tableDir string) metrics.Row {
	t.Helper()
	if err := errors.Join(os.Mkdir(lineDir, 0o755), os.Mkdir(tableDir, 0o755)); err != nil {
		t.Fatal(err)
	}
	var row metrics.Builder
	draw := rapid.Custom(drawEntry)
	for i, name := range []string{"s1", "s2"} {
		lines, err := os.Create(filepath.Join(lineDir, name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer lines.Close()
		table, err := os.Create(filepath.Join(tableDir, name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		l, p := ledger.NewWriter(lines), NewWriter(table, name)
		for k := range 200 {
			e := draw.Example(200*i + k)
			e.Phase, e.Class, e.Reject = ledger.Measured, ledger.Classes[k%len(ledger.Classes)], nil
			if k%7 == 0 {
				e.Phase = ledger.Warmup
			}
			if e.Class == ledger.Completed && e.Client == nil {
				e.Client = &ledger.Client{}
			}
			if e.Client != nil {
				latency := int64(1e6 + 12_345_679*k)
				e.Client.LatencyNS = &latency
			}
			row.Add(e)
			if err := errors.Join(l.Write(e), p.Write(e)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(l.Flush(), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return row.Row()
}
