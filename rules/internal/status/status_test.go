package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"pgregory.net/rapid"

	"assay/rules/aiperfrun"
	"assay/rules/bundle"
	"assay/rules/importrun"
	"assay/rules/internal/dataset"
	"assay/rules/internal/fidelity"
	"assay/rules/internal/ledger"
	"assay/rules/internal/server"
	"assay/rules/join"
	"assay/rules/validatefamily"
)

var (
	here  = digest.FromString("bundle")
	file  = digest.FromString("file")
	other = digest.FromString("other")
)

// full is all that a qualified row has.
func full() Evidence {
	sample := func(id string) join.Sample {
		s := join.Sample{ID: id}
		s.Facts.Server = server.Spec{Engine: server.LlamaCPP}
		s.Facts.Bundle.Digest, s.Facts.ServedFile = here, file
		s.Facts.Validation = &aiperfrun.Validation{Bundle: here}
		s.Ledger.Quality = ledger.Quality{OneToOne: 3, Compared: 3, Identical: 3}
		return s
	}
	j := &join.Joined{Samples: []join.Sample{sample("a"), sample("b")}}
	j.Row.Measured, j.Row.Counts = 6, map[ledger.Class]int{ledger.Completed: 6}
	return Evidence{
		Bundle: &bundle.Info{Digest: here, Family: "fam", Tasks: []string{"chat"}}, Endpoint: "chat",
		Verdicts: []validatefamily.Verdict{{Passed: true, Bundle: here, ServedFile: file, Criteria: other}},
		Join:     j, Samples: 2,
	}
}

// Each thing that is missing or wrong keeps the row on its rung, and says why.
func TestLadder(t *testing.T) {
	if s := Of(full()); s.State != Qualified || s.Detail != "" || len(s.Reasons) != 0 || s.Criteria != other {
		t.Fatalf("all there: %+v", s)
	}
	for name, tt := range map[string]struct {
		change func(*Evidence)
		want   string // State and detail
		reason string
	}{
		"nothing":               {func(e *Evidence) { *e = Evidence{} }, "planned, not built", "no bundle"},
		"a bundle alone":        {func(e *Evidence) { e.Verdicts, e.Join = nil, nil }, "implemented, not validated", "no passing validation"},
		"no run":                {func(e *Evidence) { e.Join = nil }, "family-validated, not measured", "no joined run"},
		"no validation":         {func(e *Evidence) { e.Verdicts = nil }, "implemented, not validated", "no passing validation"},
		"validation failed":     {func(e *Evidence) { e.Verdicts[0].Passed = false }, "implemented, validation failed", "no passing validation"},
		"validated in part":     {func(e *Evidence) { e.Verdicts[0].Passed, e.Verdicts[0].Partial = false, true }, "implemented, validated in part", "no passing validation"},
		"of another bundle":     {func(e *Evidence) { e.Verdicts[0].Bundle = other }, "implemented, not validated", "no passing validation"},
		"of another file":       {func(e *Evidence) { e.Verdicts[0].ServedFile = other }, "implemented, not validated", "no passing validation"},
		"of an unknown file":    {func(e *Evidence) { e.Verdicts[0].ServedFile = ""; e.Join = nil }, "implemented, not validated", "no passing validation"},
		"second sample's file":  {func(e *Evidence) { e.Join.Samples[1].Facts.ServedFile = other }, "implemented, not validated", "no passing validation"},
		"a sample too few":      {func(e *Evidence) { e.Join.Samples = e.Join.Samples[:1] }, "family-validated, not qualified", "1 of 2 samples"},
		"no sample":             {func(e *Evidence) { e.Join.Samples, e.Samples = nil, 0 }, "family-validated, not qualified", "0 of 1 samples"},
		"a request failed":      {func(e *Evidence) { e.Join.Row.Counts[ledger.Completed] = 5 }, "family-validated, not qualified", "1 of 6 measured requests are not completed"},
		"without a validation":  {func(e *Evidence) { e.Join.Samples[1].Facts.Validation = nil }, "family-validated, not qualified", "sample b was made without"},
		"served another bundle": {func(e *Evidence) { e.Join.Samples[1].Facts.Bundle.Digest = other }, "family-validated, not qualified", "sample b served the bundle"},
		"nothing measured":      {func(e *Evidence) { e.Join.Row.Measured, e.Join.Row.Counts = 0, nil }, "family-validated, not qualified", "no request was measured"},
		"nothing judged":        {func(e *Evidence) { e.Join.Samples[0].Answers = &join.Answers{OtherHistory: 3} }, "family-validated, not qualified", "none of the answers that depend on the history could be judged"},
		"a counter-proof": {func(e *Evidence) {
			e.Join.Chat = &join.Chat{Facts: dataset.ConversationFacts{History: dataset.HistoryRemoved}}
		}, "family-validated, not qualified", "the history was removed on purpose"},
		"retried":        {func(e *Evidence) { e.Join.Samples[0].Ledger.Quality.Retried = 1 }, "family-validated, not qualified", "not joined one to one"},
		"another answer": {func(e *Evidence) { e.Join.Samples[0].Ledger.Quality.Identical = 2 }, "family-validated, not qualified", "1 answers are not shown to be identical"},
		"a blocking finding": {func(e *Evidence) {
			e.Join.Samples[0].Ledger.Findings = []ledger.Finding{{Code: "x", Severity: ledger.Blocking}}
		}, "family-validated, not qualified", "finding x"},
		"an unverified adapter":  {func(e *Evidence) { e.Join.Samples[0].Facts.Server.Adapter = "some-server" }, "family-validated, not qualified", `"some-server" is unverified`},
		"somebody else's server": {func(e *Evidence) { e.Join.Samples[0].Facts.Server.Engine = server.OpenAIHTTP }, "implemented, the bundle was not ours to check", "an external server"},
		"imported":               {func(e *Evidence) { e.Join.Samples[0].Imported = &importrun.Import{} }, "imported: of unknown origin", "nobody here saw the run"},
		"a replay that is not true": {func(e *Evidence) {
			e.Join.Row.Counts[ledger.Completed] = 5 // what was refused is its result
			for i := range e.Join.Samples {
				e.Join.Samples[i].Replay = &fidelity.Report{Gates: []fidelity.Gate{{Name: "rate", Met: i == 0, Why: "too slow"}}}
			}
		}, "family-validated, not qualified", "sample b: the replay misses a gate: rate: too slow"},
		"no such task": {func(e *Evidence) { e.Endpoint = "completions" }, "unsupported", "completions is no task of family fam"},
	} {
		e := full()
		tt.change(&e)
		s := Of(e)
		if s.String() != tt.want || !slices.ContainsFunc(s.Reasons, func(r string) bool { return strings.Contains(r, tt.reason) }) {
			t.Errorf("%s: %s %q, want %s because %s", name, s, s.Reasons, tt.want, tt.reason)
		}
		if s.State == Validated && len(s.Reasons) > 1 {
			t.Errorf("%s: more than one reason: %q", name, s.Reasons)
		}
	}
}

