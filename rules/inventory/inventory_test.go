package inventory

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"pgregory.net/rapid"

	"assay/rules/aiperfrun"
	"assay/rules/bundle"
	"assay/rules/internal/host"
	"assay/rules/internal/ledger"
	"assay/rules/internal/server"
	"assay/rules/internal/status"
	"assay/rules/join"
	"assay/rules/validatefamily"
)

var (
	served  = digest.FromString("bundle")
	weights = digest.FromString("weights")
	when    = time.Date(2026, 11, 30, 22, 28, 12, 0, time.UTC)
)

// tiny is a row with the evidence that makes it qualified, by role.
func tiny(t *testing.T) (Declared, map[string][]byte) {
	t.Helper()
	info := bundle.Info{Version: 1, Model: "assay/tiny", Family: "fam", Tasks: []string{"chat"}, Precision: "F16", Context: 256, TensorParallel: 1, Digest: served}
	sample := join.Sample{ID: "a"}
	sample.Facts = aiperfrun.Sample{
		Bundle: info, ServedFile: weights, Server: server.Spec{Engine: server.Scripted}, Workload: aiperfrun.Workload{Endpoint: "chat", Requests: 3},
		Validation: &aiperfrun.Validation{Bundle: served}, Revision: host.Revision{Commit: strings.Repeat("1", 40)}, Started: when, Finished: when,
	}
	sample.Ledger.Quality = ledger.Quality{OneToOne: 3, Compared: 3, Identical: 3}
	joined := join.Joined{Version: 1, Samples: []join.Sample{sample}}
	joined.Row.Measured, joined.Row.Counts = 3, map[ledger.Class]int{ledger.Completed: 3}
	evidence := map[string][]byte{}
	for role, v := range map[string]any{
		bundleRole: info, joinRole: joined,
		validationRole: validatefamily.Verdict{Version: 1, Passed: true, Bundle: served, ServedFile: weights},
	} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		evidence[role] = data
	}
	return Declared{
		Group: "text", Role: Matrix, Checkpoint: "assay/tiny", Profile: Profile{Precision: "FP16", Context: 256, TensorParallel: 1},
		Workload: Workload{"endpoint": "chat", "requests": "3"},
	}, evidence
}

func reader(evidence map[string][]byte) func(string) ([]byte, error) {
	return func(role string) ([]byte, error) { return evidence[role], nil }
}

// Without any one piece of its evidence a row is lower; what it had come to by its
// samples alone is told by these.
func TestRowRestsOnEachPieceOfItsEvidence(t *testing.T) {
	d, evidence := tiny(t)
	row, err := Judge(d, reader(evidence))
	if err != nil || row.Status.State != status.Qualified || row.Bundle != served || row.Measured.Sources[0].Commit == "" {
		t.Fatalf("%+v, %v", row, err)
	}
	for role, want := range map[string]status.State{bundleRole: status.Planned, validationRole: status.Implemented, joinRole: status.Validated} {
		less := maps.Clone(evidence)
		delete(less, role)
		row, err := Judge(d, reader(less))
		if err != nil || row.Status.State != want {
			t.Errorf("without the %s: %s, %v", role, row.Status, err)
		}
		before := Before(d, reader(less))
		if before == nil || role == joinRole && before.Status.State != status.Validated || role != joinRole && before.Status.State != status.Qualified {
			t.Errorf("without the %s it was %+v before", role, before)
		}
	}
	if before := Before(d, reader(nil)); before != nil {
		t.Errorf("of no evidence: %+v", before)
	}
}

