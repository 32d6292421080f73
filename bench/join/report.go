package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is the content of join.json.
type report struct {
	Began   time.Time `json:"began"`
	Machine string    `json:"machine"`
	CPUs    int       `json:"cpus"`
	Threads int       `json:"threads"`
	Rounds  int       `json:"rounds"`
	Tables  []table   `json:"tables"`
}

// table has the results over files of one size, which are Bytes together.
type table struct {
	Requests int      `json:"requests"`
	Bytes    int64    `json:"bytes"`
	Agree    string   `json:"disagreement,omitempty"`
	Rows     []result `json:"contenders"`
}

// result has a value for each round.
type result struct {
	Name       string    `json:"name"`
	Seconds    []float64 `json:"seconds"`
	CPUSeconds []float64 `json:"cpu_seconds"`
	PeakBytes  []int64   `json:"peak_rss_bytes"`
	Answer     answer    `json:"answer"`
}

func newReport(l *lab) *report {
	r := &report{Began: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Threads: l.threads, Rounds: l.rounds}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			r.Machine = strings.TrimSpace(value)
			break
		}
	}
	return r
}

// agree says which contender's answer is not the first one's, "" if all are.
func agree(rows []result) string {
	for i := range rows {
		if what := rows[0].Answer.differs(&rows[i].Answer); what != "" {
			return fmt.Sprintf("%s and %s: %s", rows[0].Name, rows[i].Name, what)
		}
	}
	return ""
}

func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "join.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "join.md"), []byte(r.markdown()), 0o644)
}

func (r *report) markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Joining an export with a server's records\n")
	p("%s; %s, %d CPUs, %d threads; %d rounds in turns. `bench/join/README.md` says how to read this.", r.Began.Format(time.RFC3339), r.Machine, r.CPUs, r.Threads, r.Rounds)
	for _, t := range r.Tables {
		p("\n## %d requests, %d MB\n", t.Requests, t.Bytes/1e6)
		if t.Agree != "" {
			p("**The contenders do not agree**: %s\n", t.Agree)
		}
		p("| contender | version | seconds: median (lowest to highest) | × %s | MB/s | CPU s | peak RSS, MB |\n|---|---|---|---|---|---|---|", t.Rows[0].Name)
		first := median(t.Rows[0].Seconds)
		for _, row := range t.Rows {
			s := median(row.Seconds)
			p("| %s | %s | %.2f (%.2f to %.2f) | %.2f | %.0f | %.2f | %d |", row.Name, row.Answer.Version, s, slices.Min(row.Seconds), slices.Max(row.Seconds),
				s/first, float64(t.Bytes)/1e6/s, median(row.CPUSeconds), slices.Max(row.PeakBytes)/1e6)
		}
	}
	return b.String()
}

// median of an even number is the upper one of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
