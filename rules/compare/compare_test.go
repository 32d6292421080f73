package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"assay/rules/aiperfrun"
	"assay/rules/importrun"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/record"
	"assay/rules/join"
)

// run is a side whose samples have these latencies in ms, a request each after one
// warm-up; the task call is a millisecond shorter.
func run(name string, samples ...[]float64) side {
	s := side{name: name}
	for i, latencies := range samples {
		sample := join.Sample{ID: fmt.Sprintf("s%d", i+1)}
		sample.Ledger.Counts = map[ledger.Phase]map[ledger.Class]int{ledger.Measured: {ledger.Completed: len(latencies)}}
		sample.Ledger.Window = &ledger.Window{}
		sample.Facts.Workload = aiperfrun.Workload{Endpoint: "chat", InputTokens: 8, OutputTokens: 4, Concurrency: 1, Requests: int64(len(latencies)), Warmup: 1, Seed: 7}
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
			} else {
				sample.Ledger.Window.EndNS += latency
			}
			entries = append(entries, e)
		}
		s.joined.Samples = append(s.joined.Samples, sample)
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
		"the order":        {func(s *side) { s.ledgers[0][1], s.ledgers[0][2] = s.ledgers[0][2], s.ledgers[0][1] }, []string{Sequence}},
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
			got := compare(a, b, Options{MarginPercent: 5})
			var codes []string
			for _, r := range got.Reasons {
				codes = append(codes, r.Code)
			}
			if !slices.Equal(codes, c.codes) || got.Comparable != (c.codes == nil) {
				t.Errorf("%v, want %v", got.Reasons, c.codes)
			}
			if !got.Comparable && got.Figures != nil {
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
	if got := compare(a, b, Options{MarginPercent: 5}); len(got.Reasons) != 2 || got.Reasons[0].Code != TokenCounts {
		t.Errorf("%v", got.Reasons)
	}
}

