package sse

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// read reads a whole stream.
func read(t testing.TB, r io.Reader) (events []string, keepAlives int, err error) {
	t.Helper()
	reader := NewReader(r, 1<<16)
	for {
		e, err := reader.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return events, reader.KeepAlives, err
		}
		events = append(events, e.Type+"|"+string(e.Data))
	}
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         []string
		keepAlives   int
		err          error
	}{
		{name: "comment between events", stream: "data: 1\n\n: ping\n\ndata: 2\n\n", want: []string{"|1", "|2"}, keepAlives: 1},
		{name: "several data lines", stream: "data: a\ndata:\ndata: b\n\n", want: []string{"|a\n\nb"}},
		{name: "type, id and unknown fields", stream: "event: error\nid: 7\nretry: 5\nfoo: x\ndata: e\n\n", want: []string{"error|e"}},
		{name: "only one space goes", stream: "data:  x\n\n", want: []string{"| x"}},
		{name: "field without colon", stream: "data\n\n", want: []string{"|"}},
		{name: "byte order mark", stream: "\ufeffdata: x\n\n", want: []string{"|x"}},
		{name: "event without data is none", stream: "event: ping\n\ndata: x\n\n", want: []string{"|x"}},
		{name: "unterminated", stream: "data: 1\n\ndata: 2\n", want: []string{"|1"}, err: ErrTruncated},
		{name: "cut inside a character", stream: "data: 1\n\ndata: \xe4\xb8", want: []string{"|1"}, err: ErrTruncated},
		{name: "nothing", stream: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, keepAlives, err := read(t, strings.NewReader(c.stream))
			if diff := cmp.Diff(c.want, got); diff != "" || keepAlives != c.keepAlives || !errors.Is(err, c.err) {
				t.Errorf("keep-alives %d, error %v\n%s", keepAlives, err, diff)
			}
		})
	}
	if _, _, err := read(t, strings.NewReader("data: "+strings.Repeat("x", 1<<17)+"\n\n")); err == nil || !strings.Contains(err.Error(), "more than 65536 bytes") {
		t.Errorf("oversize: %v", err)
	}
}

// However the network splits a stream, the events are the same.
func TestSplitsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		stream := rapid.StringMatching(`(data: ?[a-z中😀]{0,5}(\n|\r\n|\r)|:x\n|event: e\n|\n|\r){0,30}`).Draw(rt, "stream")
		want, _, wantErr := read(t, strings.NewReader(stream))
		at := rapid.IntRange(0, len(stream)).Draw(rt, "at")
		got, _, err := read(t, io.MultiReader(strings.NewReader(stream[:at]), strings.NewReader(stream[at:])))
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, wantErr) {
			rt.Fatalf("split at %d: %v, %v\n%s", at, err, wantErr, diff)
		}
	})
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("data: x\r\n\r\n: c\n\nevent: e\ndata\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, _ = read(t, strings.NewReader(string(data)))
	})
}
