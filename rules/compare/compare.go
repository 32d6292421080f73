// Package compare is the rule that sets two runs against each other. It compares
// durations of matched work only: the same requests one at a time, with the same
// answers. Anything else is refused with every reason, as data.
package compare

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"assay/engine/action"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/ledger"
	"assay/rules/internal/rule"
	"assay/rules/join"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// File is the output, a Comparison.
const File = "compare.json"

// Comparison is compare.json.
type Comparison struct {
	Version int  `json:"version"`
	A       Side `json:"a"`
	B       Side `json:"b"`
	// MarginPercent is what counts as equal, in percent of the faster side's mean.
	MarginPercent float64 `json:"margin_percent"`
	// Comparable says that the work was the same; if not, Reasons are all that
	// differs, and nothing is compared.
	Comparable bool     `json:"comparable"`
	Reasons    []Reason `json:"reasons,omitempty"`
	// ClientLatency and TaskCall are of b beside a, over the measured requests that
	// completed.
	ClientLatency *Timing `json:"client_latency,omitempty"`
	TaskCall      *Timing `json:"task_call,omitempty"`
	// Gaps are what the comparison does not show.
	Gaps []string `json:"gaps,omitempty"`
}

// Side describes a run.
type Side struct {
	Model    string `json:"model"`
	Engine   string `json:"engine"`
	Endpoint string `json:"endpoint"`
	Samples  int    `json:"samples"`
	// Scope says what the task call covers; it is absent if it differs within the
	// run or is not known.
	Scope string `json:"task_call_scope,omitempty"`
}

// Rule is the rule `compare`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "compare", Version: 1,
		Doc: "Compares the durations of two runs of matched work: the same requests one at a time, with the same answers. It says why if the work is not the same.",
		Attrs: []schema.Attr{
			{Name: "a", Kind: schema.Label, Required: true, Rules: []string{"join"}, Doc: "The run that is compared with."},
			{Name: "b", Kind: schema.Label, Required: true, Rules: []string{"join"}, Doc: "The run that is judged: better, worse or equal."},
			{Name: "margin_percent", Kind: schema.Float, Default: 5.0, Min: at(0), Max: at(100), Doc: "Differences up to this count as equal, in percent of the faster side's mean."},
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	for _, role := range []string{"a", "b"} {
		dep, _ := c.Dep(t, role)
		a.Deps = append(a.Deps, action.Dep{Role: role, ID: dep.Label.String()})
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		x, err := read("a", run.Input("a"))
		if err != nil {
			return err
		}
		y, err := read("b", run.Input("b"))
		if err != nil {
			return err
		}
		return jsonfile.Write(filepath.Join(run.Out, File), compare(x, y, t.Float("margin_percent")))
	}
	return nil
}

// read reads a join's output.
func read(name, dir string) (side, error) {
	s := side{name: name}
	if err := jsonfile.Read(filepath.Join(dir, join.File), &s.joined); err != nil {
		return s, err
	}
	if len(s.joined.Samples) == 0 {
		return s, fmt.Errorf("%s: a join without samples cannot be compared", name)
	}
	for _, sample := range s.joined.Samples {
		file := filepath.Join(join.LedgerDir, sample.ID+".jsonl")
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return s, err
		}
		var entries []ledger.Entry
		for e, err := range ledger.Read(bytes.NewReader(data), file) {
			if err != nil {
				return s, err
			}
			if e.Phase != ledger.Probe { // the validation's, not the workload's
				entries = append(entries, *e)
			}
		}
		s.ledgers = append(s.ledgers, entries)
	}
	return s, nil
}

// compare sets b beside a.
func compare(a, b side, margin float64) Comparison {
	c := Comparison{Version: 1, A: describe(a), B: describe(b), MarginPercent: margin, Reasons: mismatch(a, b)}
	if len(c.Reasons) > 0 {
		return c
	}
	latency := difference(a, b, clientLatency, margin)
	if latency.Difference == nil {
		c.Reasons = []Reason{{Code: NothingToTime, Message: "client latency: " + latency.Withheld}}
		return c
	}
	task := Timing{Withheld: scopesDiffer(a, b)}
	if task.Withheld == "" {
		task = difference(a, b, taskCall, margin)
	}
	c.Comparable, c.ClientLatency, c.TaskCall = true, &latency, &task
	c.Gaps = gaps(a, b, latency.Unit)
	return c
}

func describe(s side) Side {
	f := s.joined.Samples[0].Facts
	d := Side{Model: f.Server.Model, Engine: f.Server.Engine, Endpoint: f.Workload.Endpoint, Samples: len(s.joined.Samples)}
	d.Scope, _ = scope(s)
	return d
}

// scopesDiffer says why task calls cannot be compared, "" if they can.
func scopesDiffer(a, b side) string {
	x, err := scope(a)
	if err != nil {
		return err.Error()
	}
	y, err := scope(b)
	if err != nil {
		return err.Error()
	}
	if x != y {
		return fmt.Sprintf("the sides time different things: %s and %s", x, y)
	}
	return ""
}

// besides is how many CPUs other processes used on average while a side was
// measured; nil if it was not observable.
func besides(s side) *float64 {
	others, wall := 0.0, 0.0
	for _, sample := range s.joined.Samples {
		q := sample.Facts.Quiet
		if q.OtherCPUSeconds == nil {
			return nil
		}
		others += *q.OtherCPUSeconds
		wall += q.WallSeconds
	}
	if wall <= 0 {
		return nil
	}
	cpus := others / wall
	return &cpus
}

func gaps(a, b side, unit string) []string {
	var list []string
	if unit == perRequest {
		list = append(list, fmt.Sprintf("the interval takes requests for independent; those of one sample are not, so it is too narrow (%d samples on each side make the sample the unit)", runsNeeded))
	}
	list = append(list, "the samples of the two sides were not interleaved: what changed on the machine between them is in the difference")
	if p, q := besides(a), besides(b); p != nil && q != nil {
		list = append(list, fmt.Sprintf("others used %.2f CPUs beside a and %.2f beside b: no limit was applied, and what that did to either side is in the difference", *p, *q))
	}
	x, y := a.joined.Samples[0].Facts, b.joined.Samples[0].Facts
	if x.Host.CPUModel != y.Host.CPUModel {
		list = append(list, fmt.Sprintf("the sides ran on different CPUs: %s and %s", x.Host.CPUModel, y.Host.CPUModel))
	}
	if x.CPUs.Shared || y.CPUs.Shared {
		list = append(list, "server and load generator shared their CPUs")
	}
	if x.Bundle.Digest != y.Bundle.Digest {
		list = append(list, "the sides have different bundles")
	}
	if x.Server.External() || y.Server.External() {
		list = append(list, "what an external server had loaded was not ours to check")
	}
	return list
}
