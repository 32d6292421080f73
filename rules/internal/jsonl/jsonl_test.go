package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

type seen struct {
	lines []string
	errs  []error
}

// copier makes copies of lines.
type copier struct{}

func (copier) Reuse() {}
func (copier) Parse(line Line) (Line, error) {
	line.Bytes = bytes.Clone(line.Bytes)
	return line, nil
}

func lines(r io.Reader, maxLine int64) iter.Seq2[Line, error] {
	return Records(r, "f.jsonl", maxLine, func() Parser[Line] { return copier{} })
}

func read(r io.Reader, maxLine int64) (s seen) {
	for line, err := range lines(r, maxLine) {
		if err != nil {
			s.errs = append(s.errs, err)
			continue
		}
		s.lines = append(s.lines, string(line.Bytes))
	}
	return s
}

// A line scanner with a fixed buffer stops in silence at a long line.
func TestLongLinesAreReadWhole(t *testing.T) {
	long := strings.Repeat("A", 17<<20)
	got := read(strings.NewReader("one\n"+long+"\nthree\n"), 0)
	if len(got.errs) != 0 || len(got.lines) != 3 || got.lines[1] != long || got.lines[2] != "three" {
		t.Fatalf("%d lines, errors %v; want 3 lines and no error", len(got.lines), got.errs)
	}
}

// Long lines behind each other, each begun with what was read of the one before.
func TestManyLongLines(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var text strings.Builder
		var want []string
		for range 8 {
			line := strings.Repeat("x", 1+random.IntN(5*blockSize))
			want = append(want, line)
			text.WriteString(line + "\n")
		}
		if got := read(strings.NewReader(text.String()), 0); len(got.errs) != 0 || !slices.Equal(got.lines, want) {
			t.Fatalf("%d lines, errors %v; want %d", len(got.lines), got.errs, len(want))
		}
	}
}

// zeros yields n bytes without holding them.
type zeros struct{ n int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.n == 0 {
		return 0, io.EOF
	}
	n := min(len(p), z.n)
	for i := range p[:n] {
		p[i] = '0'
	}
	z.n -= n
	return n, nil
}

func TestTooLongLineIsNamedAndReadingGoesOn(t *testing.T) {
	const size = 300 << 20
	in := io.MultiReader(strings.NewReader("one\n{\"head\":"), &zeros{size - 8}, strings.NewReader("\nthree\n"))
	got := read(in, 0)
	if len(got.lines) != 2 || got.lines[0] != "one" || got.lines[1] != "three" || len(got.errs) != 1 {
		t.Fatalf("lines %d, errors %v; want 2 and one error", len(got.lines), got.errs)
	}
	var long *TooLongError
	if !errors.As(got.errs[0], &long) || long.Line != 2 || long.Size != size || long.Offset != 4 || !bytes.HasPrefix(long.Head, []byte(`{"head":0`)) {
		t.Fatalf("error %+v", got.errs[0])
	}
	if msg := long.Error(); !strings.Contains(msg, "f.jsonl:2") || !strings.Contains(msg, "314572800") {
		t.Errorf("the message names no file, line or size: %s", msg)
	}
}

func TestMaximumIsExact(t *testing.T) {
	for _, size := range []int{9, 10, 11, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20} {
		line := strings.Repeat("x", size)
		for _, tail := range []string{"\n", ""} {
			if got := read(strings.NewReader(line+tail), int64(size)); len(got.lines) != 1 || len(got.errs) != 0 || got.lines[0] != line {
				t.Errorf("%d bytes with a maximum of %d, end %q: %d lines, %v", size, size, tail, len(got.lines), got.errs)
			}
			if got := read(strings.NewReader(line+tail), int64(size-1)); len(got.lines) != 0 || len(got.errs) != 1 {
				t.Errorf("%d bytes with a maximum of %d, end %q: %d lines, %v", size, size-1, tail, len(got.lines), got.errs)
			}
		}
	}
}