// figure is the one with this name.
func figure(t interface{ Fatalf(string, ...any) }, c Comparison, name string) Figure {
	for _, f := range c.Figures {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no %s in %+v", name, c)
	panic("unreachable")
}

// repeated is a run of n samples whose k-th has all requests at level(k) ms.
func repeated(name string, n int, level func(k int) float64) side {
	var samples [][]float64
	for k := range n {
		v := level(k)
		samples = append(samples, []float64{v - 1, v, v + 1})
	}
	return run(name, samples...)
}

func TestVerdicts(t *testing.T) {
	steady := func(ms ...float64) func(int) float64 { return func(k int) float64 { return ms[k%len(ms)] } }
	for name, c := range map[string]struct {
		b    func(int) float64
		want Verdict
	}{
		"the same":           {steady(100, 101, 99, 100, 102), Equal},
		"a little":           {steady(101, 102, 100, 101, 103), Equal},
		"slower":             {steady(111, 112, 110, 111, 113), Worse},
		"faster":             {steady(89, 88, 90, 89, 87), Better},
		"about the margin":   {steady(104, 107, 103, 106, 105), CannotTell},
		"much, but anything": {steady(40, 180, 60, 160, 100), CannotTell},
	} {
		a, b := repeated("a", 5, steady(100, 101, 99, 100, 102)), repeated("b", 5, c.b)
		got := compare(a, b, Options{MarginPercent: 5})
		if got.Judged != 3 {
			t.Errorf("%s: %d figures judged", name, got.Judged)
		}
		for _, f := range got.Figures {
			if f.Verdict != c.want || (f.Why != "") != (c.want == CannotTell) {
				t.Errorf("%s: %s is %s %q, want %s: %+v", name, f.Name, f.Verdict, f.Why, c.want, f.Samples)
			}
		}
	}
}

// Four samples make no claim, however many requests they have and however far apart
// the sides are.
func TestFewSamplesMakeNoClaim(t *testing.T) {
	level := func(ms float64) func(int) float64 { return func(int) float64 { return ms } }
	got := figure(t, compare(repeated("a", 1, level(100)), repeated("b", 4, level(500)), Options{MarginPercent: 5}), "client_latency")
	if got.Verdict != CannotTell || got.Samples != nil || got.Why != "a has 1 sample and b 4 samples, no claim: measure 4 more of a and 1 more of b" {
		t.Errorf("%+v", got.Difference)
	}
	if got.A.Absent != "1 sample, no claim (needs 5)" || got.A.CV != nil || got.B.CV == nil || got.Requests.N != 3 || got.Requests.Interval == nil {
		t.Errorf("%+v", got.Difference)
	}
}

// The figures of five requests, by hand: differences 1..5 ms, 3 ± 2.776·√(2.5/5).
func TestPairedByRequest(t *testing.T) {
	got := figure(t, compare(run("a", []float64{10, 10, 10, 10, 10}), run("b", []float64{11, 12, 13, 14, 15}), Options{MarginPercent: 5}), "client_latency")
	i := got.Requests.Interval
	if math.Abs(got.Mean-3) > 1e-9 || math.Abs(i.Low-(3-1.9632)) > 1e-3 || math.Abs(i.High-(3+1.9632)) > 1e-3 {
		t.Errorf("%+v %+v", got, i)
	}
	if math.Abs(*got.Percent-30) > 1e-9 || math.Abs(got.Margin-.5) > 1e-9 || got.Requests.Shift.Value != 3 || got.Requests.Shift.Interval != nil {
		t.Errorf("%+v %+v", got.Difference, got.Requests)
	}
	if got := figure(t, compare(run("a", []float64{1}), run("b", []float64{9}), Options{MarginPercent: 5}), "client_latency"); got.Requests.Interval != nil {
		t.Errorf("one request has an interval: %+v", got.Requests.Interval)
	}
}

// With five samples on each side the sample is the unit: means 120 and 126, variance
// 250 on each side, so 6 ± 2.306·√(2·250/5) with 8 degrees of freedom.
func TestSamplesAreTheUnit(t *testing.T) {
	level := func(add float64) func(int) float64 { return func(k int) float64 { return 100 + 10*float64(k) + add } }
	got := figure(t, compare(repeated("a", 5, level(0)), repeated("b", 5, level(6)), Options{MarginPercent: 5}), "client_latency")
	if i := got.Samples.Interval; math.Abs(got.Mean-6) > 1e-9 || math.Abs(i.Low-(6-23.06)) > 1e-2 || math.Abs(i.High-(6+23.06)) > 1e-2 || got.Verdict != CannotTell {
		t.Errorf("%+v %+v", got, i)
	}
	if i := got.Samples.Judged; math.Abs(i.Confidence-(1-.05/3)) > 1e-12 || i.High < got.Samples.Interval.High {
		t.Errorf("three figures are judged at once: %+v", i)
	}
	// All requests of b are 6 ms slower; a reader sees it, and that it is no claim.
	if r := got.Requests; r.Interval.Low < 5.99 || r.Interval.High > 6.01 {
		t.Errorf("%+v", r.Interval)
	}
}

func TestScopesThatDiffer(t *testing.T) {
	a, b := run("a", []float64{10, 11, 12}), run("b", []float64{10, 11, 12})
	for i := range b.ledgers[0] {
		b.ledgers[0][i].Server.Scope = record.ScopeHTTPCall
	}
	task := figure(t, compare(a, b, Options{MarginPercent: 5}), "task_call")
	if task.Difference != nil || task.Withheld == nil || task.Withheld.Code != Scopes {
		t.Errorf("%+v", task)
	}
	b.ledgers[0][1].Server.Scope = record.ScopeCall
	got := compare(run("a", []float64{10, 11, 12}), b, Options{MarginPercent: 5})
	if task := figure(t, got, "task_call"); task.Withheld == nil || task.Withheld.Code != Scopes || got.B.Scope != "" {
		t.Errorf("%+v", task)
	}
}

// stream makes a run streamed: the first token after half of the time.
func stream(s side) side {
	for i := range s.joined.Samples {
		s.joined.Samples[i].Facts.Workload.Streaming = true
		for k := range s.ledgers[i] {
			c := s.ledgers[i][k].Client
			ttft, itl := *c.LatencyNS/2, float64(*c.LatencyNS)/6
			c.Stream, c.TTFTNS, c.ITLNS = true, &ttft, &itl
		}
	}
	return s
}

func TestStreams(t *testing.T) {
	level := func(ms float64) func(int) float64 { return func(k int) float64 { return ms + float64(k%3) } }
	admitted := Options{MarginPercent: 5, Streams: true}
	a, b := stream(repeated("a", 5, level(100))), stream(repeated("b", 5, level(130)))
	got := compare(a, b, admitted)
	for _, name := range []string{"client_latency", "ttft", "itl", "task_call", "requests_per_s"} {
		if f := figure(t, got, name); f.Verdict != Worse {
			t.Errorf("%s: %s", name, f.Verdict)
		}
	}
	b.joined.Row.TTFTMS.Absent = "2 of 15 streams did not arrive as they were generated"
	if f := figure(t, compare(a, b, admitted), "ttft"); f.Withheld == nil || f.Withheld.Code != Doubted {
		t.Errorf("%+v", f)
	}
	if got := compare(a, repeated("b", 5, level(130)), admitted); len(got.Reasons) != 1 || got.Reasons[0].Code != Mode {
		t.Errorf("%v", got.Reasons)
	}
}

// A run beside itself is never better or worse; to swap the sides changes signs and
// nothing else.
func TestSymmetry(t *testing.T) {
	mirror := map[Verdict]Verdict{Better: Worse, Worse: Better, Equal: Equal, CannotTell: CannotTell}
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.IntRange(2, 12).Draw(t, "requests")
		draw := func(name string) [][]float64 {
			latencies := rapid.SliceOfN(rapid.Float64Range(1, 1000), requests, requests)
			return rapid.SliceOfN(latencies, 1, 8).Draw(t, name)
		}
		a, b, o := draw("a"), draw("b"), Options{MarginPercent: rapid.Float64Range(0, 100).Draw(t, "margin")}
		for _, f := range compare(run("a", a...), run("b", a...), o).Figures {
			if f.Mean != 0 || f.Verdict == Better || f.Verdict == Worse {
				t.Fatalf("beside itself: %+v", f.Difference)
			}
		}
		there, back := compare(run("a", a...), run("b", b...), o), compare(run("a", b...), run("b", a...), o)
		near := func(p, q float64) bool { return math.Abs(p-q) < 1e-6 }
		for i, x := range there.Figures {
			y := back.Figures[i]
			if !near(x.Mean, -y.Mean) || !near(x.Margin, y.Margin) || x.Requests != nil && !near(x.Requests.Shift.Value, -y.Requests.Shift.Value) {
				t.Fatalf("%+v and %+v", x, y)
			}
			if x.Samples == nil {
				continue
			}
			j := x.Samples.Judged
			if !near(j.Low, -y.Samples.Judged.High) || !near(j.High, -y.Samples.Judged.Low) {
				t.Fatalf("%+v and %+v", x.Samples, y.Samples)
			}
			if near(math.Abs(j.Low), x.Margin) || near(math.Abs(j.High), x.Margin) {
				return // on the edge rounding decides
			}
			if y.Verdict != mirror[x.Verdict] {
				t.Fatalf("%s: %s, swapped %s", x.Name, x.Verdict, y.Verdict)
			}
		}
	})
}

