package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// familyNames are the folders of the families in the workspace, without the digits
// that end them: a family's name is also the beginning of its models' names.
func familyNames(t *testing.T) []string {
	t.Helper()
	stages, err := filepath.Glob("../../families/*/stages.star")
	if err != nil || len(stages) < 2 {
		t.Fatalf("%d families, %v", len(stages), err)
	}
	var names []string
	for _, s := range stages {
		names = append(names, strings.TrimRight(filepath.Base(filepath.Dir(s)), "0123456789"))
	}
	return names
}

// Shared code knows no family: what it must know of one comes from the family's
// data. (A test may use one, and a name of the GGUF format may hold one.)
func TestNoFamilyInSharedCode(t *testing.T) {
	formats := regexp.MustCompile(`^\s*"[a-z0-9-]+": +func\(\) \[\]any|"tokenizer\.ggml\.pre"`) // its values
	name := regexp.MustCompile(`(?i)` + strings.Join(familyNames(t), "|"))
	files := 0
	for _, dir := range []string{"rules", "engine", "cache", "cmd", "starlark"} {
		err := filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
			code := strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".py")
			if err != nil || d.IsDir() || !code || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			for i, line := range strings.Split(string(data), "\n") {
				if name.MatchString(line) && !formats.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(line), "//") {
					t.Errorf("%s:%d names a family: %s", path, i+1, strings.TrimSpace(line))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were looked at", files)
	}
}

// References are what the program beside them wrote from the prompts beside them.
func TestReferencesAreAsMade(t *testing.T) {
	sum := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", sha256.Sum256(data))
	}
	files, err := filepath.Glob("../../families/*/references.provenance.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Script     string `json:"script_sha256"`
			Prompts    string `json:"prompts_sha256"`
			References string `json:"references_sha256"`
		}
		if err := json.Unmarshal(data, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		dir := filepath.Dir(file)
		for what, pair := range map[string][2]string{
			"script_sha256":     {p.Script, sum("../../families/reference/make_references.py")},
			"prompts_sha256":    {p.Prompts, sum(filepath.Join(dir, "prompts.jsonl"))},
			"references_sha256": {p.References, sum(filepath.Join(dir, "references.jsonl"))},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s is %s, the file has %s", file, what, pair[0], pair[1])
			}
		}
	}
}