// Evidence of something else is an error with both values, whichever it is.
func TestEvidenceIsOfTheRow(t *testing.T) {
	for want, change := range map[string]func(*Declared){
		`checkpoint: the row says "assay/large", the bundle has "assay/tiny"`: func(d *Declared) { d.Checkpoint = "assay/large" },
		`precision: the row says "F32", sample a has "F16"`:                   func(d *Declared) { d.Profile.Precision = "FP32" },
		`context: the row says "512", the bundle has "256"`:                   func(d *Declared) { d.Profile.Context = 512 },
		`tensor_parallel: the row says "2", the bundle has "1"`:               func(d *Declared) { d.Profile.TensorParallel = 2 },
		`quantization: the row says "Q4_0", the bundle has ""`:                func(d *Declared) { d.Profile.Quantization = "Q4_0" },
		`workload: requests is "1000" in the row, "3" in sample a`:            func(d *Declared) { d.Workload["requests"] = "1000" },
		`workload: streaming is "True" in the row, "False" in sample a`:       func(d *Declared) { d.Workload["streaming"] = "True" },
	} {
		d, evidence := tiny(t)
		change(&d)
		if _, err := Judge(d, reader(evidence)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
		if before := Before(d, reader(evidence)); before != nil {
			t.Errorf("%s: it is another row, and it has come to %+v before", want, before)
		}
	}
}

// A row is complete only with all of its supported rows, and only by rows that count.
func TestGroupVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Row {
			r := Row{Status: status.Status{State: rapid.SampledFrom(status.States).Draw(t, "state")}}
			r.Group = rapid.SampledFrom([]string{"text", "image"}).Draw(t, "group")
			r.Role = rapid.SampledFrom([]Role{Matrix, "pilot", "fixture", "smoke", "demonstration"}).Draw(t, "role")
			return r
		}), 0, 6).Draw(t, "rows")
		inv := Of(rows)
		for _, g := range inv.Groups {
			counted := slices.DeleteFunc(inv.InGroup(g.Name), func(r Row) bool { return r.Role != Matrix || r.Status.State == status.Unsupported })
			missing := slices.ContainsFunc(counted, func(r Row) bool { return r.Status.State != status.Qualified })
			if want := len(counted) > 0 && !missing; g.Complete != want || strings.HasPrefix(g.Verdict, "complete") != want {
				t.Fatalf("%+v: %+v", rows, g)
			}
		}
		if len(inv.Rows) != len(rows) {
			t.Fatalf("%d rows of %d", len(inv.Rows), len(rows))
		}
	})
}

// Values are compared by what they mean in Starlark.
func TestEqual(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true}, {"False", "", true}, {"0", "", true}, {"True", "False", false}, {"chat", "chat", true}, {"3", "30", false}, {"", "chat", false},
	} {
		if equal(tt.a, tt.b) != tt.want {
			t.Errorf("equal(%q, %q) is not %v", tt.a, tt.b, tt.want)
		}
	}
}

func TestWorkloadInWords(t *testing.T) {
	for want, w := range map[string]Workload{
		"": {},
		"completions buffered, 32 → 16 tokens, concurrency 1, 3 × 1000 requests + 10 warm-up": {
			"endpoint": "completions", "input_tokens": "32", "output_tokens": "16", "concurrency": "1", "requests": "1000", "warmup_requests": "10", "samples": "3"},
		"chat streamed, request rate 2.5, seed 7": {"endpoint": "chat", "streaming": "True", "seed": "7", "request_rate": "2.5"},
		"samples 3": {"samples": "3"},
	} {
		if got := w.String(); got != want {
			t.Errorf("%v: %q, want %q", map[string]string(w), got, want)
		}
	}
}

// A variant is a row of its own; another word for the same profile makes none.
func TestIdentity(t *testing.T) {
	row := func(precision, quantization string) string {
		return Declared{Profile: Profile{Precision: precision, Quantization: quantization}}.identity()
	}
	if row("FP16", "") != row("F16", "") || row("Q4_1", "") != row("Q4_1", "Q4_1") {
		t.Error("the same row in other words is another")
	}
	if row("F16", "") == row("F32", "") || row("F16", "") == row("F16", "Q4_1") {
		t.Error("a variant is the same row")
	}
}
