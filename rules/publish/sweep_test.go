package publish

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/sweep"
)

// swept is a series of three measured cells with the knee at the second, one that was
// skipped and one that failed, its reason as hostile as a server's words can be.
func swept() sweep.Sweep {
	s := sweep.Series{Workload: sweep.Workload{Endpoint: "chat", Mode: "buffered", InputTokens: 32, OutputTokens: 16, Axis: sweep.Concurrency}}
	for i, rate := range []float64{5, 9, 9.5} {
		load := float64(int(1) << i)
		var latencies []float64
		for k := range 40 {
			latencies = append(latencies, 1000*load/rate*(1+float64(k)/100))
		}
		figures := metrics.Row{
			Samples: 1, Measured: 40, Counts: map[ledger.Class]int{ledger.Completed: 40}, RequestsPerS: &rate,
			LatencyMS: metrics.Latency{Stats: metrics.Describe(latencies)}, TTFTMS: metrics.Latency{Stats: metrics.Describe(nil)},
		}
		s.Cells = append(s.Cells, sweep.Cell{Name: "cell", Load: load, State: sweep.Measured, Figures: &figures})
	}
	s.Cells = append(s.Cells,
		sweep.Cell{Name: "cell", Load: 8, State: sweep.Skipped, Reason: "saturated at c=4 (…)"},
		sweep.Cell{Name: "cell", Load: 16, State: sweep.Failed, Reason: `<script> | "oh"`})
	low, knee, high := 1.0, 2.0, 4.0
	s.Knee = sweep.Knee{Load: &knee, Low: &low, High: &high, Note: "an estimate"}
	return sweep.Sweep{Version: 1, Series: []sweep.Series{s}}
}

func TestSweepInEveryForm(t *testing.T) {
	list := []sweep.Sweep{swept()}
	var text bytes.Buffer
	writeSweeps(&text, list)
	for _, want := range []string{
		"Knee: c=2 (the peak of power lies from c=1 to c=4); an estimate.\n",
		"| `cell` | c=4 | measured | 40 of 40 | 9.500 | n/a | ", " | n too small (needs ", "| `cell` | c=8 | skipped: saturated at c=4 (…) |  |", `| failed: &lt;script> \| "oh" |  |`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("report.md does not say %q:\n%s", want, &text)
		}
	}

	table, err := sweepsCSV(list)
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	if err != nil || len(records) != 6 {
		t.Fatalf("%d lines, %v", len(records), err)
	}
	column := map[string]int{}
	for i, name := range records[0] {
		column[name] = i
	}
	for i, want := range []struct{ state, knee, rate, p99 string }{
		{"measured", "false", "5.000", ""}, {"measured", "true", "9.000", ""}, {"measured", "false", "9.500", ""}, {"skipped", "false", "", ""}, {"failed", "false", "", ""},
	} {
		r := records[i+1]
		if r[column["state"]] != want.state || r[column["knee"]] != want.knee || r[column["requests_per_s"]] != want.rate || r[column["latency_ms_p99"]] != want.p99 {
			t.Errorf("line %d: %q", i+1, r)
		}
	}

	var page bytes.Buffer
	if err := writeHTML(&page, Results{Title: "Swept", Sweeps: list}, nil); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(&page)
	d.Strict, d.Entity = true, xml.HTMLEntity
	knees, circles := 0, 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Value == "mark knee" {
					knees++
				}
			}
			if e.Name.Local == "circle" {
				circles++
			}
			if e.Name.Local == "script" {
				t.Error("a reason became a script")
			}
		}
	}
	if knees != 1 || circles != 3 {
		t.Errorf("%d knees and %d points are drawn", knees, circles)
	}
}

// The points of a curve go right with the throughput and up with the latency, and a
// percentile that few requests cannot give is said and not drawn.
func TestLoadCurve(t *testing.T) {
	s := swept().Series[0]
	c := newLoadCurve(s)
	if len(c.Points) != 3 || len(c.Lines) != 2 || len(c.Notes) != 1 || !strings.HasPrefix(c.Notes[0], "p99: n too small") {
		t.Fatalf("%+v", c)
	}
	for i := 1; i < 3; i++ {
		if c.Points[i].X <= c.Points[i-1].X || c.Points[i].Y >= c.Points[i-1].Y {
			t.Errorf("%+v", c.Points)
		}
	}
	if !c.Points[1].Knee || c.Points[1].Label != "knee c=2" || c.Lines[0].Band == "" {
		t.Errorf("%+v", c)
	}
	s.Cells = s.Cells[2:]
	if c := newLoadCurve(s); c.Absent == "" || len(c.Points) > 0 {
		t.Errorf("a curve of one point: %+v", c)
	}
}
