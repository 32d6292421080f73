package record

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "../../../docs/records.md"

// The page lists what there is, in the order of the sources: every field and every
// word, and none that is gone.
func TestThePageListsFieldsAndWords(t *testing.T) {
	doc := readPage(t)
	words := constants(t)
	for _, c := range []struct {
		heading string
		want    []string
	}{
		{"The record", fields(reflect.TypeFor[Record]())},
		{"The error", fields(reflect.TypeFor[Error]())},
		{"The task", fields(reflect.TypeFor[Task]())},
		{"Outcomes", words["Outcome"]},
		{"Reasons", words["Reason"]},
		{"Scopes", words["Scope"]},
		{"Sources", words["Source"]},
	} {
		if len(c.want) < 2 {
			t.Errorf("%s: found only %q in the sources", c.heading, c.want)
		}
		if diff := cmp.Diff(c.want, rows(doc, c.heading)); diff != "" {
			t.Errorf("%s: sources (-) and page (+) differ\n%s", c.heading, diff)
		}
	}
}

// The example is a record, and a whole one: written again it is the same.
func TestTheExampleIsARecord(t *testing.T) {
	_, rest, _ := strings.Cut(readPage(t), "```json\n")
	example, _, ok := strings.Cut(rest, "\n```")
	if !ok {
		t.Fatal("there is no example")
	}
	decoder := json.NewDecoder(strings.NewReader(example))
	decoder.DisallowUnknownFields()
	var r Record
	if err := decoder.Decode(&r); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example, string(again)); diff != "" {
		t.Error(diff)
	}
}

func readPage(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// rows are the first cells of the table below a heading.
func rows(doc, heading string) (cells []string) {
	_, section, _ := strings.Cut(doc, "## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, match := range row.FindAllStringSubmatch(section, -1) {
		cells = append(cells, match[1])
	}
	return cells
}

// fields are the names of a type's fields in JSON.
func fields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

var untyped = regexp.MustCompile("^(Scope|Source)")

// constants are the values of the string constants by their type or, where they
// have none, by how their names begin.
func constants(t *testing.T) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		word, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		name := spec.Names[0].Name
		kind := untyped.FindString(name)
		if t, ok := spec.Type.(*ast.Ident); ok {
			kind = t.Name
		}
		if kind == "" {
			t.Errorf("%s is a word of no kind", name)
		}
		words[kind] = append(words[kind], word)
		return true
	})
	return words
}
