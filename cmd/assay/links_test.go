package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// What a page links to in this repository is there: the file, and the heading.
func TestLinksResolve(t *testing.T) {
	links := 0
	walk(t, ".md", func(name string, data []byte) {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(data), ""), -1) {
			if strings.Contains(match[1], ":") { // a URL
				continue
			}
			links++
			file, anchor, _ := strings.Cut(match[1], "#")
			target := filepath.Join(root, name)
			if file != "" {
				target = filepath.Join(root, filepath.Dir(name), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", name, match[1], err)
				continue
			}
			if anchor != "" && !hasHeading(t, target, anchor) {
				t.Errorf("%s links to %s, and there is no such heading", name, match[1])
			}
		}
	})
	if links < 10 {
		t.Fatalf("saw %d links only", links)
	}
}

// hasHeading reports whether a heading of the page has this anchor: its text in
// lower case with hyphens for spaces, without punctuation.
func hasHeading(t *testing.T, page, anchor string) bool {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	punctuation := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(data), ""), -1) {
		if strings.ReplaceAll(punctuation.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}
