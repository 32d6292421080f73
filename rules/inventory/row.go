package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/bundle"
	"assay/rules/internal/host"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/rule"
	"assay/rules/internal/status"
	"assay/rules/join"
	"assay/rules/validatefamily"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// RowFile is the output of a row, a Row.
const RowFile = "row.json"

// Roles of the evidence among the inputs.
const (
	bundleRole     = "bundle"
	validationRole = "validation"
	joinRole       = "join"
)

// Role says what a row is for.
type Role string

// Matrix is the role of the rows that count for their group. All others never do.
const Matrix Role = "matrix"

// Declared is what a row says of itself.
type Declared struct {
	Group string `json:"group"`
	Role  Role   `json:"role"`
	// Checkpoint is the upstream id of the model; empty if there is none that could
	// stand here.
	Checkpoint string   `json:"checkpoint,omitempty"`
	Profile    Profile  `json:"profile"`
	Workload   Workload `json:"workload"`

	// reason is why there is no evidence, and the state that this gives.
	reason string
	state  status.State
}

// Row is row.json: one checkpoint, profile and workload, and how far it has come.
type Row struct {
	Declared
	Status status.Status `json:"status"`
	// Bundle is the digest of what is served, once it is built.
	Bundle digest.Digest `json:"bundle,omitempty"`
	// Measured tells of the samples, if there are any.
	Measured *Measured `json:"measured,omitempty"`

	// Missing says which evidence that the row names there is not.
	Missing []Missing `json:"missing,omitempty"`

	// What follows is only known where the row is set against the workspace as it is
	// now, by `assay status`: the row's label, and what the row had come to by the
	// evidence before that.
	Target  string   `json:"target,omitempty"`
	Earlier *Earlier `json:"earlier,omitempty"`
}

// generic are the reasons that say no more than that evidence is missing, by role.
var generic = map[string]string{bundleRole: status.NoBundle, validationRole: status.NotValidated, joinRole: status.NoJoin}

// Explained is what stands behind the status, in lines: samples, what is missing and
// why, the other reasons, and what was earlier.
func (r Row) Explained() []string {
	var lines []string
	if r.Measured != nil {
		lines = append(lines, r.Measured.String())
	}
	// One cause often keeps back several.
	var causes []string
	roles := map[string][]string{}
	for _, m := range r.Missing {
		if roles[m.Why] == nil {
			causes = append(causes, m.Why)
		}
		roles[m.Why] = append(roles[m.Why], m.Role)
	}
	for _, why := range causes {
		lines = append(lines, fmt.Sprintf("no %s: %s", strings.Join(roles[why], ", "), why))
	}
	for _, reason := range r.Status.Reasons {
		if !slices.ContainsFunc(r.Missing, func(m Missing) bool { return generic[m.Role] == reason }) {
			lines = append(lines, reason)
		}
	}
	for _, what := range r.Status.Unjudged {
		lines = append(lines, "not judged: "+what)
	}
	if r.Earlier != nil {
		lines = append(lines, r.Earlier.String())
	}
	return lines
}

// Measured says when, where and from which sources samples were made. It stays as
// it is, whatever becomes of the sources.
type Measured struct {
	Samples  int       `json:"samples"`
	Requests int       `json:"requests"` // the measured ones of all samples
	Started  time.Time `json:"started"`  // of the first
	Finished time.Time `json:"finished"` // of the last
	// Sources are the revisions, each once. Hardware is that of the first sample; no
	// row pools unlike ones.
	Sources  []host.Revision `json:"sources"`
	CPUModel string          `json:"cpu_model"`
	CPUs     int             `json:"cpus"`
	Memory   int64           `json:"memory_bytes"`
}

// String says how much was measured, when, and from which sources.
func (m Measured) String() string {
	sources := make([]string, len(m.Sources))
	for i, r := range m.Sources {
		if len(r.Commit) > shownCommit {
			r.Commit = r.Commit[:shownCommit]
		}
		sources[i] = r.String()
	}
	samples := "1 sample"
	if m.Samples != 1 {
		samples = fmt.Sprintf("%d samples", m.Samples)
	}
	return fmt.Sprintf("%s, %d requests, %s, source %s", samples, m.Requests, m.Finished.UTC().Format("2006-01-02 15:04Z"), strings.Join(sources, " and "))
}

