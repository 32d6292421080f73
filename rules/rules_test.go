package rules

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"assay/starlark/docgen"
)

var update = flag.Bool("update", false, "rewrite docs/rules.md")

func TestSchemasAreSound(t *testing.T) {
	for _, s := range Schemas() {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if s.Doc == "" {
			t.Errorf("%s has no documentation", s.Name)
		}
		for _, a := range s.Attrs {
			if a.Doc == "" {
				t.Errorf("%s: attribute %s has no documentation", s.Name, a.Name)
			}
		}
	}
}

func TestReferenceIsUpToDate(t *testing.T) {
	const path = "../docs/rules.md"
	var want bytes.Buffer
	if err := docgen.Markdown(&want, Schemas()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what the schemas say; run go test ./rules -update", path)
	}
}
