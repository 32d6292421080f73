package worker

import (
	"os"
	"strings"
	"testing"
)

// The examples of the documentation are frames.
func TestDocumentedFrames(t *testing.T) {
	page, err := os.ReadFile("../../../docs/worker-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, `{"frame":`) {
			continue
		}
		found++
		_, asReply := DecodeReply([]byte(line))
		_, asRequest := DecodeRequest([]byte(line))
		if asReply != nil && asRequest != nil {
			t.Errorf("%s%v\n%v", line, asReply, asRequest)
		}
	}
	if found != 9 {
		t.Errorf("%d examples, and there are 9 kinds of frames", found)
	}
}
