package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/rules/aiperfrun"
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
	"assay/rules/join"
)

func TestStudentQuantile(t *testing.T) {
	for _, c := range []struct{ p, df, want float64 }{
		{.975, 1, 12.706}, {.975, 2, 4.303}, {.975, 4, 2.776}, {.975, 10, 2.228}, {.975, 30, 2.042}, {.975, 120, 1.980}, {.975, 1e6, 1.960},
		{.95, 5, 2.015}, {.995, 9, 3.250}, {.75, 1, 1},
	} {
		if got := studentQuantile(c.p, c.df); math.Abs(got-c.want) > 5e-4 {
			t.Errorf("t %g, df %g: %.5f, want %.3f", c.p, c.df, got, c.want)
		}
	}
}

// run is a side whose samples have these latencies in ms, a request each after one
// warm-up; the task call is a millisecond shorter.
func run(name string, samples ...[]float64) side {
	s := side{name: name}
	for i, latencies := range samples {
		sample := join.Sample{ID: fmt.Sprintf("s%d", i+1)}
		sample.Facts.Workload = aiperfrun.Workload{Endpoint: "chat", InputTokens: 8, OutputTokens: 4, Concurrency: 1, Requests: int64(len(latencies)), Warmup: 1, Seed: 7}
		s.joined.Samples = append(s.joined.Samples, sample)
		var entries []ledger.Entry
		for k, ms := range append([]float64{1000}, latencies...) {
			status, tokens := int64(200), int64(4)
			latency, task := int64(ms*1e6), int64((ms-1)*1e6)
			e := ledger.Entry{
				Phase: ledger.Measured, Class: ledger.Completed,
				Client: &ledger.Client{
					Status: &status, LatencyNS: &latency, TextSHA256: fmt.Sprint("text", k), BodySHA256: fmt.Sprint("body", k), PromptSHA256: fmt.Sprint("prompt", k),
				},
				Server: &ledger.Server{TaskCallNS: &task, Scope: record.ScopeCall},
				Tokens: ledger.Tokens{Prompt: &tokens, Completion: &tokens},
			}
			if k == 0 {
				e.Phase = ledger.Warmup
			}
			entries = append(entries, e)
		}
		s.ledgers = append(s.ledgers, entries)
	}
	return s
}

func TestWorkThatIsNotTheSame(t *testing.T) {
	other := int64(5)
	busy := int64(429)
	load := func(change func(*aiperfrun.Workload)) func(*side) {
		return func(s *side) { change(&s.joined.Samples[0].Facts.Workload) }
	}
	entry := func(change func(*ledger.Entry)) func(*side) {
		return func(s *side) { change(&s.ledgers[0][2]) }
	}
	for name, c := range map[string]struct {
		change func(b *side)
		codes  []string
	}{
		"streamed":        {load(func(w *aiperfrun.Workload) { w.Streaming = true }), []string{Streamed}},
		"concurrent":      {load(func(w *aiperfrun.Workload) { w.Concurrency = 2 }), []string{Concurrent}},
		"open loop":       {load(func(w *aiperfrun.Workload) { w.RequestRate = 3 }), []string{OpenLoop}},
		"endpoint":        {load(func(w *aiperfrun.Workload) { w.Endpoint = "completions" }), []string{Workload}},
		"input":           {load(func(w *aiperfrun.Workload) { w.InputTokens++ }), []string{Workload}},
		"output":          {load(func(w *aiperfrun.Workload) { w.OutputTokens++ }), []string{Workload}},
		"requests":        {load(func(w *aiperfrun.Workload) { w.Requests++ }), []string{Workload}},
		"warm-up":         {load(func(w *aiperfrun.Workload) { w.Warmup++ }), []string{Workload}},
		"seed":            {load(func(w *aiperfrun.Workload) { w.Seed++ }), []string{Workload}},
		"several at once": {load(func(w *aiperfrun.Workload) { w.Seed++; w.Streaming = true }), []string{Streamed, Workload}},
		"a blocking entry": {func(s *side) {
			s.joined.Samples[0].Ledger.Findings = []ledger.Finding{{Code: ledger.CachedTokens, Severity: ledger.Blocking}}
		}, []string{BlockingFinding}},
		"a warning":        {func(s *side) { s.joined.Samples[0].Ledger.Findings = []ledger.Finding{{Severity: ledger.Warning}} }, nil},
		"a prompt twice":   {entry(func(e *ledger.Entry) { e.Client.PromptSHA256 = "prompt1" }), []string{RepeatedPrompt}},
		"a payload":        {entry(func(e *ledger.Entry) { e.Client.BodySHA256 = "x" }), []string{Payloads}},
		"the order":        {func(s *side) { s.ledgers[0][1], s.ledgers[0][2] = s.ledgers[0][2], s.ledgers[0][1] }, []string{Payloads}},
		"a phase":          {entry(func(e *ledger.Entry) { e.Phase = ledger.Warmup }), []string{Payloads}},
		"a lost request":   {func(s *side) { s.ledgers[0] = s.ledgers[0][:2] }, []string{Payloads}},
		"never sent":       {entry(func(e *ledger.Entry) { e.Client, e.Server, e.Class = nil, nil, ledger.NotSent }), []string{RepeatedPrompt, Payloads}},
		"a class":          {entry(func(e *ledger.Entry) { e.Class = ledger.Failed }), []string{Classes}},
		"a refusal":        {entry(func(e *ledger.Entry) { e.Class, e.Client.Status = ledger.Rejected, &busy }), []string{Classes, Statuses}},
		"an answer":        {entry(func(e *ledger.Entry) { e.Client.TextSHA256 = "x" }), []string{Texts}},
		"a count":          {entry(func(e *ledger.Entry) { e.Tokens.Completion = &other }), []string{TokenCounts}},
		"no count":         {entry(func(e *ledger.Entry) { e.Tokens.Prompt = nil }), []string{TokenCounts}},
		"a warm-up answer": {func(s *side) { s.ledgers[0][0].Client.TextSHA256 = "x" }, []string{Texts}},
		"no latency":       {func(s *side) { s.ledgers[0][2].Client.LatencyNS = nil }, []string{NothingToTime}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := run("a", []float64{10, 11, 12}), run("b", []float64{10, 11, 12})
			c.change(&b)
			got := compare(a, b, 5)
			var codes []string
			for _, r := range got.Reasons {
				codes = append(codes, r.Code)
			}
			if !slices.Equal(codes, c.codes) || got.Comparable != (c.codes == nil) {
				t.Errorf("%v, want %v", got.Reasons, c.codes)
			}
			if !got.Comparable && (got.ClientLatency != nil || got.TaskCall != nil) {
				t.Error("refused, and compared all the same")
			}
		})
	}
}

