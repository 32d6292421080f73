package worker

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// Whatever the reads, the lines are those of the text, and the end is its end.
func TestLineReader(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const limit = 20
		text := strings.Join(rapid.SliceOf(rapid.StringMatching(`[a-z]{0,25}\n?`)).Draw(rt, "text"), "")
		var r io.Reader = strings.NewReader(text)
		if rapid.Bool().Draw(rt, "by single bytes") {
			r = iotest.OneByteReader(r)
		}
		if rapid.Bool().Draw(rt, "with timeouts") {
			r = iotest.TimeoutReader(r)
		}
		lines := &lineReader{r: r, limit: limit, buf: make([]byte, rapid.IntRange(1, 8).Draw(rt, "buffer"))}
		next := func() ([]byte, error) {
			line, err := lines.next()
			if errors.Is(err, iotest.ErrTimeout) {
				line, err = lines.next() // it goes on where it was
			}
			return line, err
		}
		for rest := text; ; {
			want, after, whole := strings.Cut(rest, "\n")
			var end error
			switch {
			case len(want) >= limit:
				end = bufio.ErrTooLong
			case !whole && want == "":
				end = io.EOF
			case !whole:
				end = errTorn
			}
			line, err := next()
			if !errors.Is(err, end) || end == nil && string(line) != want {
				rt.Fatalf("%q: got %q (%v), want %q (%v)", text, line, err, want, end)
			}
			if end != nil {
				return
			}
			rest = after
		}
	})
}
