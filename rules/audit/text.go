package audit

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"assay/rules/internal/exports"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

// Write prints the report for people. width is that of the terminal in columns,
// 0 to break no line.
func (r *Report) Write(w io.Writer, width int) error {
	t := &text{width: width}
	t.head(r)
	t.files(r)
	t.checks(r.Checks)
	t.plan(r)
	t.ledger(r.Ledger)
	t.figures(r)
	t.beside(r)
	t.findings(r.Ledger.Findings)
	_, err := w.Write(t.buf.Bytes())
	return err
}

type text struct {
	buf   bytes.Buffer
	width int
}

func (t *text) title(format string, args ...any) {
	fmt.Fprintf(&t.buf, "\n%s\n", fmt.Sprintf(format, args...))
}

// line prints words behind a prefix, and goes on below them where they do not fit.
func (t *text) line(prefix, format string, args ...any) {
	indent := utf8.RuneCountInString(prefix)
	at := indent
	t.buf.WriteString(prefix)
	for i, word := range strings.Fields(strings.Map(visible, fmt.Sprintf(format, args...))) {
		n := utf8.RuneCountInString(word)
		if i > 0 {
			if t.width > 0 && at+1+n > t.width {
				t.buf.WriteString("\n" + strings.Repeat(" ", indent))
				at = indent
			} else {
				t.buf.WriteByte(' ')
				at++
			}
		}
		t.buf.WriteString(word)
		at += n
	}
	t.buf.WriteByte('\n')
}

// visible keeps a server's words from steering the terminal.
func visible(r rune) rune {
	if unicode.IsControl(r) && !unicode.IsSpace(r) {
		return utf8.RuneError
	}
	return r
}

// table prints rows of cells, all columns but the first to the right.
func (t *text) table(rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		line := "  "
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line += cell + pad
			} else {
				line += "  " + pad + cell
			}
		}
		t.buf.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func (t *text) head(r *Report) {
	d := r.Run
	what := "a run of AIPerf " + cmp.Or(d.AIPerf, "(version not known)")
	if d.BenchmarkID != "" {
		what += ", benchmark " + d.BenchmarkID
	}
	if d.Model != "" {
		what += ", model " + d.Model
	}
	if d.Endpoint != "" {
		what += ", " + d.Endpoint
		if d.Streaming {
			what += ", streamed"
		}
	}
	if d.From != nil {
		what += fmt.Sprintf(", %s to %s", d.From.Format("2006-01-02 15:04:05Z"), d.To.Format("15:04:05Z"))
	}
	t.line("", "%s: %s", r.Folder, what)
}

func (t *text) files(r *Report) {
	t.title("Files")
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	there := map[exports.Role]bool{}
	for _, f := range r.Files {
		there[f.Role] = true
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Role, f.Name, size(f.Size))
	}
	for _, role := range []exports.Role{exports.Figures, exports.Summary, exports.Records} {
		if !there[role] {
			fmt.Fprintf(w, "  %s\tnot there\n", role)
		}
	}
	w.Flush()
	t.buf.Write(buf.Bytes())
}

func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

func (t *text) checks(checks []exports.Check) {
	t.title("Do they belong together?")
	for _, c := range checks {
		prefix := "  not known  "
		switch {
		case c.Holds == nil:
		case *c.Holds:
			prefix = "  yes        "
		default:
			prefix = "  NO         "
		}
		t.line(prefix, "%s: %s", c.Question, c.Detail)
	}
}

func (t *text) plan(r *Report) {
	t.title("Plan")
	show := func(n *int, dispatched int) string {
		if n == nil {
			return fmt.Sprintf("not known, %d dispatched", dispatched)
		}
		return strconv.Itoa(*n)
	}
	t.line("  ", "warm-up %s, measured %s; from %s", show(r.Plan.Warmup, r.Ledger.Plan.Warmup), show(r.Plan.Measured, r.Ledger.Plan.Measured), r.Plan.Source)
	if !r.Plan.Known() {
		t.line("  ", "Where the plan is not known, what was dispatched is taken for it: a request that was never sent cannot be seen.")
	}
}

func (t *text) ledger(s ledger.Summary) {
	t.title("Ledger")
	phases := slices.DeleteFunc(slices.Clone(ledger.Phases), func(p ledger.Phase) bool {
		sum := 0
		for _, n := range s.Counts[p] {
			sum += n
		}
		return sum == 0 && p != ledger.Measured
	})
	rows := [][]string{{""}}
	for _, p := range phases {
		rows[0] = append(rows[0], string(p))
	}
	for _, class := range ledger.Classes {
		row := []string{string(class)}
		for _, p := range phases {
			row = append(row, strconv.Itoa(s.Counts[p][class]))
		}
		rows = append(rows, row)
	}
	t.table(rows)
	if s.Unplanned > 0 {
		t.line("  ", "Beyond the plan: %d.", s.Unplanned)
	}
	if len(s.Reasons) > 0 {
		t.line("  ", "Failed by reason: %s.", counted(s.Reasons))
	}
	q := s.Quality
	if len(s.ServerOutcomes) == 0 && q.OneToOne+q.Retried+q.ClientOnly+q.ServerOnly+q.Ambiguous == 0 {
		t.line("  ", "No server records: these are the client's sums alone. No native time, and no proof that the answers are the server's.")
		return
	}
	t.line("  ", "The server recorded: %s.", cmp.Or(counted(s.ServerOutcomes), "nothing"))
	t.line("  ", "Joined by request id: %d one to one, %d with retries, %d only at the client, %d only at the server, %d ambiguous.",
		q.OneToOne, q.Retried, q.ClientOnly, q.ServerOnly, q.Ambiguous)
	t.line("  ", "Native and received answer are identical (text, tokens, finish reason) in %d of the %d answers that ended well.", q.Identical, q.Compared)
}