// A count that neither side gives is not the same count.
func TestCountsThatNobodyKnows(t *testing.T) {
	a, b := run("a", []float64{1, 2}), run("b", []float64{1, 2})
	for _, s := range []side{a, b} {
		s.ledgers[0][1].Tokens = ledger.Tokens{}
	}
	if got := compare(a, b, 5); len(got.Reasons) != 2 || got.Reasons[0].Code != TokenCounts {
		t.Errorf("%v", got.Reasons)
	}
}

func TestVerdicts(t *testing.T) {
	base := []float64{100, 101, 99, 100, 102, 98}
	plus := func(d ...float64) []float64 {
		v := slices.Clone(base)
		for i := range v {
			v[i] += d[i%len(d)]
		}
		return v
	}
	for name, c := range map[string]struct {
		b    []float64
		want Verdict
	}{
		"the same":           {base, Equal},
		"a little":           {plus(1, 2), Equal},
		"slower":             {plus(10, 12), Worse},
		"faster":             {plus(-10, -12), Better},
		"about the margin":   {plus(4, 6), CannotTell},
		"much, but anything": {plus(-60, 80), CannotTell},
	} {
		got := compare(run("a", base), run("b", c.b), 5)
		if !got.Comparable || got.ClientLatency.Verdict != c.want || got.TaskCall.Verdict != c.want {
			t.Errorf("%s: %v %+v", name, got.Reasons, got.ClientLatency.Difference)
		}
	}
	if got := compare(run("a", []float64{1}), run("b", []float64{9}), 5); got.ClientLatency.Verdict != CannotTell || got.ClientLatency.Mean95 != nil {
		t.Errorf("one request: %+v", got.ClientLatency)
	}
}

// The interval of five differences 1..5 ms, by hand: 3 ± 2.776·√(2.5/5).
func TestPairedInterval(t *testing.T) {
	got := compare(run("a", []float64{10, 10, 10, 10, 10}), run("b", []float64{11, 12, 13, 14, 15}), 5).ClientLatency
	if got.Unit != perRequest || math.Abs(got.Mean-3) > 1e-9 || math.Abs(got.Mean95.Low-(3-1.9632)) > 1e-3 || math.Abs(got.Mean95.High-(3+1.9632)) > 1e-3 {
		t.Errorf("%+v %+v", got, got.Mean95)
	}
	if math.Abs(got.Percent-30) > 1e-9 || math.Abs(got.Margin-.5) > 1e-9 || got.Verdict != Worse {
		t.Errorf("%+v", got)
	}
}