// noisy is a run of samples that are each a little faster or slower as a whole, by
// a normal deviate of spread, with noise between their requests.
func noisy(random *rand.Rand, name string, samples int, mean, spread float64) side {
	var list [][]float64
	for range samples {
		level := mean * (1 + spread*random.NormFloat64())
		latencies := make([]float64, 8)
		for i := range latencies {
			latencies[i] = level * (1 + .3*float64(i) + .02*random.NormFloat64())
		}
		list = append(list, latencies)
	}
	return run(name, list...)
}

// share is how often, of seeded pairs, a verdict is given that wrong says is wrong.
func share(pairs, samples int, factor, margin float64, wrong func(Figure) bool) float64 {
	random := rand.New(rand.NewPCG(7, 11))
	n := 0
	for range pairs {
		a, b := noisy(random, "a", samples, 100, .02), noisy(random, "b", samples, 100*factor, .02)
		if slices.ContainsFunc(compare(a, b, Options{MarginPercent: margin}).Figures, wrong) {
			n++
		}
	}
	return float64(n) / float64(pairs)
}

func TestErrorRates(t *testing.T) {
	const pairs = 1000
	slack := 4 * math.Sqrt(.05*.95/pairs)
	claimed := func(f Figure) bool { return f.Verdict == Better || f.Verdict == Worse }
	// The same server twice, and nothing counts as equal: any claim is wrong.
	if got := share(pairs, 5, 1, 0, claimed); got > .05+slack {
		t.Errorf("the same twice, no margin: claims in %.1f %%", 100*got)
	}
	// The true difference lies on the margin: a verdict of worse is wrong.
	if got := share(pairs, 5, 1.05, 5, claimed); got > .05+slack {
		t.Errorf("on the margin: claims in %.1f %%", 100*got)
	}
	// Just beyond the margin: a verdict of equal is wrong.
	if got := share(pairs, 5, 1.0501, 5, func(f Figure) bool { return f.Verdict == Equal || f.Verdict == Better }); got > .05+slack {
		t.Errorf("beyond the margin: %.1f %% equal", 100*got)
	}
	// Within the margin the same twice is found equal, and never anything else.
	if got := share(100, 20, 1, 5, func(f Figure) bool { return f.Verdict != Equal }); got > .05 {
		t.Errorf("the same twice, 20 samples: not equal in %.1f %%", 100*got)
	}
	// Ten percent slower is found, by every figure.
	if got := share(100, 20, 1.1, 5, func(f Figure) bool { return f.Verdict != Worse }); got > .05 {
		t.Errorf("ten percent, 20 samples: not found in %.1f %%", 100*got)
	}
}

