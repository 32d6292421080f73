package graph

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"assay/starlark/diag"
	"assay/starlark/schema"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var (
	checkpoint = &schema.Rule{Name: "checkpoint", Version: 1}
	bundle     = &schema.Rule{Name: "bundle", Version: 1, Attrs: []schema.Attr{
		{Name: "checkpoint", Kind: schema.Label, Rules: []string{"checkpoint"}},
	}}
	inventory = &schema.Rule{Name: "inventory", Version: 1, Attrs: []schema.Attr{
		{Name: "rows", Kind: schema.LabelList},
		{Name: "bundle", Kind: schema.Label, Rules: []string{"bundle"}},
	}}
)

// target declares label on the given line; edges are "attr=label".
func target(t testing.TB, rule *schema.Rule, line int, label string, edges ...string) *Target {
	t.Helper()
	tg := &Target{Label: mustLabel(t, label), Rule: rule}
	tg.Stack = []diag.Frame{{File: strings.TrimPrefix(tg.Label.Package+"/"+PackageFile, "/"), Line: line, Col: 1, Func: "<toplevel>"}}
	for _, e := range edges {
		attr, to, _ := strings.Cut(e, "=")
		tg.Edges = append(tg.Edges, Edge{attr, mustLabel(t, to)})
	}
	return tg
}

func mustLabel(t testing.TB, s string) Label {
	t.Helper()
	l, err := ParseLabel(s, "")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func render(t *testing.T, l diag.List) string {
	t.Helper()
	var out bytes.Buffer
	if err := diag.Render(&out, l, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestFinalizeReportsEverythingAtOnce(t *testing.T) {
	g := New()
	g.Add(target(t, checkpoint, 1, "//models:llama"))
	g.Add(target(t, bundle, 2, "//models:fp16", "checkpoint=//models:lama"))
	g.Add(target(t, bundle, 3, "//models:fp32", "checkpoint=//models:llama"))
	g.Add(target(t, inventory, 1, "//:all-rows", "rows=//:all-rows", "bundle=//models:llama"))
	g.Add(target(t, checkpoint, 9, "//models:llama"))
	g.Add(target(t, inventory, 2, "//:other", "rows=//model:fp16", "rows=//broken:x", "bundle=//:all-rows"))
	g.Add(target(t, inventory, 3, "//:third", "bundle=//:fourth"))
	g.Add(target(t, bundle, 4, "//:fourth", "checkpoint=//:third"))
	g.Add(target(t, inventory, 5, "//:fifth", "bundle=//:sixth"))
	g.Add(target(t, inventory, 6, "//:sixth", "bundle=//models:fp32"))
	g.MarkIncomplete("broken")
	want := `error: attribute "checkpoint" of bundle: //models:lama does not exist
  models/stages.star:2:1  in <toplevel>
hint: did you mean "//models:llama"?

error: //models:llama is declared twice
  models/stages.star:9:1  in <toplevel>
  models/stages.star:1:1  first declared here as checkpoint
hint: give one of them another name

error: //models:llama is a checkpoint target; attribute "bundle" of inventory takes a bundle
  stages.star:1:1  in <toplevel>
  models/stages.star:1:1  declared here as checkpoint

error: dependency cycle: //:all-rows -> //:all-rows
  stages.star:1:1  in <toplevel>
  stages.star:1:1  //:all-rows needs //:all-rows (attribute "rows")
hint: a target cannot depend on itself; drop one of these attributes

error: //:all-rows is an inventory target; attribute "bundle" of inventory takes a bundle
  stages.star:2:1  in <toplevel>
  stages.star:1:1  declared here as inventory

error: attribute "rows" of inventory: //model:fp16 does not exist, nor does model/stages.star
  stages.star:2:1  in <toplevel>
hint: did you mean "//models:fp16"?

error: //:third is an inventory target; attribute "checkpoint" of bundle takes a checkpoint
  stages.star:4:1  in <toplevel>
  stages.star:3:1  declared here as inventory

error: dependency cycle: //:fourth -> //:third -> //:fourth
  stages.star:4:1  in <toplevel>
  stages.star:4:1  //:fourth needs //:third (attribute "checkpoint")
  stages.star:3:1  //:third needs //:fourth (attribute "bundle")
hint: a target cannot depend on itself; drop one of these attributes

error: //:sixth is an inventory target; attribute "bundle" of inventory takes a bundle
  stages.star:5:1  in <toplevel>
  stages.star:6:1  declared here as inventory
hint: its bundle is //models:fp32
`
	if diff := cmp.Diff(want, render(t, g.Finalize())); diff != "" {
		t.Error(diff)
	}
	if len(g.Topological()) != 0 {
		t.Error("a graph with mistakes has an order")
	}
}

// TestFinalizeOnRandomGraphs builds graphs with random edges, dangling ones and
// cycles included, and compares the verdict with one reached by brute force.
func TestFinalizeOnRandomGraphs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 8).Draw(t, "targets")
		label := func(i int) Label { return Label{"p", fmt.Sprint("t", i)} }
		g := New()
		reach := make([][]bool, n)
		dangling := false
		for i := range n {
			reach[i] = make([]bool, n)
			tg := &Target{Label: label(i), Rule: inventory}
			for _, j := range rapid.SliceOfN(rapid.IntRange(0, n), 0, 3).Draw(t, "edges") {
				tg.Edges = append(tg.Edges, Edge{"rows", label(j)})
				if j == n {
					dangling = true
				} else {
					reach[i][j] = true
				}
			}
			g.Add(tg)
		}
		for k := range n {
			for i := range n {
				for j := range n {
					reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
				}
			}
		}
		cyclic := false
		for i := range n {
			cyclic = cyclic || reach[i][i]
		}

		problems := g.Finalize()
		if got, want := len(problems) > 0, dangling || cyclic; got != want {
			t.Fatalf("problems %v, want problems: %v", problems, want)
		}
		if got := strings.Contains(problems.Error(), "cycle"); got != cyclic {
			t.Fatalf("reported a cycle: %v, there is one: %v", got, cyclic)
		}
		if len(problems) > 0 {
			return
		}
		order := g.Topological()
		if len(order) != n {
			t.Fatalf("%d targets in order, want %d", len(order), n)
		}
		place := make(map[Label]int)
		for i, tg := range order {
			place[tg.Label] = i
		}
		for _, tg := range order {
			for _, e := range tg.Edges {
				if place[e.To] >= place[tg.Label] {
					t.Fatalf("%s comes before its dependency %s", tg.Label, e.To)
				}
			}
		}
	})
}

