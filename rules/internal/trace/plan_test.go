package trace

import (
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// plain replays a trace as it is.
func plain(window int64) Options {
	return Options{Ties: Burst, Inversions: Refuse, Beyond: Refuse, TimeScale: 1, InputScale: 1, OutputScale: 1, Context: window}
}

// at makes rows of a block each, at seconds.
func at(seconds ...float64) (rows []Row) {
	for i, s := range seconds {
		rows = append(rows, Row{Line: int64(i + 1), At: time.Duration(s * 1e9), Input: 100, Output: 10, Blocks: []int64{int64(i)}})
	}
	return rows
}

func times(p *Plan) (seconds []float64) {
	for _, r := range p.Requests {
		seconds = append(seconds, r.At.Seconds())
	}
	return seconds
}

func lines(p *Plan) (lines []int64) {
	for _, r := range p.Requests {
		lines = append(lines, r.Line)
	}
	return lines
}

func mustPlan(t *testing.T, rows []Row, o Options) *Plan {
	t.Helper()
	p, err := New("t", rows, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTies(t *testing.T) {
	rows := at(1, 1, 1, 4, 4, 6)
	if got := times(mustPlan(t, rows, plain(1000))); !slices.Equal(got, []float64{0, 0, 0, 3, 3, 5}) {
		t.Errorf("burst: %v", got)
	}
	o := plain(1000)
	o.Ties = Spread
	p := mustPlan(t, rows, o)
	if got := times(p); !slices.Equal(got, []float64{0, 1, 2, 3, 4, 5}) || p.Facts.Tied != 5 {
		t.Errorf("spread: %v, %d tied", got, p.Facts.Tied)
	}
	// The last have as far to go as those before; a single time has nowhere to go.
	if got := times(mustPlan(t, at(0, 2, 2), o)); !slices.Equal(got, []float64{0, 2, 3}) {
		t.Errorf("at the end: %v", got)
	}
	if got := times(mustPlan(t, at(7, 7), o)); !slices.Equal(got, []float64{0, 0}) {
		t.Errorf("alone: %v", got)
	}
}

func TestInversions(t *testing.T) {
	rows := at(0, 5, 3, 3, 4)
	_, err := New("t", rows, plain(1000))
	if err == nil || !strings.HasPrefix(err.Error(), "t:3: 3s is before the 5s of line 2\nt:4: 3s is before the 5s of line 2\nt:5: 4s is before the 5s of line 2\n") {
		t.Errorf("%v", err)
	}
	o := plain(1000)
	o.Inversions = Sort
	p := mustPlan(t, rows, o)
	if !slices.Equal(lines(p), []int64{1, 3, 4, 5, 2}) || !slices.Equal(p.Facts.Inverted, []int64{3, 4, 5}) {
		t.Errorf("sorted: %v, inverted %v", lines(p), p.Facts.Inverted)
	}
}

func TestPart(t *testing.T) {
	o := plain(1000)
	o.From, o.To = 2*time.Second, 4*time.Second
	p := mustPlan(t, at(10, 11, 12, 13, 14, 15), o)
	if !slices.Equal(lines(p), []int64{3, 4}) || !slices.Equal(times(p), []float64{0, 1}) {
		t.Errorf("%v at %v", lines(p), times(p))
	}
	o = plain(1000)
	o.Rows, o.TimeScale = 3, 4
	if p = mustPlan(t, at(0, 1, 2, 3), o); !slices.Equal(times(p), []float64{0, .25, .5}) {
		t.Errorf("%v", times(p))
	}
	if s, r := p.Facts.Source, p.Facts.Replay; s.SpanS != 2 || s.Rate() != 1 || r.SpanS != .5 || r.Rate() != 4 {
		t.Errorf("source %+v, replay %+v", s, r)
	}
	o.From = time.Minute
	if _, err := New("t", at(0, 1), o); err == nil || !strings.Contains(err.Error(), "no row of 2 is in the part") {
		t.Errorf("%v", err)
	}
}

func TestBeyondContext(t *testing.T) {
	rows := at(0, 1, 2, 3)
	rows[0].Input, rows[2].Input = 120, 95 // 120 alone is too long, 95 + 10 too
	o := plain(100)
	_, err := New("t", rows[:3], o)
	for _, want := range []string{"t:1: 120 input and 10 output tokens do not fit the context of 100\n", "t:2: 100 input", "t:3: 95 input and 10"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	o.Beyond = Keep
	if _, err = New("t", rows[2:3], o); err == nil || !strings.Contains(err.Error(), "t:3: 95 input tokens fit the context of 100, and the 10 of the answer behind them do not: it would be cut") {
		t.Errorf("%v", err)
	}
	rows[2].Input = 90
	p := mustPlan(t, rows, o)
	if !slices.Equal(p.Facts.TooLong, []int64{1, 2, 4}) || !p.Requests[0].TooLong || p.Requests[2].TooLong {
		t.Errorf("%v, %+v", p.Facts.TooLong, p.Requests)
	}
	o.Beyond = Drop
	if p = mustPlan(t, rows, o); !slices.Equal(p.Facts.Dropped, []int64{1, 2, 4}) || !slices.Equal(lines(p), []int64{3}) || p.Requests[0].At != 0 {
		t.Errorf("%v, %+v", p.Facts.Dropped, p.Requests)
	}
	if _, err = New("t", rows[:1], o); err == nil || !strings.Contains(err.Error(), "no row fits") {
		t.Errorf("%v", err)
	}
}

func TestTemplateIsPartOfThePrompt(t *testing.T) {
	o := plain(1000)
	template := int64(30)
	o.Template = &template
	rows := at(0, 1)
	rows[1].Input = 12
	p := mustPlan(t, rows, o)
	if r := p.Requests[0]; r.Input != 100 || r.Text != 70 {
		t.Errorf("%+v", r)
	}
	if r := p.Requests[1]; r.Input != 31 || r.Text != 1 || p.Facts.Raised != 1 {
		t.Errorf("%+v, %d raised", r, p.Facts.Raised)
	}
}

// words has words enough that two streams of them differ.
func words() Words {
	var list []string
	for a := 'a'; a <= 'z'; a++ {
		for b := 'a'; b <= 'z'; b++ {
			list = append(list, string([]rune{a, b}))
		}
	}
	return Words{List: list, Seed: 7}
}

// Prompts have the planned number of words, and start alike as far as their blocks do.
func TestPromptsShareWhatTheTraceSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := plain(1 << 30)
		o.InputScale = rapid.SampledFrom([]float64{1, 1. / 8, 1. / 100, 1. / 512, 1. / 3}).Draw(t, "scale")
		o.MaxInput = rapid.Int64Range(0, 400).Draw(t, "limit")
		var list []Row
		for i := range rapid.IntRange(1, 8).Draw(t, "rows") {
			input := rapid.Int64Range(1, 4*BlockTokens).Draw(t, "input")
			ids := rapid.SliceOfN(rapid.Int64Range(0, 2), int((input+BlockTokens-1)/BlockTokens), -1).Draw(t, "ids")[:(input+BlockTokens-1)/BlockTokens]
			list = append(list, Row{Line: int64(i + 1), At: time.Duration(i), Input: input, Output: 1, Blocks: ids})
		}
		p, err := New("t", list, o)
		if err != nil {
			t.Fatal(err)
		}
		var texts [][]string
		for i, r := range p.Requests {
			text := strings.Fields(words().Text(r))
			want, _, _ := scale(list[i].Input, o.InputScale, o.MaxInput)
			if int64(len(text)) != want || r.Input != want {
				t.Fatalf("row %d: %d words, input %d, want %d", i, len(text), r.Input, want)
			}
			texts = append(texts, text)
		}
		shared := int64(0)
		for i := range texts {
			best := int64(0)
			for j := range texts[:i] {
				alike := 0
				for alike < min(len(list[i].Blocks), len(list[j].Blocks)) && list[i].Blocks[alike] == list[j].Blocks[alike] {
					alike++
				}
				end := int64(math.Floor(float64(alike)*BlockTokens*o.InputScale + .5))
				end = min(end, int64(len(texts[i])), int64(len(texts[j])))
				if !slices.Equal(texts[i][:end], texts[j][:end]) {
					t.Fatalf("rows %d and %d share %d blocks and differ in the first %d words", i, j, alike, end)
				}
				best = max(best, end)
			}
			shared += best
		}
		if p.Facts.Replay.ReusableTokens < shared {
			t.Fatalf("%d tokens are told to be reusable, at least %d are", p.Facts.Replay.ReusableTokens, shared)
		}
	})
}

func TestRowsWithoutBlocksShareNothing(t *testing.T) {
	w := words()
	a, b := w.Text(Request{Line: 1, Text: 20}), w.Text(Request{Line: 2, Text: 20})
	if a == b || a != w.Text(Request{Line: 1, Text: 20}) {
		t.Errorf("%q, %q", a, b)
	}
	// The same for ever: a replay that was stored can be made again.
	if got := (Words{List: w.List, Seed: 1}).Text(Request{Blocks: []Block{{0, 3}, {5, 2}}}); got != "ed bp be vf gh" {
		t.Errorf("%q", got)
	}
}

// The public extract: every number is that of the source.
func TestFirstMinuteOfMooncake(t *testing.T) {
	f, err := os.Open("../../../examples/trace/mooncake-conversation-first60s.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := Read(f, "t", Mooncake, Milliseconds)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check("t", Arrivals(rows), Milliseconds, true); err != nil {
		t.Error(err)
	}
	o := plain(512)
	o.InputScale, o.MaxOutput, o.TimeScale = 1./256, 4, .5
	p := mustPlan(t, rows, o)
	source := Load{Requests: 162, SpanS: 57, Stamps: 20, InputTokens: 2_209_273, OutputTokens: 58_039, MaxInput: 120_633, MaxOutput: 929, ReusableTokens: 103_936}
	replay := Load{Requests: 162, SpanS: 114, Stamps: 20, InputTokens: 8_627, OutputTokens: 640, MaxInput: 471, MaxOutput: 4, ReusableTokens: 406}
	if !reflect.DeepEqual(p.Facts.Source, source) || !reflect.DeepEqual(p.Facts.Replay, replay) || p.Facts.CappedOutputs != 158 || p.Facts.BlockTokens != 2 {
		t.Errorf("%+v", p.Facts)
	}
}

// Scaling makes no longer prompts than a trace may have: also those that are sent to
// be refused have to be written.
func TestScaledBeyondReason(t *testing.T) {
	o := plain(1000)
	o.InputScale, o.Beyond = 1e6, Keep
	if _, err := New("t", at(0, 1), o); err == nil || !strings.HasPrefix(err.Error(), "t:1: 100000000 input tokens, scaled, are more than the maximum of 16777216\nt:2: ") {
		t.Errorf("%v", err)
	}
}
