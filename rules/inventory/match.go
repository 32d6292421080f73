package inventory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"assay/rules/aiperfrun"
	"assay/rules/bundle"
	"assay/starlark/diag"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Profile is one way to build and run a checkpoint.
type Profile struct {
	Precision      string `json:"precision,omitempty"`
	Context        int    `json:"context,omitempty"` // tokens
	TensorParallel int    `json:"tensor_parallel"`
	Quantization   string `json:"quantization,omitempty"`
}

// String is the profile in words; empty if nothing is said of it.
func (p Profile) String() string {
	var parts []string
	if p.Precision != "" {
		parts = append(parts, p.Precision)
	}
	if p.Quantization != "" && p.Quantization != p.Precision {
		parts = append(parts, p.Quantization)
	}
	if p.Context > 0 {
		parts = append(parts, fmt.Sprintf("context %d", p.Context))
	}
	if p.TensorParallel > 1 {
		parts = append(parts, fmt.Sprintf("%d devices", p.TensorParallel))
	}
	return strings.Join(parts, ", ")
}

// Workload is the attributes of aiperf_run that make a workload, as text.
type Workload map[string]string

// String is the workload in words: the usual attributes in short, the others by name.
func (w Workload) String() string {
	var parts []string
	rest := maps.Clone(w)
	take := func(name string) string {
		v := rest[name]
		delete(rest, name)
		return v
	}
	if endpoint := take("endpoint"); endpoint != "" {
		mode := "buffered"
		if equal(take("streaming"), "True") {
			mode = "streamed"
		}
		parts = append(parts, endpoint+" "+mode)
	}
	if in, out := take("input_tokens"), take("output_tokens"); in != "" || out != "" {
		parts = append(parts, fmt.Sprintf("%s → %s tokens", in, out))
	}
	if c := take("concurrency"); c != "" {
		parts = append(parts, "concurrency "+c)
	}
	if n := take("requests"); n != "" {
		text := n + " requests"
		if k := take("samples"); k != "" && k != "1" {
			text = k + " × " + text
		}
		if warmup := take("warmup_requests"); warmup != "" {
			text += " + " + warmup + " warm-up"
		}
		parts = append(parts, text)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		parts = append(parts, strings.ReplaceAll(name, "_", " ")+" "+rest[name])
	}
	return strings.Join(parts, ", ")
}

// canonical is a precision in GGUF's words.
func canonical(precision string) string {
	switch precision {
	case "FP16":
		return "F16"
	case "FP32":
		return "F32"
	}
	return precision
}

// quantization is the scheme of quantized weights. In GGUF that is their precision; to
// say it once is enough.
func (d Declared) quantization() string {
	return cmp.Or(d.Profile.Quantization, bundle.Quantization(d.Profile.Precision))
}

// pair is what a row says and what its evidence says of the same thing.
type pair struct{ attr, row, evidence string }

func (d Declared) pairs(checkpoint string, p Profile) []pair {
	number := func(n int) string { return strconv.Itoa(n) }
	return []pair{
		{"checkpoint", d.Checkpoint, checkpoint},
		{"precision", canonical(d.Profile.Precision), canonical(p.Precision)},
		{"context", number(d.Profile.Context), number(p.Context)},
		{"tensor_parallel", number(d.Profile.TensorParallel), number(p.TensorParallel)},
		{"quantization", d.quantization(), p.Quantization},
	}
}

// differs reports in what a row is not what its evidence is of.
func (d Declared) differs(checkpoint string, p Profile, what string) []schema.Problem {
	var problems []schema.Problem
	for _, x := range d.pairs(checkpoint, p) {
		if x.row != x.evidence {
			problems = append(problems, schema.Problem{Attr: x.attr, Message: fmt.Sprintf("the row says %q, %s has %q", x.row, what, x.evidence)})
		}
	}
	return problems
}

// matches checks a row against a bundle as it was built or served.
func (d Declared) matches(info bundle.Info, what string) error {
	var errs []error
	for _, p := range d.differs(info.Model, Profile{
		Precision: info.Precision, Context: info.Context, TensorParallel: info.TensorParallel, Quantization: bundle.Quantization(info.Precision),
	}, what) {
		errs = append(errs, fmt.Errorf("%s: %s", p.Attr, p.Message))
	}
	return errors.Join(errs...)
}

// surroundings are attributes of aiperf_run that are no part of the workload.
var surroundings = []string{"server", "client", "requires", "after", "deadline_seconds"}

// differs reports in what the workload is not that of a run. What is not named has
// the default of the rule.
func (w Workload) differs(run *graph.Target) []schema.Problem {
	var problems []schema.Problem
	var names []string
	for _, attr := range run.Rule.Attrs {
		if slices.Contains(surroundings, attr.Name) {
			continue
		}
		names = append(names, attr.Name)
		declared, named := w[attr.Name]
		if !named {
			if declared = text(attr.Default); attr.Kind == schema.Bool {
				declared = text(attr.Default == true)
			}
		}
		if have := text(run.Attrs[attr.Name]); !equal(declared, have) {
			message := fmt.Sprintf("%s is %q in the row, %q in %s", attr.Name, declared, have, run.Label)
			if !named {
				message = fmt.Sprintf("%s is not named by the row, so it is %q, and it is %q in %s", attr.Name, declared, have, run.Label)
			}
			problems = append(problems, schema.Problem{Attr: "workload", Message: message})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if !slices.Contains(names, name) {
			p := schema.Problem{Attr: "workload", Message: fmt.Sprintf("%q is no attribute of %s that makes a workload", name, run.Rule.Name)}
			if near := diag.Suggest(name, names); near != "" {
				p.Hint = fmt.Sprintf("did you mean %q?", near)
			}
			problems = append(problems, p)
		}
	}
	return problems
}

// matches checks the workload against what a sample says it ran. The facts have no
// member for some attributes; those were compared with the run's.
func (w Workload) matches(facts aiperfrun.Workload, what string) error {
	data, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(w)) {
		have, ok := members[name]
		if _, nested := have.(map[string]any); !ok || nested {
			continue
		}
		if !equal(w[name], text(have)) {
			errs = append(errs, fmt.Errorf("workload: %s is %q in the row, %q in %s", name, w[name], text(have), what))
		}
	}
	return errors.Join(errs...)
}

// text is a value as Starlark prints it, without quotes.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		if v {
			return "True"
		}
		return "False"
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case graph.Label:
		if v == (graph.Label{}) {
			return ""
		}
		return v.String()
	case []string:
		return strings.Join(v, ",")
	}
	return fmt.Sprint(v)
}

// equal compares values as text: numbers by value, and False, 0 and the empty text
// are the same nothing.
func equal(a, b string) bool {
	nothing := func(s string) bool { return s == "" || s == "False" || s == "0" }
	if a == b || nothing(a) && nothing(b) {
		return true
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}
