package metrics

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// Every field of a row, however deep, is in docs/metrics.md, and so is all that
// results.json defines; and the page's tables have no field that there is not.
func TestEveryFigureIsDefined(t *testing.T) {
	data, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	fields := map[string]bool{}
	collect(reflect.TypeFor[Row](), fields)
	for name := range fields {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
	}
	for name := range Definitions {
		if !fields[name] && name != "percentile" {
			t.Errorf("%s is defined, and no figure", name)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\|").FindAllStringSubmatch(page, -1) {
		for _, name := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(row[1], -1) {
			if !fields[name[1]] {
				t.Errorf("docs/metrics.md has a figure %s, a row has none", name[1])
			}
		}
	}
}

// collect gathers the names of all fields of a struct and of what it holds.
func collect(t reflect.Type, names map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		collect(t.Elem(), names)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				names[name] = true
			}
			collect(f.Type, names)
		}
	}
}
