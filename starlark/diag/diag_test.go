package diag

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func render(t *testing.T, l List, files map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	err := Render(&out, l, func(file string) ([]byte, error) {
		text, ok := files[file]
		if !ok {
			return nil, errors.New("no such file")
		}
		return []byte(text), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestRenderShowsEverythingAtOnce(t *testing.T) {
	files := map[string]string{
		"quick/stages.star": "# comment\nvalidate(name = \"valid\", bundle = \"//serving:llama\")\n",
		"lib/macro.star":    "def row():\n\tserve(x)\r\n",
	}
	got := render(t, List{
		{
			Message: `//serving:llama is a serve target; attribute "bundle" of validate takes a bundle`,
			Stack:   []Frame{{File: "quick/stages.star", Line: 2, Col: 9, Func: "<toplevel>"}},
			Notes:   []Note{{Frame{File: "serving/stages.star", Line: 3, Col: 6}, "declared here as serve"}},
			Hint:    "its bundle is //models:llama",
		},
		{
			Message: "two\nlines",
			Stack: []Frame{
				{File: "lib/macro.star", Line: 2, Col: 7, Func: "row"},
				{File: "gone.star", Line: 7, Col: 1, Func: "<toplevel>"},
			},
		},
		{Message: "no position"},
	}, files)
	want := `error: //serving:llama is a serve target; attribute "bundle" of validate takes a bundle
  quick/stages.star:2:9  in <toplevel>
  | validate(name = "valid", bundle = "//serving:llama")
  |         ^
  serving/stages.star:3:6  declared here as serve
hint: its bundle is //models:llama

error: two
  lines
  lib/macro.star:2:7  in row
  | 	serve(x)
  | 	     ^
  gone.star:7:1  in <toplevel>

error: no position
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCaretStandsUnderTheColumn(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		col        int
		want       string // the caret line after its margin
	}{
		{"first column", "x", 1, "^"},
		{"past the end", "x", 2, " ^"},
		{"far past the end", "x", 99, " ^"},
		{"tabs", "\t\tx", 3, "\t\t^"},
		{"ideographs", "f(\"模型\", y)", 8, "         ^"},
		{"combining mark", "e\u0301x", 3, " ^"},
		{"emoji", "😀(", 2, "  ^"},
		{"escape code", "\x1b[31mx", 6, "     ^"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := render(t, List{{Message: "m", Stack: []Frame{{File: "f", Line: 1, Col: tt.col}}}},
				map[string]string{"f": tt.line})
			lines := strings.Split(got, "\n")
			if caret := strings.TrimPrefix(lines[3], "  | "); caret != tt.want {
				t.Errorf("caret line %q, want %q", caret, tt.want)
			}
			if strings.Contains(got, "\x1b") {
				t.Error("a control character reached the terminal")
			}
		})
	}
}

func TestCollectorOrdersAndMerges(t *testing.T) {
	at := func(file string, line int) []Frame { return []Frame{{File: file, Line: line}} }
	var c Collector
	if err := c.Err(); err != nil {
		t.Fatalf("an empty collector is no error, got %v", err)
	}
	c.Add(
		Diagnostic{Message: "z", Stack: at("b", 1)},
		Diagnostic{Message: "y", Stack: at("a", 10)},
		Diagnostic{Message: "x", Stack: at("a", 9), Hint: "do"},
		Diagnostic{Message: "y", Stack: at("a", 10)},
		Diagnostic{Message: "no file"},
	)
	want := "no file\na:9: x (do)\na:10: y\nb:1: z"
	if got := c.Err().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var l List
	if !errors.As(c.Err(), &l) || len(l) != 4 {
		t.Errorf("Err is not a List of 4: %v", c.Err())
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"bundle", "checkpoint", "context", "replicas", "serve", "server"}
	for name, want := range map[string]string{
		"bundel":    "bundle",
		"replcas":   "replicas",
		"checkpont": "checkpoint",
		"servr":     "serve",
		"sevrer":    "server",
		"quantum":   "",
		"x":         "",
		"":          "",
		"bundle":    "",
	} {
		if got := Suggest(name, known); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestDistanceIsSymmetricAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[abc]{0,8}`)
		a, b := []rune(word.Draw(t, "a")), []rune(word.Draw(t, "b"))
		limit := rapid.IntRange(0, 9).Draw(t, "limit")
		full := distance(a, b, 99)
		if back := distance(b, a, 99); back != full {
			t.Fatalf("%d there, %d back", full, back)
		}
		if got, want := distance(a, b, limit), min(full, limit+1); got != want {
			t.Fatalf("limit %d: got %d, want %d", limit, got, want)
		}
	})
}