// What a verdict does not tell stands beside the status that rests on it.
func TestUnjudged(t *testing.T) {
	e := full()
	e.Verdicts[0].Cases = []validatefamily.Case{{ID: "a", Kind: "logprob", Outcome: validatefamily.Unsupported, Detail: "the engine gives none"}}
	if s := Of(e); s.State != Qualified || !slices.Equal(s.Unjudged, []string{"logprob: the engine gives none (1)"}) {
		t.Errorf("%+v", s)
	}
}

// Whatever the evidence is: with any one piece of it gone, the row is not higher.
func TestLessEvidenceNeverRaises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvidence(t)
		before := Of(e)
		for name, less := range lessThan(e) {
			after := Of(less)
			if after.State.Rung() > before.State.Rung() && before.State.Rung() > 0 {
				t.Fatalf("without %s %s became %s", name, before, after)
			}
			// What is beside the ladder needs its evidence too.
			if before.State.Rung() == 0 && after.State.Rung() > Planned.Rung() {
				t.Fatalf("without %s %s became %s", name, before, after)
			}
		}
	})
}

func drawEvidence(t *rapid.T) Evidence {
	which := rapid.SampledFrom([]digest.Digest{here, here, here, other})
	flag := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
	e := full()
	e.Samples = rapid.IntRange(0, 3).Draw(t, "wanted")
	external := flag("external") // then nobody knows what was loaded, in validation or run
	e.Verdicts = nil
	for i := range rapid.IntRange(0, 3).Draw(t, "verdicts") {
		v := validatefamily.Verdict{Passed: !flag(fmt.Sprint("failed", i)), Bundle: which.Draw(t, "judged"), ServedFile: file}
		if external {
			v.ServedFile = ""
		}
		e.Verdicts = append(e.Verdicts, v)
	}
	if flag("endpoint") {
		e.Endpoint = "completions"
	}
	if flag("no join") {
		e.Join = nil
	} else {
		for i := range e.Join.Samples {
			s := &e.Join.Samples[i]
			if external {
				s.Facts.Server.Engine, s.Facts.ServedFile = server.OpenAIHTTP, ""
			}
			if flag("unvalidated") {
				s.Facts.Validation = nil
			}
			s.Facts.Bundle.Digest = which.Draw(t, "served")
			s.Ledger.Quality.Retried = rapid.IntRange(0, 1).Draw(t, "retried")
		}
		e.Join.Row.Counts[ledger.Completed] = rapid.IntRange(4, 6).Draw(t, "completed")
	}
	if flag("no bundle") {
		e.Bundle = nil
	}
	return e
}

// lessThan gives the evidence without each of its pieces: the bundle, each verdict,
// the join. A join is one piece: its samples are pooled, and the row says how many.
func lessThan(e Evidence) map[string]Evidence {
	list := map[string]Evidence{}
	bundle, run := e, e
	bundle.Bundle, run.Join = nil, nil
	list["the bundle"], list["the join"] = bundle, run
	for i := range e.Verdicts {
		v := e
		v.Verdicts = slices.Delete(slices.Clone(e.Verdicts), i, i+1)
		list[fmt.Sprint("verdict ", i)] = v
	}
	return list
}
