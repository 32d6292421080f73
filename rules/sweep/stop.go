package sweep

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"assay/cache/cas"
	"assay/engine/action"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/rule"
	"assay/rules/join"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// StopFile is the output of a stop rule, a Decision.
const StopFile = "stop.json"

// Decision says whether a series goes on behind a cell.
type Decision struct {
	Version int  `json:"version"`
	Stop    bool `json:"stop"`
	// Reason says why it stops, or why saturation could not be judged.
	Reason string `json:"reason,omitempty"`
	// Gain compares the cell with the one before it; nil if there is none, or if
	// they cannot be compared.
	Gain *Gain `json:"gain,omitempty"`
	// Errors is the share of the measured requests that did not complete.
	Errors metrics.Share `json:"errors"`
}

// Gain is what more load brought: differences in shares of the former value.
type Gain struct {
	Load       float64 `json:"load"`
	Throughput float64 `json:"throughput"` // of completed requests
	Latency    float64 `json:"latency"`    // mean, of completed requests
}

// limits are when a series stops, in shares.
type limits struct{ gain, errors float64 }

// StopRule is the rule `stop_rule`.
var StopRule = rule.Rule{
	Schema: &schema.Rule{
		Name: "stop_rule", Version: 1,
		Doc: "Decides behind a cell of a sweep whether the next one, which names it in `after`, is run or skipped. To stop is no failure.",
		Attrs: []schema.Attr{
			{Name: "join", Kind: schema.Label, Required: true, Rules: []string{"join"}, Doc: "The cell that is judged."},
			{Name: "previous", Kind: schema.Label, Rules: []string{"join"}, Doc: "The cell with the next lower load; without it only errors are judged."},
			{Name: "min_gain_percent", Kind: schema.Float, Default: 10.0, Min: number(0), Max: number(100),
				Doc: "The series is saturated, and stops, if the throughput of completed requests grew by less than this share of what the load grew by, while the mean latency rose. 0 stops for errors only."},
			{Name: "max_error_percent", Kind: schema.Float, Default: 5.0, Min: number(0), Max: number(100),
				Doc: "The series stops if more of the measured requests than this did not complete, beyond doubt: the 95 % interval of the share lies above it. 100 never stops for errors."},
		},
	},
	Class:   action.Pure,
	Analyze: analyzeStop,
}

func number(x float64) *float64 { return &x }

const (
	joinRole     = "join"
	previousRole = "previous"
)

func analyzeStop(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	var problems []schema.Problem
	joined, _ := c.Dep(t, joinRole)
	a.Deps = []action.Dep{{Role: joinRole, ID: joined.Label.String(), Path: join.File}}
	cell, ok := placeOf(c, joined)
	if !ok {
		problems = append(problems, imported(joinRole, joined))
	}
	previous, withPrevious := c.Dep(t, previousRole)
	if withPrevious {
		a.Deps = append(a.Deps, action.Dep{Role: previousRole, ID: previous.Label.String(), Path: join.File})
		before, beforeOK := placeOf(c, previous)
		switch {
		case !beforeOK:
			problems = append(problems, imported(previousRole, previous))
		case ok && before.Workload != cell.Workload:
			problems = append(problems, schema.Problem{Attr: previousRole,
				Message: fmt.Sprintf("%s and %s differ in more than their load: %s", before.run, cell.run, difference(before.Workload, cell.Workload))})
		case ok && before.load >= cell.load:
			problems = append(problems, schema.Problem{Attr: previousRole,
				Message: fmt.Sprintf("%s is at %s, which is no less than the %s of %s", before.run, before.At(before.load), cell.At(cell.load), cell.run),
				Hint:    "a series goes from low load to high"})
		}
	}
	l := limits{t.Float("min_gain_percent") / 100, t.Float("max_error_percent") / 100}
	a.Run = func(ctx context.Context, run *action.Run) error {
		var cell, before join.Joined
		if err := jsonfile.Read(run.Input(joinRole), &cell); err != nil {
			return err
		}
		var former *join.Joined
		if withPrevious {
			if err := jsonfile.Read(run.Input(previousRole), &before); err != nil {
				return err
			}
			former = &before
		}
		return jsonfile.Write(filepath.Join(run.Out, StopFile), decide(&cell, former, l))
	}
	a.Stop = func(tree cas.Ref, store *cas.Store) (string, error) {
		entry, err := store.Lookup(tree, StopFile)
		if err != nil {
			return "", err
		}
		data, err := store.Bytes(entry.Ref())
		if err != nil {
			return "", err
		}
		var d Decision
		if err := json.Unmarshal(data, &d); err != nil || !d.Stop {
			return "", err
		}
		return d.Reason, nil
	}
	return problems
}

