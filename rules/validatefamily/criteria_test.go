package validatefamily

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A reference of four tokens: "one", ",", " a", " two" – and an end of text that
// was nearly not chosen.
var reference = Reference{
	Text: "one, a two", FinishReason: "stop",
	Tokens: []int64{1, 2, 3, 4, 0},
	Top: []Step{
		{LogProb: -0.1, End: 3, Rivals: []Rival{{Token: 9, LogProb: -0.2, Text: "uno"}, {Token: 10, LogProb: -0.3, Text: "on"}}},
		{LogProb: -0.1, End: 4, Rivals: []Rival{{Token: 0, LogProb: -0.15}, {Token: 8, LogProb: -5, Text: "."}}},
		{LogProb: -0.3, End: 6, Rivals: []Rival{{Token: 7, LogProb: -0.35, Text: " and"}}},
		{LogProb: -0.1, End: 10, Rivals: []Rival{{Token: 6, LogProb: -3, Text: " three"}}},
		{LogProb: -0.6, End: 10, Rivals: []Rival{{Token: 5, LogProb: -0.61, Text: "\n"}}},
	},
}

func TestJudge(t *testing.T) {
	g := Greedy{NearTie: 0.25}
	for _, c := range []struct {
		name, got     string
		equal, parted bool
		detail        string
	}{
		{name: "equal", got: "one, a two", equal: true},
		{name: "near tie at once", got: "uno y dos", parted: true, detail: `parts at token 1, where the reference took "one" over "uno" by a margin of 0.1000 only`},
		{name: "near tie hidden in a common letter", got: "one, and more", parted: true, detail: `parts at token 3, where the reference took " a" over " and"`},
		{name: "a rival inside the reference's own token", got: "on e", parted: true, detail: `took "one" over "on"`},
		{name: "ended at a near tie", got: "one", parted: true, detail: `parts at token 2, where the reference took "," over ""`},
		{name: "went on at a near tie", got: "one, a two\nmore", parted: true, detail: `parts at token 5`},
		{name: "another way where it was decided", got: "one, a three", detail: `parts at token 4, where the reference was decided: its closest rival, " three", is 2.9000 behind`},
		{name: "a rival that is not near", got: "one.", detail: "parts at token 2, where the reference was decided"},
		{name: "something else altogether", got: "!!!", detail: "parts at token 1, where the reference was decided"},
		{name: "nothing", got: "", detail: "parts at token 1"},
		{name: "went on where nothing was near", got: "one, a two!", detail: "parts at token 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			equal, parted, detail := g.judge(c.got, reference, map[int64]bool{0: true})
			if equal != c.equal || parted != c.parted || !strings.Contains(detail, c.detail) {
				t.Errorf("equal %v, parted %v, %q", equal, parted, detail)
			}
		})
	}
}

// Whatever comes, only the reference itself is equal, and a tolerance of nothing
// lets nothing part.
func TestJudgeNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := rapid.String().Draw(t, "got")
		ref := reference
		ref.Top = append([]Step(nil), ref.Top[:rapid.IntRange(0, 5).Draw(t, "steps")]...)
		for i := range ref.Top {
			ref.Top[i].End = rapid.IntRange(0, 20).Draw(t, "end")
		}
		equal, parted, _ := Greedy{NearTie: -1}.judge(got, ref, nil)
		if parted || equal != (got == ref.Text) {
			t.Fatalf("%q: equal %v, parted %v", got, equal, parted)
		}
	})
}

func TestShare(t *testing.T) {
	g := Greedy{MaxDivergentShare: 0.25}
	if c := g.share([]string{"a"}, 4); c.Outcome != Pass {
		t.Errorf("1 of 4: %+v", c)
	}
	if c := g.share([]string{"a", "b"}, 4); c.Outcome != Fail || !strings.Contains(c.Detail, "a, b") {
		t.Errorf("2 of 4: %+v", c)
	}
}

func FuzzReference(f *testing.F) {
	f.Add([]byte(`{"id":"x","task":"chat","prompt_tokens":{"count":1,"sha256":""},"tokens":[1],"text":"a","finish_reason":"stop","top":[{"logprob":-1,"end":-5,"rivals":[]}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		b := &rulebook{references: map[string]Reference{}, ends: map[int64]bool{}}
		if b.addReference(line) != nil {
			return
		}
		for _, r := range b.references {
			Greedy{NearTie: 1}.judge("anything at all", r, b.ends)
		}
	})
}