// With five samples on each side the sample is the unit: as many requests as there
// may be then narrow nothing.
func TestSamplesAsUnit(t *testing.T) {
	var a, b [][]float64
	for i := range runsNeeded {
		level := float64(100 + 10*i)
		a = append(a, []float64{level, level, level, level})
		b = append(b, []float64{level + 6, level + 6, level + 6, level + 6})
	}
	got := compare(run("a", a...), run("b", b...), 5).ClientLatency
	// Means 120 and 126, variance 250 on each side: 6 ± 2.306·√(2·250/5), df 8.
	if got.Unit != perSample || math.Abs(got.Mean-6) > 1e-9 || math.Abs(got.Mean95.Low-(6-23.06)) > 1e-2 || got.Verdict != CannotTell {
		t.Errorf("%+v %+v", got, got.Mean95)
	}
	if few := compare(run("a", a[:4]...), run("b", b[:4]...), 5).ClientLatency; few.Unit != perRequest || few.Requests != 4 {
		t.Errorf("%+v", few)
	}
}

func TestScopes(t *testing.T) {
	b := run("b", []float64{10, 11, 12})
	for i := range b.ledgers[0] {
		b.ledgers[0][i].Server.Scope = record.ScopeHTTPCall
	}
	got := compare(run("a", []float64{10, 11, 12}), b, 5)
	if !got.Comparable || got.ClientLatency.Verdict != Equal || got.TaskCall.Difference != nil || got.TaskCall.Withheld == "" {
		t.Errorf("%+v", got)
	}
	b.ledgers[0][1].Server.Scope = record.ScopeCall
	if got := compare(run("a", []float64{10, 11, 12}), b, 5); got.TaskCall.Withheld == "" || got.B.Scope != "" {
		t.Errorf("%+v", got.TaskCall)
	}
}

// A run beside itself is equal; to swap the sides changes signs and nothing else.
func TestSymmetry(t *testing.T) {
	mirror := map[Verdict]Verdict{Better: Worse, Worse: Better, Equal: Equal, CannotTell: CannotTell}
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.IntRange(2, 12).Draw(t, "requests")
		draw := func(name string) [][]float64 {
			latencies := rapid.SliceOfN(rapid.Float64Range(1, 1000), requests, requests)
			return rapid.SliceOfN(latencies, 1, 6).Draw(t, name)
		}
		a, b, margin := draw("a"), draw("b"), rapid.Float64Range(0, 100).Draw(t, "margin")
		if same := compare(run("a", a[:1]...), run("b", a[:1]...), margin).ClientLatency; same.Verdict != Equal || same.Mean != 0 {
			t.Fatalf("beside itself: %+v", same.Difference)
		}
		x, y := compare(run("a", a...), run("b", b...), margin).ClientLatency, compare(run("a", b...), run("b", a...), margin).ClientLatency
		near := func(p, q float64) bool { return math.Abs(p-q) < 1e-6 }
		if !near(x.Mean, -y.Mean) || !near(x.Percent, -y.Percent) || !near(x.Margin, y.Margin) ||
			!near(x.Mean95.Low, -y.Mean95.High) || !near(x.Mean95.High, -y.Mean95.Low) {
			t.Fatalf("%+v %+v, %+v %+v", x.Difference, x.Mean95, y.Difference, y.Mean95)
		}
		if near(math.Abs(x.Mean95.Low), x.Margin) || near(math.Abs(x.Mean95.High), x.Margin) {
			return // on the edge rounding decides
		}
		if y.Verdict != mirror[x.Verdict] {
			t.Fatalf("%s, swapped %s", x.Verdict, y.Verdict)
		}
	})
}

// What else the machine did is said beside the difference.
func TestLoadBeside(t *testing.T) {
	a, b := run("a", []float64{10, 11}), run("b", []float64{30, 31})
	busy, idle := 9.0, 1.0
	a.joined.Samples[0].Facts.Quiet.WallSeconds, a.joined.Samples[0].Facts.Quiet.OtherCPUSeconds = 10, &idle
	b.joined.Samples[0].Facts.Quiet.WallSeconds, b.joined.Samples[0].Facts.Quiet.OtherCPUSeconds = 10, &busy
	if got := compare(a, b, 5).Gaps; !slices.ContainsFunc(got, func(gap string) bool {
		return strings.Contains(gap, "others used 0.10 CPUs beside a and 0.90 beside b")
	}) {
		t.Errorf("%q", got)
	}
}