// shownCommit is how much of a revision is printed.
const shownCommit = 12

// Missing is evidence that a row names and does not have.
type Missing struct {
	Role string `json:"role"` // bundle, validation or join
	Why  string `json:"why"`
}

// Earlier is a status that a row had. It keeps the source revision it was measured
// at.
type Earlier struct {
	Status   status.Status `json:"status"`
	Measured *Measured     `json:"measured,omitempty"`
	// Changed are the inputs that are others now.
	Changed []string `json:"changed,omitempty"`
}

func (e Earlier) String() string {
	text := "earlier " + e.Status.String()
	if e.Measured != nil {
		text += ": " + e.Measured.String()
	}
	if e.Changed != nil {
		text += "; changed since: " + strings.Join(e.Changed, ", ")
	}
	return text
}

// reasons are the attributes that say why there is no evidence.
var reasons = []status.State{status.Planned, status.Blocked, status.Unsupported}

// RowRule is the rule `inventory_row`.
var RowRule = rule.Rule{
	Schema: &schema.Rule{
		Name: "inventory_row", Version: 1,
		Doc: "One checkpoint, profile and workload of an inventory. Its status is computed from the evidence it names; without any it says why.",
		Attrs: []schema.Attr{
			{Name: "group", Kind: schema.String, Required: true, Pattern: schema.NamePattern, PatternDoc: "letters, digits and _ . + -", Doc: "The group of the row: all rows of one workload."},
			{Name: "role", Kind: schema.String, Default: string(Matrix), Values: []string{string(Matrix), "pilot", "fixture", "smoke", "demonstration"}, Doc: "Only rows of the `matrix` count for their group."},
			{Name: "checkpoint", Kind: schema.String, Doc: "The upstream id of the model, as its `checkpoint` says it."},
			{Name: "precision", Kind: schema.String, Doc: "The precision of the weights. `FP16` and `F16` are the same, so are `FP32` and `F32`."},
			{Name: "context", Kind: schema.Int, Min: at(0), Max: at(1 << 24), Doc: "The context window, in tokens."},
			{Name: "tensor_parallel", Kind: schema.Int, Default: int64(1), Min: at(1), Doc: "The number of devices that share each layer."},
			{Name: "quantization", Kind: schema.String, Doc: "The scheme of quantized weights."},
			{Name: "workload", Kind: schema.StringDict, Doc: "The attributes of `aiperf_run` that make the workload, as text; what is not named has its default there. `samples` is among them."},
			{Name: "bundle", Kind: schema.Label, Rules: []string{"bundle"}, Doc: "The bundle, for a row without a validation and a join, which name it already."},
			{Name: "validation", Kind: schema.Label, Rules: []string{"validate_family"}, Doc: "The validation of the bundle."},
			{Name: "join", Kind: schema.Label, Rules: []string{"join"}, Doc: "The joined run of the workload."},
			{Name: "planned", Kind: schema.String, Doc: "Why there is no bundle yet."},
			{Name: "blocked", Kind: schema.String, Doc: "What is in the way: no such checkpoint, too little memory."},
			{Name: "unsupported", Kind: schema.String, Doc: "What the model lacks for the workload. With a bundle this is computed from its family's tasks."},
		},
		Check: checkRow,
	},
	Class:   action.Pure,
	Analyze: analyzeRow,
}

func at(x float64) *float64 { return &x }

// checkRow: a row has evidence, or one reason why not.
func checkRow(v map[string]any) []schema.Problem {
	var given []string
	for _, state := range reasons {
		if v[string(state)] != "" {
			given = append(given, string(state))
		}
	}
	var evidence []string
	for _, attr := range []string{bundleRole, validationRole, joinRole} {
		if v[attr] != "" {
			evidence = append(evidence, attr)
		}
	}
	switch {
	case len(given) > 1:
		return []schema.Problem{{Attr: given[1], Message: fmt.Sprintf("the row says %q already; it has one reason for having no evidence", given[0])}}
	case len(given) == 1 && evidence != nil:
		return []schema.Problem{{Attr: given[0], Message: fmt.Sprintf("the row has evidence, its %s: what it has come to is computed from that", evidence[0])}}
	case len(given) == 0 && evidence == nil:
		return []schema.Problem{{Message: "a row has evidence (`validation`, `join`, or at least a `bundle`) or says why not (`planned`, `blocked`, `unsupported`)",
			Hint: "a status cannot be given: it is computed"}}
	}
	return nil
}