func counted[K ~string](m map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}

func (t *text) figures(r *Report) {
	f := r.Figures
	t.title("Figures, over the %d measured requests that completed, in ms", f.Counts[ledger.Completed])
	if f.AcceptedOnly {
		t.line("  ", "Requests were refused: the latencies are those of accepted requests.")
	}
	rows := [][]string{{"", "n", "mean", "p50", "p90", "p95", "p99", "refused"}}
	var why []string
	small := map[string]string{} // by percentile
	add := func(name string, s metrics.Latency) {
		row := []string{name, strconv.Itoa(s.N), number(s.Mean)}
		for i, q := range []metrics.Quantile{s.P50, s.P90, s.P95, s.P99} {
			cell := number(q.Value)
			if q.Value == nil && s.Absent == "" {
				cell = "n too small"
				small[rows[0][3+i]] = q.Absent
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, fmt.Sprintf("%d of %d", s.Rejected.Count, s.Rejected.Of)))
		if s.Absent != "" {
			why = append(why, name+": "+s.Absent)
		}
	}
	add("latency", f.LatencyMS)
	if r.Run.Streaming || f.Streams.Verified+f.Streams.Buffered+f.Streams.Unverified > 0 {
		add("time to first token", f.TTFTMS)
		add("inter-token latency", f.ITLMS)
	}
	if f.TaskCallMS.N > 0 || f.TaskCallMS.Absent != "no values" {
		add("native task call", f.TaskCallMS)
	}
	if f.Counts[ledger.Rejected] > 0 {
		add("time to reject", metrics.Latency{Stats: f.RejectMS, Rejected: f.Rejected})
	}
	t.table(rows)
	for _, line := range why {
		t.line("  ", "%s", line)
	}
	for _, p := range slices.Sorted(maps.Keys(small)) {
		t.line("  ", "%s: %s", p, small[p])
	}
	t.line("  ", "Throughput: %s requests/s, %s output tokens/s. Refused: %s. Not completed: %s.",
		number(f.RequestsPerS), number(f.OutputTokensPerS), share(f.Rejected), share(f.NotCompleted))
}

func share(s metrics.Share) string {
	if s.Value == nil {
		return "n/a"
	}
	return fmt.Sprintf("%d of %d (95 %% interval %.1f to %.1f %%)", s.Count, s.Of, 100**s.Low, 100**s.High)
}

// number has as many digits as a reader can use; "-" is what there is none of.
func number(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v == float64(int64(*v)) && *v < 1e6:
		return strconv.FormatFloat(*v, 'f', 0, 64)
	case *v < 10:
		return strconv.FormatFloat(*v, 'f', 3, 64)
	}
	return strconv.FormatFloat(*v, 'f', 1, 64)
}

func (t *text) beside(r *Report) {
	t.title("AIPerf's summary beside the ledger")
	if r.AIPerf == nil {
		t.line("  ", "There is no summary that can be read.")
		return
	}
	rows := [][]string{{"", "AIPerf", "ledger", ""}}
	var order []string
	figures := map[string][]string{}
	for _, c := range r.AIPerf.Figures {
		if c.Why != "" {
			if figures[c.Why] == nil {
				order = append(order, c.Why)
			}
			figures[c.Why] = append(figures[c.Why], c.Figure)
		}
		rows = append(rows, []string{c.Figure + ", " + c.Unit, number(c.AIPerf), number(c.Ledger), c.mark()})
	}
	t.table(rows)
	if over := r.AIPerf.Over; over != "" {
		t.line("  ", "%s.", over)
	}
	for _, why := range order {
		t.line("  ", "%s: %s.", strings.Join(figures[why], ", "), why)
	}
}

func (t *text) findings(findings []ledger.Finding) {
	if len(findings) == 0 {
		t.title("No findings.")
		return
	}
	t.title("Findings")
	for _, f := range findings {
		t.line(fmt.Sprintf("  %-8s  ", f.Severity), "%s (%d): %s; %s.", f.Code, f.Count, f.Message, f.Consequence)
		if len(f.Evidence) > 0 {
			e := f.Evidence[0]
			if e.RequestID != "" {
				e.Detail = "request " + e.RequestID + ": " + e.Detail
			}
			t.line("            ", "%s", e.Detail)
		}
		t.line("            ", "see %s", Page(f.Code))
	}
}

func (c Compared) mark() string {
	switch {
	case c.Ledger == nil:
		return "AIPerf only"
	case c.AIPerf == nil:
		return "ledger only"
	case c.Agrees:
		return "agrees"
	}
	return "DIFFERS"
}

// Page is where the documentation tells of a finding.
func Page(code ledger.Code) string {
	if slices.Contains(exports.Codes, code) {
		return "docs/audit.md#findings-about-the-files"
	}
	return "docs/findings/" + string(code) + ".md"
}
