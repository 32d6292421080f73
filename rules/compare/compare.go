// Package compare sets two runs against each other. It compares matched work only:
// the same requests one at a time, with the same answers. Anything else is refused
// with every reason, as data. The rule `compare` and the command `assay diff` are
// this one comparison.
package compare

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"assay/engine/action"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/metrics"
	"assay/rules/internal/rule"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// File is the output, a Comparison.
const File = "compare.json"

// Version is that of the form of a Comparison. It is raised when the meaning of a
// field changes or a field goes away.
const Version = 2

// DefaultMargin is the margin if none is said, in percent.
const DefaultMargin = 5.0

// Comparison is compare.json, and what `assay diff --json` prints.
type Comparison struct {
	Version int  `json:"version"`
	A       Side `json:"a"`
	B       Side `json:"b"`
	// MarginPercent is what counts as equal, in percent of the smaller mean.
	MarginPercent float64 `json:"margin_percent"`
	// Comparable says that the work was the same; if not, Reasons are all that
	// differs, and nothing is compared.
	Comparable bool     `json:"comparable"`
	Reasons    []Reason `json:"reasons,omitempty"`
	// Order is how the samples of the sides lay in time; nil if it is not known.
	Order *Order `json:"order"`
	// Figures are of b beside a, over the measured requests that completed.
	Figures []Figure `json:"figures,omitempty"`
	// Judged is how many figures got a verdict at once: their levels were adjusted
	// for it.
	Judged int `json:"judged"`
	// Gaps are what the comparison does not show.
	Gaps []string `json:"gaps,omitempty"`
}

// Side describes a run.
type Side struct {
	Model    string `json:"model"`
	Engine   string `json:"engine"`
	Endpoint string `json:"endpoint"`
	Mode     string `json:"mode"` // "buffered" or "streamed"
	// Origin is the note of whoever imported the run; empty if it was made here. With
	// it the rest is what its files tell, and empty where they do not.
	Origin  string `json:"origin,omitempty"`
	Samples int    `json:"samples"`
	// Requests are the measured ones of each sample.
	Requests int64 `json:"requests"`
	// Rejected is the share of the measured requests that were refused: durations
	// are those of the others and mean nothing without it.
	Rejected metrics.Share `json:"rejected"`
	// Scope says what the task call covers; it is absent if it differs within the
	// run or is not known.
	Scope string `json:"task_call_scope,omitempty"`
	// OtherCPUs is how many CPUs other processes used on average; null if it was not
	// observable.
	OtherCPUs *float64 `json:"other_cpus"`
}

// Options are what a comparison is asked for.
type Options struct {
	// MarginPercent is what counts as equal, in percent of the smaller mean.
	MarginPercent float64
	// Streams admits streamed runs, if both sides are.
	Streams bool
}

// Rule is the rule `compare`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "compare", Version: 3,
		Doc: "Compares the durations of two runs of matched work: the same requests one at a time, with the same answers. It says why if the work is not the same.",
		Attrs: []schema.Attr{
			{Name: "a", Kind: schema.Label, Required: true, Rules: []string{"join"}, Doc: "The run that is compared with."},
			{Name: "b", Kind: schema.Label, Required: true, Rules: []string{"join"}, Doc: "The run that is judged: better, worse or equal."},
			{Name: "margin_percent", Kind: schema.Float, Default: DefaultMargin, Min: at(0), Max: at(100), Doc: "Differences up to this count as equal, in percent of the smaller mean."},
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
		c, err := Folders(ctx, run.Input("a"), run.Input("b"), Options{MarginPercent: t.Float("margin_percent")})
		if err != nil {
			return err
		}
		return jsonfile.Write(filepath.Join(run.Out, File), c)
	}
	return nil
}

// Folders compares two outputs of joins, each in a folder of its own.
func Folders(ctx context.Context, a, b string, o Options) (Comparison, error) {
	x, err := read(ctx, "a", a)
	if err != nil {
		return Comparison{}, err
	}
	y, err := read(ctx, "b", b)
	if err != nil {
		return Comparison{}, err
	}
	return compare(x, y, o), nil
}

