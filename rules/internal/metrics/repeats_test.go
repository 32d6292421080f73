package metrics

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/ledger"
)

// Five runs 10..14: 12 ± 2.776·√(2.5/5), CV √2.5/12.
func TestRepeats(t *testing.T) {
	r := Repeat([]float64{10, 11, 12, 13, 14})
	if *r.Mean != 12 || math.Abs(*r.CV-math.Sqrt(2.5)/12) > 1e-12 || math.Abs(*r.Low-(12-1.9632)) > 1e-3 || math.Abs(*r.High-(12+1.9632)) > 1e-3 || r.Absent != "" {
		t.Errorf("%+v", r)
	}
	for n, want := range map[int]string{0: "0 samples, no claim (needs 5)", 1: "1 sample, no claim (needs 5)", 4: "4 samples, no claim (needs 5)"} {
		r := Repeat(slices.Repeat([]float64{7}, n))
		if r.N != n || r.Low != nil || r.High != nil || r.Absent != want || (r.Mean == nil) != (n == 0) || (r.CV == nil) != (n < 2) {
			t.Errorf("%d: %+v", n, r)
		}
	}
	if r := Repeat([]float64{-1, 1}); r.CV != nil {
		t.Errorf("a mean of 0 has no relative spread: %v", *r.CV)
	}
}

func entry(class ledger.Class, latencyMS, ttftMS, itlMS float64, tokens int64) *ledger.Entry {
	latency, ttft, itl := int64(latencyMS*1e6), int64(ttftMS*1e6), itlMS*1e6
	return &ledger.Entry{
		Phase: ledger.Measured, Class: class, Tokens: ledger.Tokens{Completion: &tokens},
		Client: &ledger.Client{LatencyNS: &latency, TTFTNS: &ttft, ITLNS: &itl},
	}
}

// The p90 of two samples is that of their values together. The mean of their p90s is
// another number, and no percentile of anything.
func TestPercentilesArePooled(t *testing.T) {
	var b Builder
	var samples [][]float64
	for _, base := range []float64{100, 1000} {
		var values []float64
		for i := range 100 {
			v := base + float64(i)
			values = append(values, v)
			b.Add(entry(ledger.Completed, v, 1, 1, 2))
		}
		samples = append(samples, values)
	}
	pooled := *Describe(slices.Concat(samples...)).P90.Value
	averaged := (*Describe(samples[0]).P90.Value + *Describe(samples[1]).P90.Value) / 2
	if got := *b.Row().LatencyMS.P90.Value; got != pooled || got == averaged {
		t.Errorf("p90 is %v; pooled %v, averaged %v", got, pooled, averaged)
	}
}

// One request of 2 tokens with a gap of 100 ms, one of 11 with gaps of 10 ms: 55 ms
// a request, but (100 + 10·10) / 11 ms a gap.
func TestBothMeansOfInterTokenLatency(t *testing.T) {
	var b Builder
	if b.Row().ITLTokenWeightedMS != nil {
		t.Error("no gaps have a mean")
	}
	add := func(e *ledger.Entry, incremental ledger.Incremental) {
		e.Client.Incremental = incremental
		b.Add(e)
	}
	add(entry(ledger.Completed, 1, 1, 100, 2), ledger.Verified)
	add(entry(ledger.Completed, 1, 1, 10, 11), ledger.Verified)
	single := entry(ledger.Completed, 1, 1, 0, 1)
	single.Client.ITLNS = nil
	add(single, ledger.Unverified)
	if r := b.Row(); *r.ITLMS.Mean != 55 || math.Abs(*r.ITLTokenWeightedMS-200./11) > 1e-9 {
		t.Errorf("per request %v, per gap %v", *r.ITLMS.Mean, *r.ITLTokenWeightedMS)
	}
	add(entry(ledger.Completed, 1, 1, 10, 11), ledger.Buffered)
	if r := b.Row(); r.ITLMS.Mean != nil || r.ITLTokenWeightedMS != nil {
		t.Errorf("one stream was held back, and there are %v and %v", r.ITLMS, r.ITLTokenWeightedMS)
	}
}

