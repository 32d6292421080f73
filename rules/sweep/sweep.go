// Package sweep has the rules for runs of growing load: `sweep` collects their joins
// into series with the knee of each, and `stop_rule` decides whether a series goes
// on. Each cell is a run and a join like any other.
package sweep

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"assay/engine/action"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/metrics"
	"assay/rules/internal/rule"
	"assay/rules/join"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// File is the output, a Sweep.
const File = "sweep.json"

// Version is that of the form of a Sweep. It is raised when the meaning of a field
// changes or a field goes away.
const Version = 1

// Sweep is sweep.json.
type Sweep struct {
	Version int `json:"version"`
	// MaxErrorPercent is the most of its requests that may not complete at the knee.
	MaxErrorPercent float64  `json:"max_error_percent"`
	Series          []Series `json:"series"`
}

// Series is cells that are alike but for their load, which grows.
type Series struct {
	Workload
	Cells []Cell `json:"cells"`
	Knee  Knee   `json:"knee"`
}

// State says what became of a cell.
type State string

// States of a cell.
const (
	Measured State = "measured"
	Skipped  State = "skipped" // a stop rule ended the series before it
	Failed   State = "failed"  // its run gave no sample, or its samples no join
	NotRun   State = "not_run" // what it needs failed
)

// Cell is one run of a sweep. One that was not measured has no number.
type Cell struct {
	Name string  `json:"name"` // of the run's target
	Load float64 `json:"load"`
	// Reason says why there are no figures or, if there are, what to know of them.
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Power is completed requests per second, by the second of their mean latency;
	// null if it is not known.
	Power   *float64     `json:"power"`
	Figures *metrics.Row `json:"figures,omitempty"`
}

// Rule is the rule `sweep`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "sweep", Version: 2,
		Doc: "Collects joins into series of growing load, with the knee of each. Cells that a stop rule skipped, and cells that failed, are in it with the reason.",
		Attrs: []schema.Attr{
			{Name: "joins", Kind: schema.LabelList, Required: true, Rules: []string{"join"}, Doc: "The cells, in any order. Those that differ only in concurrency, or in request rate, are one series."},
			{Name: "max_error_percent", Kind: schema.Float, Default: 5.0, Min: number(0), Max: number(100),
				Doc: "A cell of which more of the measured requests than this did not complete is beyond the knee."},
		},
		Check: func(v map[string]any) []schema.Problem {
			if len(v["joins"].([]string)) == 0 {
				return []schema.Problem{{Attr: "joins", Message: "is empty: a sweep of nothing"}}
			}
			return nil
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func role(i int) string { return fmt.Sprintf("joins/%03d", i) }

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	var problems []schema.Problem
	var places []place
	var declared []map[string]any // places are in the key: they are in the result
	taken := map[place]string{}
	for i, label := range t.Labels("joins") {
		joined, _ := c.Graph.Target(label)
		a.Deps = append(a.Deps, action.Dep{Role: role(i), ID: label.String(), Path: join.File, Optional: true})
		p, ok := placeOf(c, joined)
		if !ok {
			problems = append(problems, imported("joins", joined))
			continue
		}
		spot := place{Workload: p.Workload, load: p.load}
		if other, ok := taken[spot]; ok {
			problems = append(problems, schema.Problem{Attr: "joins", Message: fmt.Sprintf("%s and %s are the same cell, %s at %s", other, label, p.Workload, p.At(p.load))})
		}
		taken[spot] = label.String()
		places = append(places, p)
		declared = append(declared, map[string]any{"run": p.run, "load": p.load, "workload": p.Workload})
	}
	a.Attrs["cells"] = declared
	most := t.Float("max_error_percent")
	a.Run = func(ctx context.Context, run *action.Run) error {
		s := Sweep{Version: Version, MaxErrorPercent: most}
		for i, p := range places {
			cell, err := read(run, role(i), p)
			if err != nil {
				return err
			}
			k := slices.IndexFunc(s.Series, func(s Series) bool { return s.Workload == p.Workload })
			if k < 0 {
				k, s.Series = len(s.Series), append(s.Series, Series{Workload: p.Workload})
			}
			s.Series[k].Cells = append(s.Series[k].Cells, cell)
		}
		for i := range s.Series {
			s.Series[i].finish(most / 100)
		}
		return jsonfile.Write(filepath.Join(run.Out, File), s)
	}
	return problems
}

// read makes the cell of an input, or of the reason why there is none.
func read(run *action.Run, role string, p place) (Cell, error) {
	c := Cell{Name: p.name, Load: p.load, State: Measured}
	if absent, ok := run.Absent[role]; ok {
		switch c.Reason = absent.Reason; {
		case absent.Skipped:
			c.State = Skipped
		case absent.By == p.run, absent.By == p.join:
			c.State = Failed
		default:
			c.State, c.Reason = NotRun, absent.String()
		}
		return c, nil
	}
	var j join.Joined
	if err := jsonfile.Read(run.Input(role), &j); err != nil {
		return c, err
	}
	c.Figures = &j.Row
	return c, nil
}

// finish puts the cells in order and finds the knee.
func (s *Series) finish(most float64) {
	slices.SortStableFunc(s.Cells, func(a, b Cell) int { return cmp.Compare(a.Load, b.Load) })
	var points []point
	for i := range s.Cells {
		c := &s.Cells[i]
		if c.State != Measured {
			continue
		}
		if c.Figures.NotCompleted.Count > 0 {
			c.Reason = incomplete(c.Figures)
		}
		p, why := pointOf(c.Figures)
		share := c.Figures.NotCompleted.Value
		p.name, p.load, p.overloaded = c.Name, c.Load, share != nil && *share > most
		if why == "" {
			power := p.power()
			c.Power = &power
		} else if !p.overloaded {
			continue
		}
		points = append(points, p)
	}
	s.Knee = findKnee(s.Workload, points)
}
