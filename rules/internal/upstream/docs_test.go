package upstream

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page has every adapter, with what it is verified against.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/adapters.md")
	if err != nil {
		t.Fatal(err)
	}
	header, verified := "| |", "| verified against |"
	for _, a := range Adapters {
		header += " `" + a.Name + "` |"
		if a.Verified == "" {
			verified += " nothing: **unverified** |"
		} else {
			verified += " " + a.Verified + " |"
		}
	}
	for _, row := range []string{header, verified} {
		if !strings.Contains(string(page), "\n"+row+"\n") {
			t.Errorf("docs/adapters.md lacks the row\n%s", row)
		}
	}
}

// The version that an adapter is said to be verified against is the one that the
// tests run.
func TestVerifiedVersion(t *testing.T) {
	lock, err := os.ReadFile("../../../examples/env/llama.lock")
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`(?m)^xllamacpp==(\S+)`).FindStringSubmatch(string(lock))
	if pinned == nil {
		t.Fatal("the lock pins no xllamacpp")
	}
	for _, a := range Adapters {
		if strings.Contains(a.Verified, "xllamacpp") && !strings.HasSuffix(a.Verified, "xllamacpp "+pinned[1]) {
			t.Errorf("%s is said to be verified against %s, and the lock has %s", a.Name, a.Verified, pinned[1])
		}
	}
}