func TestGoodput(t *testing.T) {
	ms := func(v float64) *float64 { return &v }
	b := Builder{Limits: &Limits{LatencyMS: ms(1000), TTFTMS: ms(100), ITLMS: ms(20)}}
	for name, c := range map[string]struct {
		e    *ledger.Entry
		good bool
	}{
		"all within":     {entry(ledger.Completed, 1000, 100, 20, 5), true},
		"late":           {entry(ledger.Completed, 1000.1, 1, 1, 5), false},
		"late to start":  {entry(ledger.Completed, 1, 100.1, 1, 5), false},
		"slow to stream": {entry(ledger.Completed, 1, 1, 20.1, 5), false},
		"refused":        {entry(ledger.Rejected, 1, 1, 1, 5), false},
		"empty":          {entry(ledger.Empty, 1, 1, 1, 5), false},
		"cut":            {entry(ledger.PromptTruncated, 1, 1, 1, 5), false},
		"never sent":     {&ledger.Entry{Phase: ledger.Measured, Class: ledger.NotSent}, false},
		"no first token": {func() *ledger.Entry { e := entry(ledger.Completed, 1, 1, 1, 5); e.Client.TTFTNS = nil; return e }(), false},
		"a single token": {func() *ledger.Entry { e := entry(ledger.Completed, 1, 1, 1, 1); e.Client.ITLNS = nil; return e }(), true},
	} {
		if got := b.Limits.Good(c.e); got != c.good {
			t.Errorf("%s: good %v", name, got)
		}
		if c.e.Client != nil {
			c.e.Client.Incremental = ledger.Verified
		}
		b.Add(c.e)
	}
	warm := entry(ledger.Completed, 1, 1, 1, 5)
	warm.Phase = ledger.Warmup
	b.Add(warm)
	extra := entry(ledger.Completed, 1, 1, 1, 5)
	extra.Unplanned = true
	b.Add(extra)
	if g := b.Row().Goodput; g.Count != 2 || g.Of != 10 || g.PerS != nil || g.Absent != "" {
		t.Errorf("%+v, want 2 of the 10 offered", g)
	}
	b.Sample(ledger.Summary{Window: &ledger.Window{StartNS: 1e9, EndNS: 5e9}})
	if g := b.Row().Goodput; *g.PerS != 0.5 {
		t.Errorf("%v a second, want 2 in 4 s", *g.PerS)
	}
	if !(Limits{}).Good(entry(ledger.Completed, 1e9, 1e9, 1e9, 5)) {
		t.Error("without limits, to complete is to be good")
	}
}