// Declare reads what a row says of itself from the attributes of its target or its
// action.
func Declare(attrs map[string]any) Declared {
	d := Declared{
		Group: attrs["group"].(string), Role: Role(attrs["role"].(string)), Checkpoint: attrs["checkpoint"].(string),
		Profile: Profile{
			Precision: attrs["precision"].(string), Context: int(attrs["context"].(int64)),
			TensorParallel: int(attrs["tensor_parallel"].(int64)), Quantization: attrs["quantization"].(string),
		},
		Workload: attrs["workload"].(map[string]string),
	}
	for _, state := range reasons {
		if reason := attrs[string(state)].(string); reason != "" {
			d.state, d.reason = state, reason
		}
	}
	return d
}

// identity is equal for rows that are the same, in whatever words.
func (d Declared) identity() string {
	p := d.Profile
	p.Precision, p.Quantization = canonical(p.Precision), d.quantization()
	text, _ := json.Marshal([]any{d.Group, d.Checkpoint, p, d.Workload}) // plain data
	return string(text)
}

// targets are the evidence of a row in the graph; nil is what it does not have.
type targets struct{ bundle, validation, join, server, run *graph.Target }

func analyzeRow(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	e, problems := evidence(c, t)
	add := func(role string, t *graph.Target, path string) {
		if t != nil {
			// Without a part of its evidence a row is lower, not unknown.
			a.Deps = append(a.Deps, action.Dep{Role: role, ID: t.Label.String(), Path: path, Optional: true})
		}
	}
	add(bundleRole, e.bundle, bundle.InfoFile)
	add(validationRole, e.validation, validatefamily.VerdictFile)
	add(joinRole, e.join, join.File)
	d := Declare(t.Attrs)
	if e.bundle != nil {
		ckpt, _ := c.Dep(e.bundle, "checkpoint")
		precision := e.bundle.String("precision")
		problems = append(problems, d.differs(ckpt.String("hf_id"), Profile{
			Precision: precision, Context: int(e.bundle.Int("context")), TensorParallel: int(e.bundle.Int("tensor_parallel")),
			Quantization: bundle.Quantization(precision),
		}, "its bundle "+e.bundle.Label.String())...)
	}
	if e.run != nil {
		problems = append(problems, d.Workload.differs(e.run)...)
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		row, err := Judge(d, func(role string) ([]byte, error) {
			if _, ok := run.Inputs[role]; !ok {
				return nil, nil
			}
			return os.ReadFile(run.Input(role))
		})
		if err != nil {
			return err
		}
		for _, dep := range a.Deps {
			if absence, ok := run.Absent[dep.Role]; ok {
				row.Missing = append(row.Missing, Missing{dep.Role, absence.String()})
			}
		}
		return jsonfile.Write(filepath.Join(run.Out, RowFile), row)
	}
	return problems
}

// evidence finds what a row rests on, all of it on one bundle and one server.
func evidence(c *rule.Context, t *graph.Target) (targets, []schema.Problem) {
	var e targets
	var problems []schema.Problem
	add := func(attr, format string, args ...any) {
		problems = append(problems, schema.Problem{Attr: attr, Message: fmt.Sprintf(format, args...)})
	}
	e.bundle, _ = c.Dep(t, bundleRole)
	on := func(attr string, server *graph.Target, what string) {
		b, _ := c.Dep(server, "bundle")
		switch {
		case e.server != nil && e.server != server:
			add(attr, "%s %s, and the row's validation judges %s; a verdict holds for the server that it was made with", what, server.Label, e.server.Label)
		case e.bundle != nil && e.bundle != b:
			add(attr, "%s %s, which has the bundle %s; the row's is %s", what, server.Label, b.Label, e.bundle.Label)
		}
		e.server = cmp.Or(e.server, server)
		e.bundle = cmp.Or(e.bundle, b)
	}
	if v, ok := c.Dep(t, validationRole); ok {
		e.validation = v
		server, _ := c.Dep(v, "server")
		on(validationRole, server, v.Label.String()+" judges")
	}
	if j, ok := c.Dep(t, joinRole); ok {
		e.join = j
		run, _ := c.Dep(j, "run")
		if run.Rule.Attr("server") == nil {
			add(joinRole, "%s joins %s, which was not made here; a row rests on runs that were", j.Label, run.Label)
			return e, problems
		}
		e.run = run
		server, _ := c.Dep(run, "server")
		on(joinRole, server, j.Label.String()+" measures")
	}
	return e, problems
}

// Judge computes a row. read gives the content of the evidence with a role, nil if
// there is none. Evidence of something else than the row says is an error.
func Judge(d Declared, read func(role string) ([]byte, error)) (Row, error) {
	row := Row{Declared: d}
	if d.state != "" {
		row.Status = status.Status{State: d.state, Reasons: []string{d.reason}}
		return row, nil
	}
	e := status.Evidence{Endpoint: d.Workload["endpoint"], Samples: d.Workload.samples()}
	var info bundle.Info
	var verdict validatefamily.Verdict
	var joined join.Joined
	var errs []error
	has := func(role string, into any) bool {
		data, err := read(role)
		if data == nil || err != nil {
			errs = append(errs, err)
			return false
		}
		if err := jsonfile.Decode(data, into); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", role, err))
			return false
		}
		return true
	}
	if has(bundleRole, &info) {
		e.Bundle, row.Bundle = &info, info.Digest
		errs = append(errs, d.matches(info, "the bundle"))
	}
	if has(validationRole, &verdict) {
		e.Verdicts = append(e.Verdicts, verdict)
	}
	if has(joinRole, &joined) {
		e.Join = &joined
		for _, s := range joined.Samples {
			errs = append(errs, d.matches(s.Facts.Bundle, "sample "+s.ID), d.Workload.matches(s.Facts.Workload, "sample "+s.ID))
		}
		row.Measured = measured(joined)
	}
	row.Status = status.Of(e)
	return row, errors.Join(errs...)
}

// Before computes what a row had come to by evidence that may not be that of the
// stages as they are now; nil if there is none of what the row is today. Samples
// carry the description of their bundle and the verdict that they were made under,
// so what was measured does not depend on anything that was built since.
func Before(d Declared, read func(role string) ([]byte, error)) *Earlier {
	data, err := read(joinRole)
	var joined join.Joined
	if data == nil || err != nil || jsonfile.Decode(data, &joined) != nil || len(joined.Samples) == 0 {
		row, err := Judge(d, func(role string) ([]byte, error) {
			if role == joinRole {
				return nil, nil
			}
			return read(role)
		})
		if err != nil || row.Status.State == status.Planned {
			return nil
		}
		return &Earlier{Status: row.Status}
	}
	e := status.Evidence{Bundle: &joined.Samples[0].Facts.Bundle, Endpoint: d.Workload["endpoint"], Join: &joined, Samples: d.Workload.samples()}
	for _, s := range joined.Samples {
		if d.matches(s.Facts.Bundle, "") != nil || d.Workload.matches(s.Facts.Workload, "") != nil {
			return nil
		}
		// A sample is only made when the validation has passed.
		if v := s.Facts.Validation; v != nil {
			e.Verdicts = append(e.Verdicts, validatefamily.Verdict{Passed: true, Bundle: v.Bundle, ServedFile: s.Facts.ServedFile, Criteria: v.Criteria})
		}
	}
	return &Earlier{Status: status.Of(e), Measured: measured(joined)}
}

func measured(j join.Joined) *Measured {
	if len(j.Samples) == 0 {
		return nil
	}
	first := j.Samples[0].Facts
	m := &Measured{
		Samples: len(j.Samples), Requests: j.Row.Measured, Started: first.Started, Finished: first.Finished,
		CPUModel: first.Host.CPUModel, CPUs: first.Host.CPUs, Memory: first.Host.MemoryBytes,
	}
	for _, s := range j.Samples {
		f := s.Facts
		if f.Started.Before(m.Started) {
			m.Started = f.Started
		}
		if f.Finished.After(m.Finished) {
			m.Finished = f.Finished
		}
		same := func(r host.Revision) bool { return r.String() == f.Revision.String() }
		if !slices.ContainsFunc(m.Sources, same) {
			m.Sources = append(m.Sources, f.Revision)
		}
	}
	return m
}

// samples is how many the workload wants.
func (w Workload) samples() int {
	n, _ := strconv.Atoi(w["samples"])
	return max(n, 1)
}