// compare sets b beside a.
func compare(a, b side, o Options) Comparison {
	c := Comparison{Version: Version, A: describe(a), B: describe(b), MarginPercent: o.MarginPercent, Order: order(a, b), Reasons: mismatch(a, b, o.Streams)}
	if len(c.Reasons) > 0 {
		return c
	}
	c.Figures, c.Judged = figures(a, b, o.MarginPercent)
	if missing := c.Figures[0].Withheld; missing != nil {
		c.Reasons, c.Figures = []Reason{{Code: NothingToTime, Message: "client latency: " + missing.Message}}, nil
		return c
	}
	c.Comparable, c.Gaps = true, gaps(a, b, &c)
	return c
}

func describe(s side) Side {
	f := s.joined.Samples[0].Facts
	d := Side{
		Model: f.Server.Model, Engine: f.Server.Engine, Endpoint: f.Workload.Endpoint, Mode: s.mode(),
		Samples: len(s.joined.Samples), Requests: f.Workload.Requests, Rejected: s.joined.Row.Rejected, OtherCPUs: besides(s),
	}
	d.Scope, _ = scope(s)
	if i := s.joined.Samples[0].Imported; i != nil {
		d.Origin = i.Origin
	}
	return d
}

// Name describes a side in a few words.
func (s Side) Name() string {
	name := fmt.Sprintf("%s, %s, %s, %s", cmp.Or(s.Model, "model not known"), cmp.Or(s.Engine, "engine not known"), cmp.Or(s.Endpoint, "endpoint not known"), s.Mode)
	if s.Origin != "" {
		name += fmt.Sprintf(", imported (%q)", s.Origin)
	}
	return name
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

// unseen says which sides are of unknown origin, "" for none. A verdict needs runs
// that were seen.
func unseen(a, b side) string {
	var who []string
	for _, s := range []side{a, b} {
		if s.joined.Samples[0].Imported != nil {
			who = append(who, s.name)
		}
	}
	switch len(who) {
	case 0:
		return ""
	case 1:
		return who[0] + " was imported"
	}
	return "a and b were imported"
}

// unequalLoad is by how many CPUs the load of others may differ before a reader
// is warned of it.
const unequalLoad = 0.1

func gaps(a, b side, c *Comparison) []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if n := min(c.A.Samples, c.B.Samples); n < metrics.ClaimSamples {
		add("the intervals over requests take requests for independent; those of one sample are not, so they are too narrow, and no verdict rests on them")
	} else if c.Judged > 1 {
		add("%d figures are judged at once, so each at a stricter level than 95 %% (Holm)", c.Judged)
	}
	for _, f := range c.Figures {
		if f.Difference != nil && f.Samples != nil && f.Verdict != CannotTell && f.place(f.Samples.Shift.Value) != f.Verdict {
			add("%s: the robust estimate does not bear out the verdict; look at the values of the samples", f.Title)
		}
	}
	switch o := c.Order; {
	case o == nil:
		add("when the samples were made is not known")
	case !o.Interleaved:
		add("the samples were not interleaved but made in the order %s, b %s: what changed on the machine meanwhile is in the difference", o.Sequence, o.later())
	}
	switch p, q := c.A.OtherCPUs, c.B.OtherCPUs; {
	case p == nil || q == nil:
		add("what else the machine did was not observable on both sides")
	case *p-*q > unequalLoad || *q-*p > unequalLoad:
		add("the sides did not have the same quiet: others used %.2f CPUs beside a and %.2f beside b, and what that did is in the difference", *p, *q)
	default:
		add("others used %.2f CPUs beside a and %.2f beside b: no limit was applied", *p, *q)
	}
	if who := unseen(a, b); who != "" {
		add("%s: nobody here saw the server, the machine or its load, so neither is known to be the same as beside it", who)
		return list
	}
	x, y := a.joined.Samples[0].Facts, b.joined.Samples[0].Facts
	if x.Host.CPUModel != y.Host.CPUModel {
		add("the sides ran on different CPUs: %s and %s", x.Host.CPUModel, y.Host.CPUModel)
	}
	if x.CPUs.Shared || y.CPUs.Shared {
		add("server and load generator shared their CPUs")
	}
	if x.Bundle.Digest != y.Bundle.Digest {
		add("the sides have different bundles")
	}
	if x.Server.External() || y.Server.External() {
		add("what an external server had loaded was not ours to check")
	}
	return list
}
