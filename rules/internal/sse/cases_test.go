package sse

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// Cases from public bug reports of other tools.

func TestO3SplitCharacter(t *testing.T) {
	const text = "中😀" // E4 B8 AD, F0 9F 98 80
	want := []string{"|{\"content\":\"" + text + "\"}"}
	for _, end := range []string{"\n", "\r\n", "\r"} {
		stream := "data: {\"content\":\"" + text + "\"}" + end + end
		splits := map[string]io.Reader{"byte by byte": iotest.OneByteReader(strings.NewReader(stream))}
		for at := range len(stream) + 1 {
			splits[fmt.Sprintf("at byte %d", at)] = io.MultiReader(strings.NewReader(stream[:at]), strings.NewReader(stream[at:]))
		}
		for name, r := range splits {
			if got, _, err := read(t, r); err != nil || !cmp.Equal(got, want) {
				t.Errorf("end %q, %s: %q, %v", end, name, got, err)
			}
		}
	}
}

func TestO4LegalForms(t *testing.T) {
	want := []string{`|{"text":"a"}`, `|{"text":"b"}`, `|{"text":"c"}`, "|[DONE]"}
	form := func(space, end, between string) string {
		var b strings.Builder
		for _, e := range want {
			b.WriteString("data:" + space + e[1:] + end + end + between)
		}
		return b.String()
	}
	streams := 0
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for _, space := range []string{"", " "} {
			stream := form(space, end, "")
			for name, r := range map[string]io.Reader{
				"whole": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
			} {
				streams++
				got, keepAlives, err := read(t, r)
				if err != nil || keepAlives != 0 || !cmp.Equal(got, want) {
					t.Errorf("end %q, space %q, %s: %q, %d keep-alives, %v", end, space, name, got, keepAlives, err)
				}
			}
		}
	}
	if streams != 12 {
		t.Errorf("%d streams", streams)
	}
	ping := strings.Replace(form(" ", "\n", ""), "\n\n", "\n\n: ping\n\n", 1)
	for name, stream := range map[string]struct {
		text       string
		keepAlives int
	}{
		"a ping between events":     {ping, 1},
		"a ping inside an event":    {strings.Replace(form(" ", "\n", ""), "data:", ": ping\ndata:", 1), 1},
		"pings after each":          {form("", "\r\n", ":\r\n\r\n"), 4},
		"an event over three lines": {"data: {\"text\":\ndata:\"a\"\ndata: }\n\n" + form(" ", "\n", "")[len("data: {\"text\":\"a\"}\n\n"):], 0},
	} {
		got, keepAlives, err := read(t, strings.NewReader(stream.text))
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], "\n", "")
		}
		if err != nil || keepAlives != stream.keepAlives || !cmp.Equal(got, want) {
			t.Errorf("%s: %q, %d keep-alives, %v", name, got, keepAlives, err)
		}
	}
}
