package publish

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"assay/rules/internal/status"
	"assay/rules/inventory"
)

// Matrix is a published inventory.
type Matrix struct {
	// ReconciledWith is the state of the sources that the inventory was published at.
	ReconciledWith inventory.Revision `json:"reconciled_with"`
	inventory.Inventory
}

// writeInventory writes the part of report.md with the matrix.
func writeInventory(w io.Writer, m Matrix) {
	fmt.Fprintf(w, "\n## Inventory\n\nReconciled with source revision %s. %s: %s.\n", m.ReconciledWith, count(len(m.Rows), "row"), m.Tally())
	for _, g := range m.Groups {
		fmt.Fprintf(w, "\n### %s: %s\n\n| checkpoint | profile | workload | status | evidence |\n|---|---|---|---|---|\n", words(g.Name), g.Verdict)
		for _, r := range m.InGroup(g.Name) {
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", cell(cmp.Or(r.Checkpoint, "–")), cell(r.Profile.String()), cell(purpose(r)), r.Status, cell(strings.Join(r.Explained(), "; ")))
		}
	}
}

// cell makes text fit into a cell of a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

// purpose is a row's workload, after its role if it does not count.
func purpose(r inventory.Row) string {
	if r.Role == inventory.Matrix {
		return r.Workload.String()
	}
	return string(r.Role) + ": " + r.Workload.String()
}

// strip is how many rows of a kind a group has in each state, drawn as segments.
type strip struct {
	Label    string
	Of       int
	Segments []segment
}

type segment struct {
	State status.State
	Class string // of the style
	Count int
	Start float64 // in percent of the strip, as is Width
	Width float64
}

// strips are drawn of the rows that count, and apart from them of those that do not.
func strips(g inventory.Group) []strip {
	var list []strip
	for _, b := range []struct {
		label  string
		counts map[status.State]int
	}{{"rows of the matrix", g.Counts}, {"rows that do not count", g.OtherCounts}} {
		of := 0
		for _, n := range b.counts {
			of += n
		}
		if of == 0 {
			continue
		}
		drawn := strip{Label: b.label, Of: of}
		at := 0
		for _, state := range status.States {
			if n := b.counts[state]; n > 0 {
				part := 100 / float64(of)
				drawn.Segments = append(drawn.Segments, segment{state, class(state), n, float64(at) * part, float64(n) * part})
				at += n
			}
		}
		list = append(list, drawn)
	}
	return list
}

// class is the style of a state: its first word.
func class(s status.State) string {
	word, _, _ := strings.Cut(string(s), ":")
	return "state-" + word
}

// inventoryCSV writes inventory.csv: a header, and one line a row.
func inventoryCSV(rows []inventory.Row) ([]byte, error) {
	records := [][]string{{
		"group", "role", "checkpoint", "precision", "context_tokens", "tensor_parallel", "quantization", "workload", "status", "reasons",
		"bundle", "samples", "measured", "source_revisions", "started", "finished",
	}}
	for _, r := range rows {
		record := []string{
			r.Group, string(r.Role), r.Checkpoint, r.Profile.Precision, known(r.Profile.Context), strconv.Itoa(r.Profile.TensorParallel), r.Profile.Quantization,
			r.Workload.String(), r.Status.String(), strings.Join(reasons(r), "; "), r.Bundle.String(), "", "", "", "", "",
		}
		if m := r.Measured; m != nil {
			var sources []string
			for _, s := range m.Sources {
				sources = append(sources, s.String())
			}
			copy(record[len(record)-5:], []string{
				strconv.Itoa(m.Samples), strconv.Itoa(m.Requests), strings.Join(sources, " and "),
				m.Started.UTC().Format(time.RFC3339), m.Finished.UTC().Format(time.RFC3339),
			})
		}
		records = append(records, record)
	}
	var buf bytes.Buffer
	err := csv.NewWriter(&buf).WriteAll(records)
	return buf.Bytes(), err
}

// reasons are those of the status, after what is missing.
func reasons(r inventory.Row) []string {
	r.Measured = nil
	return r.Explained()
}

// known is empty for a number that is not.
func known(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