func TestOrder(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		order       string
		interleaved bool
		later       float64
	}{
		"one each": {"AB", false, 60}, "in turn": {"ABBA", true, 0}, "always b second": {"ABAB", true, 60},
		"one after the other": {"AABB", false, 120}, "b before a": {"BBAA", false, -120}, "a lone third": {"ABBAA", false, -50},
	} {
		t.Run(name, func(t *testing.T) {
			sides := map[rune]*side{'A': {name: "a"}, 'B': {name: "b"}}
			for i, side := range c.order {
				var s join.Sample
				s.Facts.Started = start.Add(time.Duration(i) * time.Minute)
				s.Facts.Finished = s.Facts.Started.Add(50 * time.Second)
				sides[side].joined.Samples = append(sides[side].joined.Samples, s)
			}
			got := order(*sides['A'], *sides['B'])
			if strings.ReplaceAll(got.Sequence, " ", "") != c.order || got.Interleaved != c.interleaved || math.Abs(got.LaterSeconds-c.later) > 1e-6 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What else the machine did, and what came first, is said beside the difference.
func TestGaps(t *testing.T) {
	a, b := run("a", []float64{10, 11}), run("b", []float64{30, 31})
	quiet := func(s side, others float64) {
		s.joined.Samples[0].Facts.Quiet.WallSeconds, s.joined.Samples[0].Facts.Quiet.OtherCPUSeconds = 10, &others
	}
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for i, s := range []side{a, b} {
		s.joined.Samples[0].Facts.Started = start.Add(time.Duration(i) * time.Hour)
		s.joined.Samples[0].Facts.Finished = s.joined.Samples[0].Facts.Started.Add(time.Second)
	}
	says := func(want string) {
		t.Helper()
		if got := compare(a, b, Options{MarginPercent: 5}).Gaps; !slices.ContainsFunc(got, func(gap string) bool { return strings.Contains(gap, want) }) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	says("not observable on both sides")
	says("in the order A B, b on average 1h0m0s later")
	quiet(a, 1)
	quiet(b, 1.5)
	says("others used 0.10 CPUs beside a and 0.15 beside b: no limit was applied")
	quiet(b, 9)
	says("the sides did not have the same quiet: others used 0.10 CPUs beside a and 0.90 beside b")
}

// Nobody saw a run that was imported, so there is no verdict, however many samples.
func TestImportedRunBearsNoVerdict(t *testing.T) {
	levels := func(level float64) side {
		return repeated("", metrics.ClaimSamples, func(int) float64 { return level })
	}
	for who, c := range map[string]struct{ a, b bool }{"a was imported": {a: true}, "b was imported": {b: true}, "a and b were imported": {true, true}} {
		a, b := levels(10), levels(30)
		a.name, b.name = "a", "b"
		for s, imported := range map[*side]bool{&a: c.a, &b: c.b} {
			if imported {
				s.joined.Samples[0].Imported = &importrun.Import{Origin: "July"}
			}
		}
		got := compare(a, b, Options{MarginPercent: 5})
		if !got.Comparable || (got.A.Origin == "July") != c.a || (got.B.Origin == "July") != c.b {
			t.Errorf("%s: %+v", who, got)
		}
		for _, f := range got.Figures {
			if f.Verdict != CannotTell || f.Samples != nil || !strings.HasPrefix(f.Why, who+", and a run of unknown origin bears no verdict") {
				t.Errorf("%s: %s: %s, %q", who, f.Name, f.Verdict, f.Why)
			}
		}
		if last := got.Gaps[len(got.Gaps)-1]; !strings.HasPrefix(last, who+": nobody here saw the server") {
			t.Errorf("%s: %q", who, got.Gaps)
		}
		if name := got.B.Name(); strings.HasSuffix(name, `, engine not known, chat, buffered, imported ("July")`) != c.b {
			t.Error(name)
		}
	}
	if f := compare(levels(10), levels(30), Options{MarginPercent: 5}).Figures[0]; f.Verdict != Worse {
		t.Errorf("made here: %s, %s", f.Verdict, f.Why)
	}
}

// What is not known is null.
func TestMissingIsNull(t *testing.T) {
	data, err := json.Marshal(compare(run("a", []float64{1}), run("b", []float64{2}), Options{MarginPercent: 5}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"order":null`, `"other_cpus":null`, `"cv":null`, `"low":null`, `"samples":null`, `"interval":null`, `"rejected":{"count":0,"of":0,"value":null`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in %s", want, data)
		}
	}
}
