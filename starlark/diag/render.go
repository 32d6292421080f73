package diag

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Render prints every diagnostic of l with the source lines it points to,
// separated by blank lines. src returns the text of a file; when it fails (or
// is nil) the position stands alone. The error is the writer's.
func Render(w io.Writer, l List, src func(file string) ([]byte, error)) error {
	r := renderer{src: src, lines: map[string][]string{}}
	for i, d := range l {
		if i > 0 {
			r.out.WriteByte('\n')
		}
		r.diagnostic(d)
	}
	_, err := w.Write(r.out.Bytes())
	return err
}

type renderer struct {
	out   bytes.Buffer
	src   func(string) ([]byte, error)
	lines map[string][]string // files read so far
}

func (r *renderer) diagnostic(d Diagnostic) {
	fmt.Fprintf(&r.out, "error: %s\n", indent(d.Message))
	for _, f := range d.Stack {
		fmt.Fprintf(&r.out, "  %s", f)
		if f.Func != "" {
			fmt.Fprintf(&r.out, "  in %s", f.Func)
		}
		r.out.WriteByte('\n')
		r.excerpt(f)
	}
	for _, n := range d.Notes {
		fmt.Fprintf(&r.out, "  %s  %s\n", n.Frame, indent(n.Text))
	}
	if d.Hint != "" {
		fmt.Fprintf(&r.out, "hint: %s\n", indent(d.Hint))
	}
}

// excerpt prints the line of f and a caret under its column.
func (r *renderer) excerpt(f Frame) {
	lines := r.file(f.File)
	if f.Line < 1 || f.Line > len(lines) {
		return
	}
	line := strings.Map(printable, strings.TrimSuffix(lines[f.Line-1], "\r"))
	fmt.Fprintf(&r.out, "  | %s\n", line)
	if f.Col > 0 {
		fmt.Fprintf(&r.out, "  | %s^\n", padding(line, f.Col-1))
	}
}

func (r *renderer) file(name string) []string {
	lines, ok := r.lines[name]
	if !ok && r.src != nil {
		if text, err := r.src(name); err == nil {
			lines = strings.Split(string(text), "\n")
		}
		r.lines[name] = lines
	}
	return lines
}

// padding returns blanks as wide on a terminal as the first n code points of
// line. Tabs stay tabs, since only the terminal knows how far they reach.
func padding(line string, n int) string {
	var b strings.Builder
	for _, c := range line {
		if n == 0 {
			break
		}
		n--
		switch {
		case c == '\t':
			b.WriteByte('\t')
		case unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf):
			// Combining marks and format characters take no room.
		case unicode.Is(wide, c):
			b.WriteString("  ")
		default:
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// wide lists what a terminal draws two cells wide: the blocks with East Asian
// Width W or F of Unicode Standard Annex 11, rounded to whole blocks.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, // Hangul Jamo
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1}, // CJK radicals, punctuation
		{Lo: 0x3041, Hi: 0x4dbf, Stride: 1}, // kana, compatibility, extension A
		{Lo: 0x4e00, Hi: 0xa4cf, Stride: 1}, // unified ideographs, Yi
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, // Hangul syllables
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1}, // compatibility ideographs
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, // compatibility forms
		{Lo: 0xff01, Hi: 0xff60, Stride: 1}, // full-width forms
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, // pictographs, emoticons
		{Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1}, // transport
		{Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1}, // supplemental pictographs
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1}, // supplementary ideographs
	},
}

// printable keeps control characters of a source file away from the terminal.
func printable(c rune) rune {
	if unicode.IsControl(c) && c != '\t' {
		return unicode.ReplacementChar
	}
	return c
}

// indent keeps a text of several lines inside its block.
func indent(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }
