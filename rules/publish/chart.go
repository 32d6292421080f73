package publish

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

// px is a length in a drawing. A tenth of a pixel is all that anyone sees, and
// short numbers keep the file small.
type px float64

func (p px) String() string {
	return strconv.FormatFloat(math.Round(float64(p)*10)/10, 'f', -1, 64)
}

// axis maps the values from lo to hi onto the lengths between two ends.
type axis struct {
	lo, hi   float64
	from, to px
}

func (a axis) at(v float64) px {
	if a.hi <= a.lo {
		return (a.from + a.to) / 2
	}
	share := (v - a.lo) / (a.hi - a.lo)
	return a.from + px(max(0, min(1, share)))*(a.to-a.from)
}

type tick struct {
	At    px
	Label string
}

// ticks are at most about n round values: multiples of 1, 2 or 5 times a power
// of ten.
func (a axis) ticks(n int) []tick {
	if a.hi <= a.lo {
		return []tick{{a.at(a.lo), strconv.FormatFloat(a.lo, 'g', 4, 64)}}
	}
	rough := (a.hi - a.lo) / float64(n)
	power := math.Floor(math.Log10(rough))
	step := math.Pow(10, power)
	for _, m := range []float64{1, 2, 5, 10} {
		if m*step >= rough {
			step *= m
			break
		}
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var list []tick
	for i := math.Ceil(a.lo / step); i*step <= a.hi && len(list) <= n; i++ {
		list = append(list, tick{a.at(i * step), strconv.FormatFloat(i*step, 'f', decimals, 64)})
	}
	return list
}

// The drawing of a distribution, in px.
const (
	chartWidth, chartHeight = 360, 216
	plotLeft, plotRight     = 40, 350
	plotTop, plotBottom     = 16, 166
	rugTop                  = plotBottom + 4
	// rugMost is the most values whose single places can be told apart.
	rugMost = 200
)

// distribution is the empirical distribution function of one figure: over each
// value the share of the values up to it.
type distribution struct {
	Title  string
	Slug   string
	Absent string // why there is nothing to draw
	N      int
	// Rejected is the share that was refused, and is not in the curve.
	Rejected metrics.Share
	Curve    string // SVG path
	Rug      string // SVG path; "" above rugMost values
	X, Y     []tick
	Marks    []mark
	Desc     string
}

// mark is a percentile on the curve, with its interval.
type mark struct {
	Label     string
	X, Y      px
	Low, High px
	Interval  bool
	Left      bool // the label stands left of the curve
}

// drawnFigure is a figure whose distribution is drawn, with what it takes of an
// entry, in ns.
type drawnFigure struct {
	figure
	value func(*ledger.Entry) *int64
}

var drawnFigures = []drawnFigure{
	{figureOf("latency_ms"), func(e *ledger.Entry) *int64 { return ofClient(e, func(c *ledger.Client) *int64 { return c.LatencyNS }) }},
	{figureOf("ttft_ms"), func(e *ledger.Entry) *int64 { return ofClient(e, func(c *ledger.Client) *int64 { return c.TTFTNS }) }},
	{figureOf("task_call_ms"), func(e *ledger.Entry) *int64 {
		if e.Server == nil {
			return nil
		}
		return e.Server.TaskCallNS
	}},
}

func figureOf(column string) figure {
	return figures[slices.IndexFunc(figures, func(f figure) bool { return f.column == column })]
}

func ofClient(e *ledger.Entry, value func(*ledger.Client) *int64) *int64 {
	if e.Client == nil {
		return nil
	}
	return value(e.Client)
}

// values are those that the figure describes, sorted, in ms.
func (f drawnFigure) values(samples [][]ledger.Entry) []float64 {
	var list []float64
	for _, entries := range samples {
		for i := range entries {
			e := &entries[i]
			if e.Phase != ledger.Measured || e.Unplanned || e.Class != ledger.Completed {
				continue
			}
			if v := f.value(e); v != nil {
				list = append(list, float64(*v)/1e6)
			}
		}
	}
	slices.Sort(list)
	return list
}

func (f drawnFigure) draw(row Row, samples [][]ledger.Entry) distribution {
	stats := f.latency(row.Figures)
	d := distribution{Title: f.title, Slug: strings.TrimSuffix(f.column, "_ms"), N: stats.N, Rejected: stats.Rejected}
	values := f.values(samples)
	switch {
	case row.Mode == "buffered" && f.column == "ttft_ms":
		d.Absent = "a buffered answer has none"
	case stats.Absent != "":
		d.Absent = stats.Absent
	case len(values) != stats.N || stats.N == 0:
		d.Absent = fmt.Sprintf("the ledger has %s, the figures speak of %d", count(len(values), "value"), stats.N)
	}
	if d.Absent != "" {
		return d
	}
	x := axis{values[0], values[len(values)-1], plotLeft, plotRight}
	y := axis{0, 1, plotBottom, plotTop}
	d.X = x.ticks(5)
	d.Y = []tick{{y.at(0), "0"}, {y.at(.5), "50"}, {y.at(.9), "90"}, {y.at(1), "100"}}
	d.Curve = curve(values, x, y)
	if len(values) <= rugMost {
		d.Rug = rug(values, x)
	}
	said := []string{fmt.Sprintf("%s from %.1f to %.1f ms", count(len(values), "value"), values[0], values[len(values)-1])}
	for _, q := range []struct {
		name string
		p    float64
		metrics.Quantile
	}{{"p50", .5, stats.P50}, {"p90", .9, stats.P90}} {
		said = append(said, q.name+": "+quantile(q.Quantile))
		if q.Value == nil {
			continue
		}
		m := mark{Label: fmt.Sprintf("%s %.1f", q.name, *q.Value), X: x.at(*q.Value), Y: y.at(q.p)}
		if m.Left = m.X > (plotLeft+plotRight)/2; q.Low != nil && q.High != nil {
			m.Low, m.High, m.Interval = x.at(*q.Low), x.at(*q.High), true
		}
		d.Marks = append(d.Marks, m)
	}
	d.Desc = strings.Join(said, "; ")
	return d
}

// curve climbs one step a value. Steps that fall on one place are one.
func curve(values []float64, x, y axis) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%v %v", x.at(values[0]), y.at(0))
	for i, v := range values {
		here := x.at(v).String()
		if i+1 < len(values) && x.at(values[i+1]).String() == here {
			continue
		}
		fmt.Fprintf(&b, "H%sV%v", here, y.at(float64(i+1)/float64(len(values))))
	}
	return b.String()
}

func rug(values []float64, x axis) string {
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, "M%v %dv7", x.at(v), rugTop)
	}
	return b.String()
}