// A limit on a time that is withheld cannot be shown to be kept; one on the whole
// latency can.
func TestGoodputOfHeldBackStreams(t *testing.T) {
	limit := 100.0
	held := entry(ledger.Completed, 1, 1, 1, 5)
	held.Client.Incremental = ledger.Buffered
	buffered := entry(ledger.Completed, 1, 0, 0, 5)
	buffered.Client.TTFTNS, buffered.Client.ITLNS = nil, nil
	refused := entry(ledger.Rejected, 1, 1, 1, 0)
	for name, c := range map[string]struct {
		e      *ledger.Entry
		limits Limits
		absent string
	}{
		"held back, latency":    {held, Limits{LatencyMS: &limit}, ""},
		"held back, TTFT":       {held, Limits{TTFTMS: &limit}, "time to first token that is limited is not known: 1 of 1 streams did not arrive"},
		"held back, ITL":        {held, Limits{ITLMS: &limit}, "inter-token latency that is limited is not known: 1 of 1"},
		"no stream at all":      {buffered, Limits{TTFTMS: &limit}, "time to first token that is limited is not known: no values"},
		"nothing has completed": {refused, Limits{TTFTMS: &limit}, ""},
	} {
		b := Builder{Limits: &c.limits}
		b.Add(c.e)
		g := b.Row().Goodput
		if (g.Absent == "") != (c.absent == "") || !strings.Contains(g.Absent, c.absent) || (g.Value == nil) != (c.absent != "") {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if (&Builder{}).Row().Goodput != nil {
		t.Error("no limits, and there is a goodput")
	}
}

// Five samples of two requests each: the values over samples are means of each, in
// order, and what all samples withhold has none.
func TestValuesOfSamples(t *testing.T) {
	var b Builder
	second := ledger.Summary{Window: &ledger.Window{EndNS: 1e9}}
	for i := range 5 {
		for _, latency := range []float64{9, 11} {
			e := entry(ledger.Completed, latency+float64(i), 1, 1, 5)
			e.Client.Incremental = ledger.Buffered
			e.Server = &ledger.Server{TaskCallNS: e.Client.LatencyNS, Scope: "x"}
			b.Add(e)
		}
		if i < 4 {
			b.Add(entry(ledger.Rejected, 1, 1, 1, 0))
		}
		b.Sample(second)
	}
	r := b.Row().Repeats
	for name, got := range map[string]LatencyRepeats{"latency": r.LatencyMS, "task call": r.TaskCallMS} {
		if got.Rejected.Count != 4 || got.Rejected.Of != 14 {
			t.Errorf("%s: %+v", name, got.Rejected)
		}
		if !slices.Equal(got.Values, []float64{10, 11, 12, 13, 14}) || *got.Mean != 12 || got.Low == nil || got.Absent != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := r.RequestsPerS; !slices.Equal(got.Values, []float64{2, 2, 2, 2, 2}) || *got.CV != 0 {
		t.Errorf("requests per second: %+v", got)
	}
	if got := r.TTFTMS; got.N != 0 || got.Mean != nil || !strings.Contains(got.Absent, "10 of 10 streams") {
		t.Errorf("time to first token: %+v", got)
	}
	b.Add(entry(ledger.Failed, 1, 1, 1, 0))
	b.Sample(second)
	if got := b.Row().Repeats; got.LatencyMS.Absent != "1 of 6 samples have no value" || got.LatencyMS.Low != nil || got.RequestsPerS.N != 6 {
		t.Errorf("a sample where nothing completed: %+v", got)
	}
}

// Where requests were refused, every latency says so.
func TestNoLatencyWithoutRefusals(t *testing.T) {
	var b Builder
	b.Add(entry(ledger.Completed, 1, 1, 1, 5))
	b.Add(entry(ledger.Rejected, 1, 1, 1, 0))
	row := reflect.ValueOf(b.Row())
	latencies := 0
	for i := range row.NumField() {
		if l, ok := row.Field(i).Interface().(Latency); ok {
			latencies++
			if l.Rejected.Count != 1 || l.Rejected.Of != 2 {
				t.Errorf("%s: %+v", row.Type().Field(i).Name, l.Rejected)
			}
		}
	}
	if latencies != 8 {
		t.Errorf("%d latencies", latencies)
	}
}

// Nothing measured is null everywhere, and no number.
func TestMissingIsNull(t *testing.T) {
	for _, v := range []any{Describe(nil), withheld("why"), Proportion(0, 0), Repeat(nil)} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"mean", "min", "max", "value", "low", "high", "ranks", "cv"} {
			if at := strings.Index(string(data), `"`+name+`":`); at >= 0 && !strings.HasPrefix(string(data[at+len(name)+3:]), "null") {
				t.Errorf("%s is not null in %s", name, data)
			}
		}
		if strings.Contains(string(data), "NaN") || strings.Contains(string(data), "Inf") {
			t.Errorf("%s", data)
		}
	}
	data, _ := json.Marshal(Describe(nil))
	if n := strings.Count(string(data), "null"); n != 3+4*4 {
		t.Errorf("%d nulls in %s", n, data)
	}
}
