package ledger_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/ledger"
)

const pages = "../../../docs/findings"

// Each code has a page that begins as the table says, and is in the index.
func TestEveryCodeHasAPage(t *testing.T) {
	var index strings.Builder
	index.WriteString(indexHead)
	for _, k := range ledger.Kinds {
		name := string(k.Code) + ".md"
		page, err := os.ReadFile(filepath.Join(pages, name))
		if err != nil {
			t.Error(err)
			continue
		}
		head := fmt.Sprintf("# %s\n\n%s: %s.\n\n**Consequence**: %s.\n\n", k.Code, severities(k), k.Message, k.Consequence)
		if !strings.HasPrefix(string(page), head) {
			t.Errorf("%s does not begin with\n%s", name, head)
		}
		rest := string(page)
		for _, part := range []string{"## How it is decided", "## Why it matters", "## What to do", "## An example", "## What it is not"} {
			_, after, found := strings.Cut(rest, "\n"+part+"\n\n")
			if !found {
				t.Errorf("%s has no part %q, or not in this order", name, part)
			}
			rest = cmp.Or(after, rest)
		}
		if err := checkExample(k, string(page)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fmt.Fprintf(&index, "| [`%s`](%s) | %s | %s | %s |\n", k.Code, name, severities(k), k.Message, k.Consequence)
	}
	golden(t, filepath.Join(pages, "README.md"), []byte(index.String()))
	files, err := os.ReadDir(pages)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(ledger.Kinds)+1 {
		t.Errorf("%d files for %d codes and the index", len(files), len(ledger.Kinds))
	}
}

// checkExample reads the example back: it is a finding as the ledger writes it.
func checkExample(k ledger.Kind, page string) error {
	_, block, _ := strings.Cut(page, "\n```json\n")
	block, _, _ = strings.Cut(block, "```\n")
	var f ledger.Finding
	dec := json.NewDecoder(strings.NewReader(block))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return fmt.Errorf("the example: %w", err)
	}
	if f.Code != k.Code || f.Message != k.Message || f.Consequence != k.Consequence || !slices.Contains(k.Severities, f.Severity) || f.Count < len(f.Evidence) || len(f.Evidence) == 0 {
		return fmt.Errorf("the example is no finding of this code: %+v", f)
	}
	return nil
}

const indexHead = `# Findings

What the [ledger](../ledger.md) can find in a run. A *blocking* finding keeps a row from being qualified and from being compared. A *warning* must be known to
whoever reads the figures. *Info* is for the record. A finding has the worst severity of its evidence. The names in this table are those in
` + "`results.json`" + ` and in the report. This page is made from the table in the code; a test keeps the two alike.

| code | severity | what was seen | consequence |
|---|---|---|---|
`

func severities(k ledger.Kind) string {
	var s []string
	for _, severity := range k.Severities {
		s = append(s, string(severity))
	}
	return strings.Join(s, " or ")
}

// Each code is found in a story, that is in a run of the real AIPerf.
func TestEveryCodeHasAStory(t *testing.T) {
	without := []ledger.Code{ledger.HistoryAnswers, ledger.TurnOrder} // their tests alone show them
	scripts, err := filepath.Glob("../../../testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	var stories strings.Builder
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "findings ") || strings.HasPrefix(line, "stdout ") {
				stories.WriteString(line)
			}
		}
	}
	for _, k := range ledger.Kinds {
		if !slices.Contains(without, k.Code) && !regexp.MustCompile(`\b`+string(k.Code)+`\b`).MatchString(stories.String()) {
			t.Errorf("no story finds %s", k.Code)
		}
	}
}
