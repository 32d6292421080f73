package publish

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/sweep"
)

// powerMeans stands below every table of a sweep.
const powerMeans = "Power is completed requests/s by the second of their mean latency. The knee is the load with the greatest power."

// writeSweeps writes the part of report.md with the sweeps.
func writeSweeps(w io.Writer, list []sweep.Sweep) {
	for _, of := range list {
		for _, s := range of.Series {
			fmt.Fprintf(w, "\n## Sweep: %s\n\n%s\n\n", s.Workload, kneeText(s))
			fmt.Fprintf(w, "| cell | load | | completed | requests/s | output tokens/s | latency p50, ms | p90 | p99 | time to first token p50, ms | power |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
			for _, c := range s.Cells {
				fmt.Fprintf(w, "| `%s` | %s |", c.Name, s.At(c.Load))
				for _, text := range cellTexts(s, c) {
					fmt.Fprintf(w, " %s |", cell(text))
				}
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "\n%s\n", powerMeans)
		}
	}
}

// cellTexts are the columns of a cell behind its load. One that was not measured has
// words in place of numbers.
func cellTexts(s sweep.Series, c sweep.Cell) []string {
	state := words(string(c.State))
	if c.Reason != "" {
		state += ": " + c.Reason
	}
	if c.Figures == nil {
		return []string{state, "", "", "", "", "", "", "", ""}
	}
	f := c.Figures
	latency := f.LatencyMS
	first := ""
	if s.Mode != "buffered" {
		first = quantile(f.TTFTMS.P50)
	}
	return []string{
		state, fmt.Sprintf("%d of %d", f.Counts[ledger.Completed], f.Measured),
		orNone(number(f.RequestsPerS)), orNone(number(f.OutputTokensPerS)),
		quantile(latency.P50), quantile(latency.P90), quantile(latency.P99), first, orNone(number(c.Power)),
	}
}

// kneeText says where the knee of a series is, in a sentence or two.
func kneeText(s sweep.Series) string {
	k := s.Knee
	if k.Load == nil {
		return "Knee: " + k.Absent + "."
	}
	text := fmt.Sprintf("Knee: %s (the peak of power lies from %s to %s)", s.At(*k.Load), s.At(*k.Low), s.At(*k.High))
	if k.Note != "" {
		text += "; " + k.Note
	}
	return text + "."
}

// sweepColumn is a column of sweeps.csv; figures are nil of a cell without any.
type sweepColumn struct {
	name  string
	value func(sweep.Series, sweep.Cell) string
}

var sweepColumns = append([]sweepColumn{
	{"cell", func(s sweep.Series, c sweep.Cell) string { return c.Name }},
	{"server", func(s sweep.Series, c sweep.Cell) string { return s.Server }},
	{"dataset", func(s sweep.Series, c sweep.Cell) string { return s.Dataset }},
	{"endpoint", func(s sweep.Series, c sweep.Cell) string { return s.Endpoint }},
	{"mode", func(s sweep.Series, c sweep.Cell) string { return s.Mode }},
	{"input_tokens", func(s sweep.Series, c sweep.Cell) string { return strconv.FormatInt(s.InputTokens, 10) }},
	{"output_tokens", func(s sweep.Series, c sweep.Cell) string { return strconv.FormatInt(s.OutputTokens, 10) }},
	{"axis", func(s sweep.Series, c sweep.Cell) string { return s.Axis }},
	{"arrival", func(s sweep.Series, c sweep.Cell) string { return s.Arrival }},
	{"most_in_flight", func(s sweep.Series, c sweep.Cell) string {
		if s.Axis != sweep.RequestRate {
			return ""
		}
		return strconv.FormatInt(s.MostInFlight, 10)
	}},
	{"load", func(s sweep.Series, c sweep.Cell) string { return strconv.FormatFloat(c.Load, 'f', -1, 64) }},
	{"state", func(s sweep.Series, c sweep.Cell) string { return string(c.State) }},
	{"reason", func(s sweep.Series, c sweep.Cell) string { return c.Reason }},
	{"knee", func(s sweep.Series, c sweep.Cell) string {
		return strconv.FormatBool(s.Knee.Load != nil && *s.Knee.Load == c.Load)
	}},
	{"power", func(s sweep.Series, c sweep.Cell) string { return number(c.Power) }},
}, sweepFigures()...)

func sweepFigures() []sweepColumn {
	of := func(name string, value func(*metrics.Row) string) sweepColumn {
		return sweepColumn{name, func(_ sweep.Series, c sweep.Cell) string {
			if c.Figures == nil {
				return ""
			}
			return value(c.Figures)
		}}
	}
	list := []sweepColumn{
		of("samples", func(r *metrics.Row) string { return strconv.Itoa(r.Samples) }),
		of("measured", func(r *metrics.Row) string { return strconv.Itoa(r.Measured) }),
		of("completed", func(r *metrics.Row) string { return strconv.Itoa(r.Counts[ledger.Completed]) }),
		of("rejected_share", func(r *metrics.Row) string { return number(r.Rejected.Value) }),
		of("requests_per_s", func(r *metrics.Row) string { return number(r.RequestsPerS) }),
		of("output_tokens_per_s", func(r *metrics.Row) string { return number(r.OutputTokensPerS) }),
		of("latency_ms_mean", func(r *metrics.Row) string { return number(r.LatencyMS.Mean) }),
		of("ttft_ms_mean", func(r *metrics.Row) string { return number(r.TTFTMS.Mean) }),
	}
	for _, q := range latencyQuantiles {
		list = append(list,
			of("latency_ms_"+q.name, func(r *metrics.Row) string { return number(q.of(&r.LatencyMS.Stats).Value) }),
			of("latency_ms_"+q.name+"_low", func(r *metrics.Row) string { return number(q.of(&r.LatencyMS.Stats).Low) }),
			of("latency_ms_"+q.name+"_high", func(r *metrics.Row) string { return number(q.of(&r.LatencyMS.Stats).High) }))
	}
	return list
}

// sweepsCSV writes sweeps.csv: a header, and one line a cell.
func sweepsCSV(list []sweep.Sweep) ([]byte, error) {
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	header := make([]string, len(sweepColumns))
	for i, c := range sweepColumns {
		header[i] = c.name
	}
	records := [][]string{header}
	for _, of := range list {
		for _, s := range of.Series {
			for _, c := range s.Cells {
				record := make([]string, len(sweepColumns))
				for i, column := range sweepColumns {
					record[i] = column.value(s, c)
				}
				records = append(records, record)
			}
		}
	}
	err := w.WriteAll(records)
	return buf.Bytes(), err
}

// latencyQuantiles are those that a sweep shows and draws.
var latencyQuantiles = []struct {
	name string
	of   func(*metrics.Stats) *metrics.Quantile
}{
	{"p50", func(s *metrics.Stats) *metrics.Quantile { return &s.P50 }},
	{"p90", func(s *metrics.Stats) *metrics.Quantile { return &s.P90 }},
	{"p99", func(s *metrics.Stats) *metrics.Quantile { return &s.P99 }},
}

// The drawing of a series, in px.
const (
	kneeLeft, kneeRight = 56, 700
	kneeTop, kneeBottom = 24, 250
)

// loadCurve shows latency over throughput, a point a cell, in order of the load.
type loadCurve struct {
	Absent string // why there is nothing to draw
	X, Y   []tick
	Lines  []loadLine
	Points []loadPoint
	Notes  []string
	Desc   string
}

// loadLine joins one percentile of the cells; Band is its 95 % interval.
type loadLine struct{ Name, Path, Band string }

// loadPoint is the median of a cell.
type loadPoint struct {
	X, Y         px
	Label, Title string
	Knee         bool
}

func newLoadCurve(s sweep.Series) loadCurve {
	var cells []sweep.Cell
	x, y := axis{from: kneeLeft, to: kneeRight}, axis{from: kneeBottom, to: kneeTop}
	for _, c := range s.Cells {
		if c.Figures == nil || c.Figures.RequestsPerS == nil || c.Figures.LatencyMS.P50.Value == nil {
			continue
		}
		cells = append(cells, c)
		x.hi = max(x.hi, *c.Figures.RequestsPerS)
		for _, q := range latencyQuantiles {
			for _, v := range []*float64{q.of(&c.Figures.LatencyMS.Stats).Value, q.of(&c.Figures.LatencyMS.Stats).High} {
				if v != nil {
					y.hi = max(y.hi, *v)
				}
			}
		}
	}
	if len(cells) < 2 {
		return loadCurve{Absent: "fewer than two cells have a median latency and a throughput"}
	}
	x.hi, y.hi = 1.05*x.hi, 1.05*y.hi
	curve := loadCurve{X: x.ticks(8), Y: y.ticks(6)}
	for _, q := range latencyQuantiles {
		var path, low, high []string
		missing := ""
		for _, c := range cells {
			v, at := q.of(&c.Figures.LatencyMS.Stats), x.at(*c.Figures.RequestsPerS)
			if v.Value == nil {
				missing = v.Absent
				continue
			}
			path = append(path, fmt.Sprintf("%v %v", at, y.at(*v.Value)))
			if v.Low != nil && v.High != nil {
				low, high = append(low, fmt.Sprintf("%v %v", at, y.at(*v.Low))), append([]string{fmt.Sprintf("%v %v", at, y.at(*v.High))}, high...)
			}
		}
		if len(path) < 2 {
			curve.Notes = append(curve.Notes, q.name+": "+missing)
			continue
		}
		line := loadLine{Name: q.name, Path: "M" + strings.Join(path, "L")}
		if len(low) > 1 {
			line.Band = "M" + strings.Join(append(low, high...), "L") + "Z"
		}
		curve.Lines = append(curve.Lines, line)
	}
	var said []string
	for _, c := range cells {
		p := loadPoint{X: x.at(*c.Figures.RequestsPerS), Y: y.at(*c.Figures.LatencyMS.P50.Value), Label: s.At(c.Load), Knee: s.Knee.Load != nil && *s.Knee.Load == c.Load}
		p.Title = fmt.Sprintf("%s: %s requests/s, p50 %s ms", p.Label, number(c.Figures.RequestsPerS), quantile(c.Figures.LatencyMS.P50))
		if c.Reason != "" {
			p.Title += "; " + c.Reason
		}
		if p.Knee {
			p.Label = "knee " + p.Label
		}
		said, curve.Points = append(said, p.Title), append(curve.Points, p)
	}
	curve.Desc = strings.Join(said, ". ")
	return curve
}
