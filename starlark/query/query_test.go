package query

import (
	"errors"
	"strings"
	"testing"

	"assay/starlark/diag"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

var (
	checkpoint = &schema.Rule{Name: "checkpoint"}
	bundle     = &schema.Rule{Name: "bundle", Attrs: []schema.Attr{
		{Name: "checkpoint", Kind: schema.Label},
		{Name: "context", Kind: schema.Int},
		{Name: "tasks", Kind: schema.StringList},
		{Name: "fast", Kind: schema.Bool},
		{Name: "env", Kind: schema.StringDict},
	}}
	join  = &schema.Rule{Name: "join", Attrs: []schema.Attr{{Name: "runs", Kind: schema.LabelList}}}
	rules = []*schema.Rule{checkpoint, bundle, join}
)

func label(t testing.TB, s string) graph.Label {
	t.Helper()
	l, err := graph.ParseLabel(s, "")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// world is
//
//	//m:w ← //m:a ← //:j
//	      ← //m:b ← //:j, //:k
//	//m:alone
func world(t testing.TB) *graph.Graph {
	g := graph.New()
	add := func(rule *schema.Rule, name string, attrs map[string]any, edges ...string) {
		target := &graph.Target{Label: label(t, name), Rule: rule, Attrs: attrs}
		for _, e := range edges {
			target.Edges = append(target.Edges, graph.Edge{Attr: "x", To: label(t, e)})
		}
		g.Add(target)
	}
	add(join, "//:j", map[string]any{"runs": []graph.Label{label(t, "//m:a"), label(t, "//m:b")}}, "//m:a", "//m:b")
	add(join, "//:k", nil, "//m:b")
	add(bundle, "//m:a", map[string]any{"context": int64(256), "fast": true, "checkpoint": label(t, "//m:w"), "tasks": []string{"chat"}}, "//m:w")
	add(bundle, "//m:b", map[string]any{"context": int64(512), "fast": false, "env": map[string]string{"A": "1"}}, "//m:w")
	add(checkpoint, "//m:w", nil)
	add(checkpoint, "//m:alone", nil)
	if problems := g.Finalize(); len(problems) > 0 {
		t.Fatal(problems)
	}
	return g
}

func TestQuery(t *testing.T) {
	for expr, want := range map[string]string{
		`//m:a`:                                "//m:a",
		`:a`:                                   "//m:a", // the query is asked in m
		`//m:all`:                              "//m:a //m:alone //m:b //m:w",
		`//...`:                                "//:j //:k //m:a //m:alone //m:b //m:w",
		`deps(//:k)`:                           "//:k //m:b //m:w",
		`deps(//m:all)`:                        "//m:a //m:alone //m:b //m:w",
		`rdeps(//..., //m:a)`:                  "//:j //m:a",
		`rdeps(//:k, //m:w)`:                   "//:k //m:b //m:w", // the universe includes what it needs
		`rdeps(//m:alone, //m:w)`:              "",
		`somepath(//:j, //m:w)`:                "//:j //m:a //m:w",
		`somepath(//:k, //m:all - //m:b)`:      "//:k //m:b //m:w",
		`(somepath(//m:b, //:k))`:              "",
		`kind(bundle, //...)`:                  "//m:a //m:b",
		`kind("bundle", deps(//:k))`:           "//m:b",
		`attr(context, 512, //...)`:            "//m:b",
		`attr(fast, True, //...)`:              "//m:a",
		`attr(tasks, chat, //...)`:             "//m:a",
		`attr(env, "A=1", //...)`:              "//m:b",
		`attr(checkpoint, //m:w, //...)`:       "//m:a",
		`attr(runs, '//m:b', //...)`:           "//:j",
		`//:j + //:k`:                          "//:j //:k",
		`//:j union //m:a`:                     "//:j //m:a",
		`deps(//:j) ^ deps(//:k)`:              "//m:b //m:w",
		`deps(//:j) intersect //m:w`:           "//m:w",
		`//m:all - //m:w`:                      "//m:a //m:alone //m:b",
		`//m:all except (//m:w + //m:a)`:       "//m:alone //m:b",
		`//m:all - //m:w + //m:w`:              "//m:a //m:alone //m:b //m:w", // from left to right
		"\n deps( //:k )\n  - kind(join,//:k)": "//m:b //m:w",
	} {
		q, err := Parse(expr, "m", rules)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		targets, err := q.Eval(world(t))
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		var got []string
		for _, target := range targets {
			got = append(got, target.Label.String())
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", expr, got, want)
		}
	}
}

func TestMistakesAreShown(t *testing.T) {
	for expr, want := range map[string]string{
		``:                          "column 1: the expression ends where it needs a pattern",
		`dep(//:j)`:                 "column 1: there is no function \"dep\"\n  | dep(//:j)\n  | ^\nhint: did you mean \"deps\"?",
		`deps //:j`:                 `hint: deps is a function: write deps(…)`,
		`deps(//:j`:                 `column 10: the expression ends where it needs ")"`,
		`deps(//:j))`:               `column 11: want an operator (+, ^ or -) or the end, got ")"`,
		`rdeps(//:j)`:               `column 11: want a comma and an expression: rdeps takes 2 arguments, got ")"`,
		`kind(bundel, //...)`:       `column 6: there is no rule "bundel"`,
		`attr(contex, 1, //...)`:    `hint: did you mean "context"?`,
		`attr(context, , //...)`:    `column 15: want a value, got ","`,
		`//:j //:k`:                 `column 6: want an operator (+, ^ or -) or the end, got "//:k"`,
		`//:j +`:                    `column 7: the expression ends`,
		`//:j-//:k`:                 `hint: put spaces around + and -`,
		`kind("bundle, //...)`:      `column 6: the quote is not closed`,
		`//é(`:                      `column 1: there is no function`,
		`//:j + é:`:                 "  |        ^",
		strings.Repeat("(", 1e5):    "nests deeper than 100",
		`m:a`:                       `write "//m:a"`,
		`deps(//:j) + [//:k]`:       "column 14: ",
		`somepath(//:j, //:k, //:)`: `column 20: want ")", got ","`,
	} {
		_, err := Parse(expr, "m", rules)
		var mistake *Error
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v\nwant %s", expr, err, want)
		}
	}
}

func TestPatternThatMatchesNothingIsAMistake(t *testing.T) {
	q, err := Parse(`deps(//m:aa)`, "", rules)
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Eval(world(t))
	var list diag.List
	if !errors.As(err, &list) || !strings.Contains(err.Error(), `did you mean "//m:a"?`) {
		t.Fatal(err)
	}
}

func TestPatternsAreWhatMustBeLoaded(t *testing.T) {
	q, err := Parse(`rdeps(//..., :w) - attr(checkpoint, //not:loaded, //x:all)`, "m", rules)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range q.Patterns() {
		got = append(got, p.String())
	}
	if s := strings.Join(got, " "); s != "//... //m:w //x:all" {
		t.Fatal(s)
	}
}

// Whatever the text, it is parsed or refused with a place in it, and what is
// parsed is answered.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`deps(//:j) + kind(bundle, //...)`, `attr(a, "b", :x) ^ (//a/...)`, `somepath('//a',b`, `--`, "\x00é"} {
		f.Add(s)
	}
	g := world(f)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text, "m", rules)
		var mistake *Error
		switch {
		case errors.As(err, &mistake):
			if mistake.Pos < 0 || mistake.Pos > len(text) || mistake.Error() == "" {
				t.Fatalf("position %d of %q", mistake.Pos, text)
			}
		case err != nil:
			t.Fatalf("%T: %v", err, err)
		default:
			_, _ = q.Eval(g)
		}
	})
}