func TestOrderDoesNotDependOnInsertion(t *testing.T) {
	targets := []*Target{
		target(t, checkpoint, 1, "//b:c"),
		target(t, bundle, 1, "//a:b", "checkpoint=//b:c"),
		target(t, inventory, 1, "//a:i", "rows=//z:z", "rows=//a:b"),
		target(t, checkpoint, 1, "//z:z"),
	}
	want := "//b:c //a:b //z:z //a:i"
	for first := range targets {
		g := New()
		for i := range targets {
			g.Add(targets[(first+i)%len(targets)])
		}
		if problems := g.Finalize(); len(problems) > 0 {
			t.Fatal(problems)
		}
		var got []string
		for _, tg := range g.Topological() {
			got = append(got, tg.Label.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("starting with %d: got %s, want %s", first, got, want)
		}
	}
}

func TestMatch(t *testing.T) {
	g := New()
	for _, l := range []string{"//:root", "//a:a", "//a:x", "//a/b:x", "//ab:y"} {
		g.Add(target(t, checkpoint, 1, l))
	}
	g.AddPackage("empty")
	for _, tt := range []struct {
		patterns, want string
	}{
		{"//...", "//:root //a:a //a:x //a/b:x //ab:y"},
		{"//a/...", "//a:a //a:x //a/b:x"},
		{"//a:all", "//a:a //a:x"},
		{"//a", "//a:a"},
		{":x //a/b:x :x", "//a:x //a/b:x"},
		{"//:root //:all", "//:root"},
		{"//a:y", "error: //a:y does not exist\nhint: did you mean \"//ab:y\"?\n"},
		{"//b:x //nope:q", "error: //b:x does not exist, nor does b/stages.star\n\n" +
			"error: //nope:q does not exist, nor does nope/stages.star\n"},
		{"//empty:all //c/...", "error: //c/... matches no target\n\nerror: //empty:all matches no target\n"},
	} {
		t.Run(tt.patterns, func(t *testing.T) {
			var patterns []Pattern
			for f := range strings.FieldsSeq(tt.patterns) {
				p, err := ParsePattern(f, "a")
				if err != nil {
					t.Fatal(err)
				}
				patterns = append(patterns, p)
			}
			labels, err := g.Match(patterns)
			var got []string
			for _, l := range labels {
				got = append(got, l.String())
			}
			text := strings.Join(got, " ")
			if err != nil {
				text += render(t, err.(diag.List))
			}
			if diff := cmp.Diff(tt.want, text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAccessors(t *testing.T) {
	rule := &schema.Rule{Name: "everything", Version: 1, Attrs: []schema.Attr{
		{Name: "s", Kind: schema.String}, {Name: "i", Kind: schema.Int}, {Name: "f", Kind: schema.Float},
		{Name: "b", Kind: schema.Bool}, {Name: "ss", Kind: schema.StringList}, {Name: "d", Kind: schema.StringDict},
		{Name: "l", Kind: schema.Label}, {Name: "ls", Kind: schema.LabelList},
		{Name: "p", Kind: schema.File}, {Name: "ps", Kind: schema.FileList},
	}}
	l := Label{"a", "b"}
	full := &Target{Rule: rule, Attrs: map[string]any{
		"s": "x", "i": int64(1), "f": 2.5, "b": true, "ss": []string{"y"}, "d": map[string]string{"k": "v"},
		"l": l, "ls": []Label{l}, "p": "a/p", "ps": []string{"a/q"},
	}}
	all := func(t *Target) []any {
		label, isLabel := t.LabelOf("l")
		file, isFile := t.File("p")
		return []any{t.String("s"), t.Int("i"), t.Float("f"), t.Bool("b"), t.Strings("ss"), t.Dict("d"),
			label, isLabel, t.Labels("ls"), file, isFile, t.Files("ps")}
	}
	if diff := cmp.Diff([]any{"x", int64(1), 2.5, true, []string{"y"}, map[string]string{"k": "v"},
		l, true, []Label{l}, "a/p", true, []string{"a/q"}}, all(full)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]any{"", int64(0), 0.0, false, []string(nil), map[string]string(nil),
		Label{}, false, []Label(nil), "", false, []string(nil)}, all(&Target{Rule: rule})); diff != "" {
		t.Error(diff)
	}
	defer func() {
		if recover() == nil {
			t.Error("a misspelt attribute went unnoticed")
		}
	}()
	full.Int("s")
}
