package ledger

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"

	"assay/rules/internal/jsonl"
)

// Read yields the entries of a ledger that a Writer has written; errors are those
// of ReadServer.
func Read(r io.Reader, name string) iter.Seq2[*Entry, error] {
	return jsonl.Records(r, name, 0, func() jsonl.Parser[*Entry] { return &entryParser{} })
}

// entryParser is strict: the scanner refuses what encoding/json lets pass, repeated
// keys and bad UTF-8. Its entries are the reader's to keep.
type entryParser struct{ s jsonl.Scanner }

func (*entryParser) Reuse() {}

func (p *entryParser) Parse(line jsonl.Line) (*Entry, error) {
	p.s.Reset(line.Bytes)
	if err := p.s.Skip(); err != nil {
		return nil, err
	}
	if err := p.s.End(); err != nil {
		return nil, err
	}
	e := &Entry{}
	if err := json.Unmarshal(line.Bytes, e); err != nil {
		return nil, err
	}
	if !slices.Contains(Phases, e.Phase) || !slices.Contains(Classes, e.Class) {
		return nil, fmt.Errorf("unknown phase %q or class %q", e.Phase, e.Class)
	}
	return e, nil
}

// Writer writes a ledger, one line for each entry. Equal entries give equal
// bytes.
type Writer struct {
	buf *bufio.Writer
	enc *json.Encoder
}

// NewWriter writes to w, through a buffer: see Flush.
func NewWriter(w io.Writer) *Writer {
	buf := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return &Writer{buf, enc}
}

// Write appends an entry.
func (w *Writer) Write(e *Entry) error { return w.enc.Encode(e) }

// Flush writes what is in the buffer; it comes after the last Write.
func (w *Writer) Flush() error { return w.buf.Flush() }