func imported(attr string, t *graph.Target) schema.Problem {
	return schema.Problem{Attr: attr, Message: fmt.Sprintf("%s is of an imported run; the cells of a sweep are of aiperf_run", t.Label)}
}

// difference names what differs between two workloads.
func difference(a, b Workload) string {
	var list []string
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"server", a.Server, b.Server}, {"dataset", a.Dataset, b.Dataset}, {"endpoint", a.Endpoint, b.Endpoint}, {"mode", a.Mode, b.Mode},
		{"input_tokens", a.InputTokens, b.InputTokens}, {"output_tokens", a.OutputTokens, b.OutputTokens}, {"load", a.Axis, b.Axis},
		{"arrival", a.Arrival, b.Arrival}, {"concurrency", a.MostInFlight, b.MostInFlight},
	} {
		if f.a != f.b {
			list = append(list, fmt.Sprintf("%s is %v and %v", f.name, f.a, f.b))
		}
	}
	return strings.Join(list, ", ")
}

// decide judges a cell by itself and beside the one before, which may be nil.
func decide(cell, before *join.Joined, l limits) Decision {
	row := &cell.Row
	d := Decision{Version: 1, Errors: row.NotCompleted}
	axis, load := loadOf(cell)
	if low := row.NotCompleted.Low; low != nil && *low > l.errors {
		d.Stop = true
		d.Reason = fmt.Sprintf("too many errors at %s (%s)", at(axis, load), incomplete(row))
		return d
	}
	if before == nil || l.gain == 0 {
		return d
	}
	x, why := pointOf(row)
	y, whyBefore := pointOf(&before.Row)
	_, loadBefore := loadOf(before)
	switch {
	case why != "":
		d.Reason = fmt.Sprintf("saturation cannot be judged: %s at %s", why, at(axis, load))
		return d
	case whyBefore != "":
		d.Reason = fmt.Sprintf("saturation cannot be judged: %s at %s", whyBefore, at(axis, loadBefore))
		return d
	}
	d.Gain = &Gain{Load: load/loadBefore - 1, Throughput: x.throughput/y.throughput - 1, Latency: x.latency/y.latency - 1}
	if d.Gain.Throughput < l.gain*d.Gain.Load && d.Gain.Latency > 0 {
		d.Stop = true
		d.Reason = fmt.Sprintf("saturated at %s (throughput %+.1f %% for %+.0f %% load, mean latency %+.1f %%)",
			at(axis, load), 100*d.Gain.Throughput, 100*d.Gain.Load, 100*d.Gain.Latency)
	}
	return d
}

// loadOf is the load that a run was made with; the key makes all samples alike.
func loadOf(j *join.Joined) (axis string, load float64) {
	w := j.Samples[0].Facts.Workload
	if w.RequestRate > 0 {
		return RequestRate, w.RequestRate
	}
	return Concurrency, float64(w.Concurrency)
}

// incomplete says how many requests did not complete, and how they ended.
func incomplete(row *metrics.Row) string {
	var ends []string
	for _, class := range ledger.Classes {
		if n := row.Counts[class]; n > 0 && class != ledger.Completed {
			ends = append(ends, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(class), "_", " ")))
		}
	}
	return fmt.Sprintf("%d of %d requests did not complete: %s", row.NotCompleted.Count, row.NotCompleted.Of, strings.Join(ends, ", "))
}
