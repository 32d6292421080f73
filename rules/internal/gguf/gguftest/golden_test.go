package gguftest

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/tiny.gguf")

// The stories under testdata/script use the tiny model as a file.
func TestTinyIsTheFileOfTheStories(t *testing.T) {
	const path = "../../../../testdata/tiny.gguf"
	if *update {
		if err := os.WriteFile(path, Tiny(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, Tiny()) {
		t.Fatalf("%s is not Tiny(); write it with -update", path)
	}
}
