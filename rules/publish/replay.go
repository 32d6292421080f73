package publish

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"assay/rules/internal/fidelity"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/trace"
)

// sheet is a table as both reports print it.
type sheet struct {
	Title  string
	Header []string
	Rows   [][]string
}

// replayText says in sentences what was replayed, and how.
func replayText(r *fidelity.Report) []string {
	t := &r.Trace
	part := fmt.Sprintf("%d of %d rows", t.Source.Requests, t.Rows)
	if n := len(t.Dropped); n > 0 {
		part += fmt.Sprintf(", %d of them left out because they do not fit the context", n)
	}
	lines := []string{
		fmt.Sprintf("The trace (%s, licence %s): %s, %s. Replayed: %s. Time runs %s× as fast, prompts are %s× and answers %s× as long%s; lengths that a limit cut: %d prompts, %d answers; rows of one time: %s (%d rows); rows out of order: %d.",
			t.Format, t.Licence, part, load(t.Source), load(t.Replay), short(t.TimeScale), short(t.InputScale), short(t.OutputScale), eos(t), t.CappedInputs, t.CappedOutputs, t.Ties, t.Tied, len(t.Inverted)),
		fmt.Sprintf("Prompts start alike as the trace says: %d of %d prompt tokens are a prefix that an earlier prompt had.", t.Replay.ReusableTokens, t.Replay.InputTokens),
		fmt.Sprintf("Offered %s, sent %s, completed %s requests/s. %d planned, %d sent.", rate(r.OfferedPerS), rate(r.SentPerS), rate(r.CompletedPerS), r.Planned, r.Sent),
	}
	if z := r.Zero; z != nil {
		how := "AIPerf's own start of its profiling phase"
		if z.Zero == ledger.ZeroLeastLate {
			how = "taken from the request that was let go least late, so a delay that all share is not seen"
		}
		lines = append(lines, fmt.Sprintf("Lags count from the zero of the schedule: %s. The least late request was let go %.3f ms after its time.", how, float64(z.LeastLateNS)/1e6))
	}
	lines = append(lines, "Client latency is the service time, from the dispatch; the response time counts from the planned time and has the lag in it.")
	lines = append(lines, fmt.Sprintf("Sent behind a request that was planned later: %d, by %.1f ms at most.", r.Overtaken, r.OvertakenMS), notOpen(r))
	return lines
}

func notOpen(r *fidelity.Report) string {
	waits := "waits for a connection were not recorded"
	if n := r.NotOpen.ConnectionWaits; n != nil {
		waits = fmt.Sprintf("%d waited for a connection", *n)
	}
	return fmt.Sprintf("Open loop: no limit on requests in flight; %d waited for an earlier turn, %s, %d were sent from busy CPUs.", r.NotOpen.TurnDependent, waits, r.NotOpen.ClientSaturated)
}

func load(l trace.Load) string {
	return fmt.Sprintf("%d requests in %s s, %s requests/s, %d prompt tokens (longest %d), %d answer tokens (longest %d)",
		l.Requests, short(l.SpanS), short(l.Rate()), l.InputTokens, l.MaxInput, l.OutputTokens, l.MaxOutput)
}

func eos(t *trace.Facts) string {
	if t.IgnoreEOS {
		return ", forced to their full length (`ignore_eos`)"
	}
	return ", of natural length up to that"
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

func rate(v *float64) string {
	if v == nil {
		return "n/a"
	}
	return strconv.FormatFloat(*v, 'f', 4, 64)
}

// replaySheets are the gates, the lag and the windows.
func replaySheets(r *fidelity.Report) []sheet {
	gates := sheet{Title: "Gates of the replay", Header: []string{"gate", "met", "why"}}
	for _, g := range r.Gates {
		met := "yes"
		if !g.Met {
			met = "NO"
		}
		gates.Rows = append(gates.Rows, []string{g.Name, met, g.Why})
	}
	s := r.LagMS
	lag := sheet{Title: "Lag, dispatch minus planned time, ms", Header: []string{"n", "mean", "least", "p50", "p90", "p95", "p99", "most", "drift, ms/s"},
		Rows: [][]string{{strconv.Itoa(s.N), mean(s), value(s.Min), quantile(s.P50), quantile(s.P90), quantile(s.P95), quantile(s.P99), value(s.Max), slope(r.Drift)}}}
	windows := sheet{Title: "By planned time", Header: []string{"seconds", "planned", "sent", "completed", "rejected", "other", "late", "lag p50", "lag p99", "TTFT p50", "response p50"}}
	for _, w := range r.Windows {
		n := strconv.Itoa
		windows.Rows = append(windows.Rows, []string{fmt.Sprintf("%.1f to %.1f", w.FromS, w.ToS), n(w.Planned), n(w.Sent), n(w.Completed), n(w.Rejected), n(w.Other), n(w.Late),
			brief(w.LagMS.P50), brief(w.LagMS.P99), brief(w.TTFTMS.P50), brief(w.ResponseMS.P50)})
	}
	return []sheet{gates, lag, windows}
}

// brief leaves the reason out that each line of a table would repeat.
func brief(q metrics.Quantile) string {
	if q.Value == nil {
		return "n too small"
	}
	return quantile(q)
}

func slope(d *fidelity.Drift) string {
	if d == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.4f [%.4f, %.4f]", d.MSPerS, d.Low, d.High)
}

func writeReplay(w io.Writer, r *fidelity.Report) {
	fmt.Fprintf(w, "\n%s\n", strings.Join(replayText(r), "\n"))
	for _, s := range replaySheets(r) {
		fmt.Fprintf(w, "\n%s:\n\n| %s |\n|%s\n", s.Title, strings.Join(s.Header, " | "), strings.Repeat("---|", len(s.Header)))
		for _, row := range s.Rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
	}
}
