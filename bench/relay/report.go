package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is the content of relay.json.
type report struct {
	Began    time.Time         `json:"began"`
	Seconds  float64           `json:"seconds"`
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`

	Rounds        int     `json:"rounds"`
	WindowSeconds float64 `json:"window_seconds"`

	// Load averages over a minute, and the share of all CPUs that was used: by
	// anybody in the seconds before and after, by others than this benchmark and
	// what it started during it.
	LoadBefore   float64 `json:"load_before"`
	LoadAfter    float64 `json:"load_after"`
	OthersBefore float64 `json:"others_before"`
	OthersDuring float64 `json:"others_during"`
	OthersAfter  float64 `json:"others_after"`

	Verdicts []verdict  `json:"verdicts"`
	Cells    []*cell    `json:"cells"`
	Tasks    []accuracy `json:"task_calls"`
}

// othersShare is the share of all CPUs that was used beyond ours. The kernel's
// ticks are coarse, so it can come out slightly negative: then it is 0.
func othersShare(used, ours, wall time.Duration) float64 {
	return max(0, float64(used-ours)/float64(wall)/float64(runtime.NumCPU()))
}

// verdict is what became of a target. Result is "met", "not met" or "not judged".
type verdict struct {
	Target string `json:"target"`
	Where  string `json:"where"`
	Result string `json:"result"`
	Detail string `json:"detail"`
}

// added is what a system adds to direct at the same percentile, in µs; nil where
// a figure is missing.
type added struct{ p50, p99 *float64 }

// figure picks the percentiles of a cell that its regime is about.
func (c *cell) figure() (quantiles, []quantiles) {
	if c.Regime == buffered {
		return c.Request, c.RequestRounds
	}
	return c.Chunk, c.ChunkRounds
}

func minus(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	d := *a - *b
	return &d
}

func (q quantiles) minus(o quantiles) added { return added{minus(q.P50, o.P50), minus(q.P99, o.P99)} }

func (r *report) find(reg regime, streams int, name string) *cell {
	for _, c := range r.Cells {
		if c.Regime == reg && c.Streams == streams && c.System == name && c.NotRun == "" {
			return c
		}
	}
	return nil
}

func (r *report) streams() []int {
	var all []int
	for _, c := range r.Cells {
		if !slices.Contains(all, c.Streams) {
			all = append(all, c.Streams)
		}
	}
	return all
}

// The targets.
const (
	p50Target  = "added p50 below nginx's"
	p99Target  = "added p99 within 1.2 of nginx's"
	taskTarget = "task-call time within 0.1 ms (99 of 100 calls)"

	maxRatio     = 1.2
	maxTaskError = 100_000 // ns
)

// judge sets the verdicts.
func (r *report) judge() {
	r.Verdicts = nil
	for _, reg := range []regime{paced, buffered} {
		unit := map[regime]string{paced: "chunk", buffered: "request"}[reg]
		for _, streams := range r.streams() {
			for _, name := range []string{"assay-upstream", "assay-native"} {
				r.judgeLatency(reg, unit, streams, name)
			}
		}
	}
	for _, a := range r.Tasks {
		v := verdict{Target: taskTarget, Where: fmt.Sprintf("assay-native, %d streams, %s", a.Streams, a.Regime), Result: "not judged"}
		if a.Task.N > 0 {
			// One in a hundred may have been preempted between two looks at the clock.
			v.Result = word(100*a.Beyond <= a.Task.N && a.Short == 0 && a.Unfit == 0)
			v.Detail = fmt.Sprintf("p99 %s µs, max %s µs; %d of %d calls beyond, %d too short, %d unfit", number(a.Task.P99), number(a.Task.Max), a.Beyond, a.Task.N, a.Short, a.Unfit)
		}
		r.Verdicts = append(r.Verdicts, v)
	}
}

func word(met bool) string {
	if met {
		return "met"
	}
	return "not met"
}

func (r *report) judgeLatency(reg regime, unit string, streams int, name string) {
	where := fmt.Sprintf("%s, %d streams, per %s", name, streams, unit)
	v50 := verdict{Target: p50Target, Where: where, Result: "not judged"}
	v99 := verdict{Target: p99Target, Where: where, Result: "not judged"}
	defer func() { r.Verdicts = append(r.Verdicts, v50, v99) }()
	ours, peer, direct := r.find(reg, streams, name), r.find(reg, streams, "nginx"), r.find(reg, streams, "direct")
	if ours == nil || peer == nil || direct == nil {
		v50.Detail = "one of assay, nginx and direct did not run"
		v99.Detail = v50.Detail
		return
	}
	our, ourRounds := ours.figure()
	its, itsRounds := peer.figure()
	bare, bareRounds := direct.figure()
	a, b := our.minus(bare), its.minus(bare)
	if ours.Errors > 0 {
		v50.Result, v99.Result = "not met", "not met"
		v50.Detail = fmt.Sprintf("%d errors: %s", ours.Errors, ours.Error)
		v99.Detail = v50.Detail
		return
	}
	below := 0
	for i := range ourRounds {
		x, y := ourRounds[i].minus(bareRounds[i]), itsRounds[i].minus(bareRounds[i])
		if x.p50 != nil && y.p50 != nil && *x.p50 < *y.p50 {
			below++
		}
	}
	if a.p50 != nil && b.p50 != nil {
		v50.Result = word(*a.p50 < *b.p50)
		v50.Detail = fmt.Sprintf("%.1f µs, nginx %.1f µs; below in %d of %d rounds", *a.p50, *b.p50, below, len(ourRounds))
	}
	switch {
	case a.p99 == nil || b.p99 == nil:
		v99.Detail = "too few values for a 99th percentile"
	case *b.p99 <= 0:
		v99.Detail = fmt.Sprintf("nginx's added p99 is %.1f µs: the run does not resolve it", *b.p99)
	default:
		v99.Result = word(*a.p99 <= maxRatio**b.p99)
		v99.Detail = fmt.Sprintf("%.1f µs, nginx %.1f µs: %.2f of it", *a.p99, *b.p99, *a.p99 / *b.p99)
	}
}

// overall is the verdict on a target: it is met if it is met wherever it applies.
func (r *report) overall(target string) string {
	of, results := 0, map[string]int{}
	for _, v := range r.Verdicts {
		if v.Target == target {
			of++
			results[v.Result]++
		}
	}
	said := word(of > 0 && results["met"] == of)
	if results["not met"] == 0 && results["met"] < of || of == 0 {
		said = "not judged"
	}
	return fmt.Sprintf("**%s** (met in %d of %d, not judged in %d)", said, results["met"], of, results["not judged"])
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func (r *report) markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Relay overhead\n")
	p("%s, %.0f s, %d rounds of %.3g s a cell. `bench/README.md` says how to read this.\n", r.Began.Format(time.RFC3339), r.Seconds, r.Rounds, r.WindowSeconds)
	p("* Machine: %s", pairs(r.Machine))
	p("* Versions: %s", pairs(r.Versions))
	p("* Load average %.2f before, %.2f after. Others used %.1f %% of the CPUs before, %.1f %% during, %.1f %% after.\n",
		r.LoadBefore, r.LoadAfter, 100*r.OthersBefore, 100*r.OthersDuring, 100*r.OthersAfter)
	p("## Targets\n")
	for _, target := range []string{p50Target, p99Target, taskTarget} {
		p("* %s: %s", target, r.overall(target))
	}
	p("\n| target | where | result | figures |\n|---|---|---|---|")
	for _, v := range r.Verdicts {
		p("| %s | %s | %s | %s |", v.Target, v.Where, v.Result, v.Detail)
	}
	r.latency(p, paced, "## Added latency per chunk (paced)")
	r.latency(p, buffered, "## Added latency per request (buffered)")
	r.ends(p)
	r.throughput(p)
	p("\n## Task-call time\n\nOf native workers, against the stand-in's own clock, µs. Gateway: its whole time for the request minus the true time of the call.\n")
	p("| streams | load | calls | scope | task minus true p50 / p99 / max | gateway p50 / p99 / max | too short | unfit |\n|---|---|---|---|---|---|---|---|")
	for _, a := range r.Tasks {
		p("| %d | %s | %d | %s | %s / %s / %s | %s / %s / %s | %d | %d |", a.Streams, a.Regime, a.Task.N, a.Scope,
			number(a.Task.P50), number(a.Task.P99), number(a.Task.Max), number(a.Gateway.P50), number(a.Gateway.P99), number(a.Gateway.Max), a.Short, a.Unfit)
	}
	return b.String()
}

func pairs(m map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, k+" "+strings.TrimPrefix(m[k], k+" "))
	}
	return strings.Join(all, "; ")
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *v)
}

func ratio(a, b *float64) string {
	if a == nil || b == nil || *b <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", *a / *b)
}

// each calls show for the cells of a regime in order, and writes a row for those
// that did not run.
func (r *report) each(p func(string, ...any), reg regime, columns int, show func(c, direct, nginx *cell)) {
	for _, c := range r.Cells {
		switch {
		case c.Regime != reg:
		case c.NotRun != "":
			p("| %d | %s | not run: %s |%s", c.Streams, c.System, c.NotRun, strings.Repeat(" |", columns-3))
		default:
			show(c, r.find(reg, c.Streams, "direct"), r.find(reg, c.Streams, "nginx"))
		}
	}
}

func (r *report) latency(p func(string, ...any), reg regime, title string) {
	p("\n%s\n\nµs; × is the ratio of the added to nginx's.\n", title)
	p("| streams | system | p50 / p99 | added p50 / p99 | × p50 / p99 | relay CPU | all CPU | chunks/s | n | errors |\n|---|---|---|---|---|---|---|---|---|---|")
	r.each(p, reg, 10, func(c, direct, nginx *cell) {
		q, _ := c.figure()
		plus, times := "- / -", "- / -"
		if direct != nil && c != direct {
			bare, _ := direct.figure()
			a := q.minus(bare)
			plus = number(a.p50) + " / " + number(a.p99)
			if nginx != nil {
				its, _ := nginx.figure()
				b := its.minus(bare)
				times = ratio(a.p50, b.p50) + " / " + ratio(a.p99, b.p99)
			}
		}
		p("| %d | %s | %s / %s | %s | %s | %.1f | %.1f | %.0f | %d | %d |", c.Streams, c.System, number(q.P50), number(q.P99), plus, times,
			c.RelayCPU, c.TotalCPU, c.ChunksPerSecond, q.N, c.Errors)
	})
}

func (r *report) ends(p func(string, ...any)) {
	p("\n## First chunk and end of a stream (paced)\n\nµs. First: request sent to first chunk parsed. End: last chunk emitted to end of body. Late: emitted after its due time, the stand-in's own doing.\n")
	p("| streams | system | first p50 / p99 | added p50 | end p50 / p99 | added p50 | late p50 / p99 | n |\n|---|---|---|---|---|---|---|---|")
	r.each(p, paced, 8, func(c, direct, _ *cell) {
		first, end := "-", "-"
		if direct != nil && c != direct {
			first, end = number(minus(c.Request.P50, direct.Request.P50)), number(minus(c.End.P50, direct.End.P50))
		}
		p("| %d | %s | %s / %s | %s | %s / %s | %s | %s / %s | %d |", c.Streams, c.System, number(c.Request.P50), number(c.Request.P99), first,
			number(c.End.P50), number(c.End.P99), end, number(c.Late.P50), number(c.Late.P99), c.End.N)
	})
}

func (r *report) throughput(p func(string, ...any)) {
	p("\n## Throughput (unpaced)\n\nEngine, relay and client share the CPUs. CPU in µs a chunk.\n")
	p("| streams | system | chunks/s | × nginx | lowest / highest round | relay CPU | all CPU | n | errors |\n|---|---|---|---|---|---|---|---|---|")
	r.each(p, unpaced, 9, func(c, _, nginx *cell) {
		times := "-"
		if nginx != nil {
			times = ratio(&c.ChunksPerSecond, &nginx.ChunksPerSecond)
		}
		p("| %d | %s | %.0f | %s | %.0f / %.0f | %.2f | %.2f | %d | %d |", c.Streams, c.System, c.ChunksPerSecond, times,
			slices.Min(c.RateRounds), slices.Max(c.RateRounds), c.RelayCPU, c.TotalCPU, c.Chunks, c.Errors)
	})
}
