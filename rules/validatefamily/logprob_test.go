package validatefamily

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/rules/internal/client"
	"assay/rules/internal/record"
)

// server is an answer that follows the reference and gives its alternatives other
// log-probabilities.
func server(r Reference, change func(float64) float64) []client.TokenLogProb {
	var list []client.TokenLogProb
	for k, s := range r.Top {
		id := r.Tokens[k]
		t := client.TokenLogProb{LogProb: client.LogProb{ID: &id, Value: change(s.LogProb)}}
		for _, rival := range s.Rivals {
			t.Top = append(t.Top, client.LogProb{ID: &rival.Token, Value: change(rival.LogProb)})
		}
		list = append(list, t)
	}
	return list
}

func TestDistance(t *testing.T) {
	l := LogProb{MaxRMSError: 0.1, MaxScaleError: 0.05}
	for _, c := range []struct {
		name   string
		change func(float64) float64
		want   string
	}{
		{"the same", func(p float64) float64 { return p }, ""},
		{"a little off", func(p float64) float64 { return p - 0.05 }, ""},
		{"off", func(p float64) float64 { return p - 0.2 }, "the error is 0.2000, allowed is 0.1000"},
		{"another temperature", func(p float64) float64 { return 1.06 * p }, "allowed is"},
		{"no numbers", func(float64) float64 { return math.NaN() }, "the error is NaN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pairs, steps := compare(server(reference, c.change), reference)
			if steps != len(reference.Tokens) {
				t.Errorf("%d steps", steps)
			}
			if got := l.judge(measure(pairs, steps)); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := l.judge(measure(nil, 0)); got != "there is nothing to compare" {
		t.Error(got)
	}
}

// A scale is found whatever the reference, and an error is never smaller than it is.
func TestDistanceFindsScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.Float64Range(0.5, 2).Draw(t, "scale")
		pairs, steps := compare(server(reference, func(p float64) float64 { return scale * p }), reference)
		d := measure(pairs, steps)
		if math.Abs(d.Slope-scale) > 1e-3 || d.RMS > d.Max+1e-4 {
			t.Fatalf("%+v for %v", d, scale)
		}
	})
}

// After the first token that differs nothing is compared, and an alternative that
// is not listed is at most as likely as the last that is.
func TestCompareStops(t *testing.T) {
	other := int64(99)
	got := server(reference, func(p float64) float64 { return p })
	got[1].ID = &other
	if _, steps := compare(got, reference); steps != 2 {
		t.Errorf("%d steps", steps)
	}
	got[0].Top = nil // only the chosen one, at -0.1; the reference lists two more, at -0.2 and -0.3
	pairs, _ := compare(got[:1], reference)
	if len(pairs) != 1 {
		t.Errorf("less likely ones count: %v", pairs)
	}
	got[0].Value = -4
	if pairs, _ = compare(got[:1], reference); len(pairs) != 3 {
		t.Errorf("likely ones that are missing do not count: %v", pairs)
	}
}

// A server that holds back a token that ends within a character tells nothing of
// it, and the tokens after it are compared all the same.
func TestCompareWithinCharacters(t *testing.T) {
	ref := Reference{
		Text: "a😀b", Tokens: []int64{1, 2, 3, 4},
		Top: []Step{{LogProb: -0.1, End: 1}, {LogProb: -0.2, End: 3}, {LogProb: -0.3, End: 5}, {LogProb: -0.4, End: 6}},
	}
	all := server(ref, func(p float64) float64 { return p })
	if pairs, steps := compare(all, ref); steps != 4 || measure(pairs, steps).Max != 0 {
		t.Errorf("all told: %d steps, %v", steps, pairs)
	}
	held := []client.TokenLogProb{all[0], all[2], all[3]}
	if pairs, steps := compare(held, ref); steps != 3 || measure(pairs, steps).Max != 0 {
		t.Errorf("one held back: %d steps, %v", steps, pairs)
	}
	other := int64(99)
	held[1].ID = &other
	if pairs, steps := compare(held, ref); steps != 1 || len(pairs) != 1 {
		t.Errorf("parted within the character: %d steps, %v", steps, pairs)
	}
}

func TestDiffers(t *testing.T) {
	n := int64(2)
	a := &client.Answer{Text: "ab", CompletionTokens: &n, FinishReason: "stop"}
	r := &record.Record{Task: &record.Task{TextSHA256: "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603", CompletionTokens: &n, FinishReason: "stop"}}
	if got := differs(r, a); got != "" {
		t.Error(got)
	}
	more := *a
	more.Text, more.CompletionTokens, more.FinishReason = "abc", nil, "length"
	for _, want := range []string{"text (SHA-256)", "completion tokens: 2 by the engine, no received", "finish reason: stop by the engine, length received"} {
		if got := differs(r, &more); !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if got := differs(nil, a); !strings.Contains(got, "no record") {
		t.Error(got)
	}
}

func TestOutOfMemory(t *testing.T) {
	m := watchMemory()
	for text, want := range map[string]bool{
		"worker: MemoryError: ": true, "ggml: failed to allocate buffer of size 4096": true, "cudaMalloc failed: out of memory": true,
		"std::bad_alloc": true, "parts at token 2": false, "status 500, engine_error: the model is broken": false,
	} {
		var oom *OutOfMemoryError
		if got := errors.As(m.check(errors.New(text)), &oom); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if m.check(nil) != nil {
		t.Error("nothing happened")
	}
	if err := (memory{kills: -1}).check(errors.New("the worker was killed")); !strings.Contains(err.Error(), "a limit of this machine") {
		t.Error(err)
	}
}

func TestDifference(t *testing.T) {
	want := "\n    expected \"one two\"\n    got      \"one three\"\n" + strings.Repeat(" ", 19) + "^"
	if got := difference("one two", "one three"); got != want {
		t.Errorf("%s\nwant%s", got, want)
	}
	long := strings.Repeat("é", 100)
	if got := difference(long+"x", long+"y"); !strings.Contains(got, `…"`+strings.Repeat("é", 40)+`x"`) {
		t.Error(got)
	}
	difference("\xc3\xa9", "\xc3\xa8") // differ within a character
	difference("", "a")
}
