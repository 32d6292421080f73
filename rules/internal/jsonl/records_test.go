package jsonl

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// numbered is what a parser makes of a line that holds its own number.
type numbered struct{ line, number, offset int64 }

type numberParser struct{ s Scanner }

func (*numberParser) Reuse() {}

func (p *numberParser) Parse(line Line) (numbered, error) {
	p.s.Reset(line.Bytes)
	n := numbered{line: line.Number, offset: line.Offset}
	err := p.s.Object(nil, func(key []byte) (err error) {
		if string(key) == "n" {
			n.number, err = p.s.Int()
		}
		return err
	})
	if err == nil {
		err = p.s.End()
	}
	return n, err
}

func numbers(r io.Reader) func(func(numbered, error) bool) {
	return Records(r, "f.jsonl", 0, func() Parser[numbered] { return &numberParser{} })
}

// file has many blocks of lines of all lengths, some of them longer than a block.
func file(lines int) (text string, offsets []int64) {
	var b strings.Builder
	for i := 1; i <= lines; i++ {
		offsets = append(offsets, int64(b.Len()))
		pad := i * 7919 % 3000
		if i%997 == 0 {
			pad = 2*blockSize + i
		}
		fmt.Fprintf(&b, `{"n":%d,"pad":"%s"}`+"\n", i, strings.Repeat("x", pad))
	}
	return b.String(), offsets
}

// Whatever goroutine parses a block, records come in the order of the file and know
// their place.
func TestRecordsAreInOrder(t *testing.T) {
	text, offsets := file(3000)
	want := int64(1)
	for n, err := range numbers(strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if n.line != want || n.number != want || n.offset != offsets[want-1] {
			t.Fatalf("record %d: %+v, offset %d", want, n, offsets[want-1])
		}
		want++
	}
	if want != 3001 {
		t.Errorf("%d records", want-1)
	}
}

// Of several faults the first in the file is reported, at its place, with all that
// stands before it.
func TestFaultIsAtItsPlace(t *testing.T) {
	text, offsets := file(3000)
	for _, line := range []int{1, 2, 250, 998, 1500, 2999, 3000} {
		bad := []byte(text)
		for _, at := range []int{line, min(line+1, 3000), min(line+700, 3000)} {
			bad[offsets[at-1]+1] = '#'
		}
		seen := 0
		var err error
		for _, err = range numbers(strings.NewReader(string(bad))) {
			if err != nil {
				break
			}
			seen++
		}
		var c *CorruptError
		if !errors.As(err, &c) || c.Line != int64(line) || c.Column != 2 || c.Offset != offsets[line-1]+1 || seen != line-1 {
			t.Errorf("line %d: %d records, then %v", line, seen, err)
		}
	}
}

// The bubble of synctest does not end before all goroutines in it have.
func TestGoroutinesEndWithTheIteration(t *testing.T) {
	text, _ := file(3000)
	for _, stop := range []int{0, 1, 500, 2000} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			for range numbers(strings.NewReader(text)) {
				if n == stop {
					break
				}
				n++
			}
		})
	}
}

// A writer that was cut off and goes on in the same line costs what it had begun, and
// one that forgot a newline costs nothing. A record inside a record is no other.
func TestRecordsBehindOthersInALine(t *testing.T) {
	const whole = `{"n":1,"pad":"x"}`
	for _, c := range []struct {
		line string
		want string // a number for each record, t for torn, c for corrupt
	}{
		{whole + whole, "1 1"},
		{whole + whole + whole, "1 1 1"},
		{`{"n":2,"in":{"n":3}}`, "2"},
		{`{"n":2,"in":{"n":3}}` + whole, "2 1"},
		{whole + `{"n":2,"in":{"n":3}}`, "1 2"},
		{whole + `{"n":2,`, "c"},
		{`{"n":NaN}`, "c"},
		{`{"n":NaN}` + whole, "c 1"},
		{whole + "#", "c"},
	} {
		if got := outcomes(c.line + "\n" + whole + "\n"); got != c.want+" 1" {
			t.Errorf("%s: %s, want %s", c.line, got, c.want)
		}
	}
	// Wherever the writer was cut off.
	const cut = `{"n":20,"pad":"x{y","in":{"m":3},"list":[1,{"a":null}]}`
	for i := 1; i < len(cut); i++ {
		if got := outcomes(cut[:i] + whole + "\n" + whole + "\n"); got != "t 1 1" {
			t.Errorf("cut at %d, %s: %s", i, cut[:i], got)
		}
	}
}

func outcomes(text string) string {
	var s []string
	for n, err := range numbers(strings.NewReader(text)) {
		switch {
		case err == nil:
			s = append(s, fmt.Sprint(n.number))
		case errors.As(err, new(*TornError)):
			s = append(s, "t")
		default:
			s = append(s, "c")
		}
	}
	return strings.Join(s, " ")
}