func TestLinesKeepTheirPlace(t *testing.T) {
	in := "a\n\n  \r\nbb\r\nc"
	var got []Line
	for line, err := range lines(iotest.OneByteReader(strings.NewReader(in)), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	want := []Line{{1, 0, []byte("a")}, {4, 7, []byte("bb\r")}, {5, 11, []byte("c")}}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i].Number != want[i].Number || got[i].Offset != want[i].Offset || !bytes.Equal(got[i].Bytes, want[i].Bytes) {
			t.Errorf("line %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

func TestReadErrorIsNotTheEnd(t *testing.T) {
	broken := errors.New("disk gone")
	got := read(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 0)
	if len(got.lines) != 1 || len(got.errs) != 1 || !errors.Is(got.errs[0], broken) {
		t.Fatalf("got %v %v", got.lines, got.errs)
	}
}

func scan(in string) error {
	var s Scanner
	s.Reset([]byte(in))
	if err := s.Skip(); err != nil {
		return err
	}
	return s.End()
}

func TestScannerNamesTheFault(t *testing.T) {
	for _, c := range []struct {
		in, want string
		torn     bool
	}{
		{in: `{"a":1,"b":[true,null,"x"]}`},
		{in: ` [ ] `},
		{in: `{"a":1,"a":2}`, want: `the key "a" is there twice`},
		{in: `{"x":{"a":1,"\u0061":2}}`, want: `the key "a" is there twice`},
		{in: `{"a":NaN}`, want: "NaN is not a JSON number"},
		{in: `{"a":nan}`, want: "nan is not a JSON number"},
		{in: `[-Infinity]`, want: "-Infinity is not a JSON number"},
		{in: `[01]`, want: "starts with 0"},
		{in: `[1.]`, want: "instead of a digit after the point"},
		{in: `[1e]`, want: "instead of a digit in the exponent"},
		{in: `[1,]`, want: "']' after a comma"},
		{in: `{"a" 1}`, want: "instead of ':'"},
		{in: `{a:1}`, want: "'a' instead of a key"},
		{in: `["\x"]`, want: `unknown escape \x`},
		{in: `["\ud83d"]`, want: "half of a surrogate pair"},
		{in: `["\u12g4"]`, want: "four hex digits"},
		{in: "[\"a\nb\"]", want: "control character 0x0a"},
		{in: "[\"\xff\"]", want: "byte 0xff is not UTF-8"},
		{in: `[1] 2`, want: "after the end of the value"},
		{in: strings.Repeat("[", 300), want: "nested deeper"},
		{in: `{"metadata":{"x_req`, want: "the input ends inside a string", torn: true},
		{in: `{"a":tr`, want: "the end of the input", torn: true},
		{in: `{"a":-`, want: "the end of the input", torn: true},
		{in: `{"a"`, want: "the end of the input", torn: true},
		{in: `["a\`, want: "the input ends inside a string", torn: true},
		{in: "[\"\xe4\xb8", want: "the input ends inside a character", torn: true},
		{in: ``, want: "the end of the input", torn: true},
	} {
		err := scan(c.in)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.in, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", clip([]byte(c.in)), err, c.want)
		}
		if torn := errors.Is(err, io.ErrUnexpectedEOF); torn != c.torn {
			t.Errorf("%s: torn is %v, want %v", clip([]byte(c.in)), torn, c.torn)
		}
	}
}

func TestNumbers(t *testing.T) {
	for in, want := range map[string]int64{"150": 150, "150.0": 150, "1.5e2": 150, "-0": 0, "1796073242390226176": 1796073242390226176, "1796073242390226176.000": 1796073242390226176} {
		var s Scanner
		s.Reset([]byte(in))
		if got, err := s.Int(); err != nil || got != want {
			t.Errorf("%s: got %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"1.5", "1e300", "9223372036854775808", `"1"`, "null"} {
		var s Scanner
		s.Reset([]byte(in))
		if got, err := s.Int(); err == nil {
			t.Errorf("%s was read as %d", in, got)
		}
	}
}

func TestManyKeysStayFast(t *testing.T) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range 200_000 {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	b.WriteString(`"last":0,"last":1}`)
	if err := scan(b.String()); err == nil || !strings.Contains(err.Error(), `"last"`) {
		t.Fatalf("got %v", err)
	}
}

// FuzzScanner holds the scanner against encoding/json, which accepts more:
// repeated keys and bad UTF-8.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"\u00e9\ud83d\ude00"],"b":null}`, `"\"`, `[[[`, "\"\xe4\"", `{"a":1,"a":1}`, `-0.0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := scan(string(b))
		if err == nil && !json.Valid(b) {
			t.Fatalf("accepted %q", b)
		}
		var s Scanner
		if s.Reset(b); s.Peek() != '"' {
			return
		}
		if got, err := s.Text(); err == nil {
			var want string
			if json.Unmarshal(b[:s.Offset()], &want) == nil && want != got {
				t.Fatalf("%q: got %q, want %q", b, got, want)
			}
		}
	})
}
