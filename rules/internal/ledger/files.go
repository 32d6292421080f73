package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"assay/rules/internal/jsonl"
	"assay/rules/internal/record"
)

// ReadServer yields the terminal records of a gateway's file. name stands for
// the file in errors, maxLine is in bytes, 0 for jsonl.DefaultMaxLine. A torn
// or too long line is a *jsonl.TornError or *jsonl.TooLongError, and reading
// goes on; any other error is the last thing that is yielded.
func ReadServer(r io.Reader, name string, maxLine int64) iter.Seq2[*record.Record, error] {
	return func(yield func(*record.Record, error) bool) {
		readLines(r, name, maxLine, yield, func(rec *record.Record) error {
			switch {
			case rec.Schema != record.Schema:
				return fmt.Errorf("schema %d; this build reads %d", rec.Schema, record.Schema)
			case rec.RequestID == "":
				return errors.New("no request_id")
			case !slices.Contains(outcomes, rec.Outcome):
				return fmt.Errorf("unknown outcome %q", rec.Outcome)
			}
			return nil
		})
	}
}

var outcomes = []record.Outcome{record.Completed, record.Rejected, record.Invalid, record.Failed, record.Cancelled}

// Read yields the entries of a ledger that a Writer has written; errors are those
// of ReadServer.
func Read(r io.Reader, name string) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		readLines(r, name, 0, yield, func(e *Entry) error {
			if !slices.Contains(Phases, e.Phase) || !slices.Contains(Classes, e.Class) {
				return fmt.Errorf("unknown phase %q or class %q", e.Phase, e.Class)
			}
			return nil
		})
	}
}

// readLines decodes each line strictly: the scanner refuses what encoding/json
// lets pass, repeated keys and bad UTF-8.
func readLines[T any](r io.Reader, name string, maxLine int64, yield func(*T, error) bool, check func(*T) error) {
	var s jsonl.Scanner
	for line, err := range jsonl.Lines(r, name, maxLine) {
		var v *T
		if err == nil {
			v = new(T)
			if err = decode(&s, line.Bytes, v); err == nil {
				err = check(v)
			}
			if err != nil {
				v, err = nil, line.Fault(name, err)
			}
		}
		passing := err == nil || errors.As(err, new(*jsonl.TornError)) || errors.As(err, new(*jsonl.TooLongError))
		if !yield(v, err) || !passing {
			return
		}
	}
}

func decode(s *jsonl.Scanner, line []byte, v any) error {
	if err := s.Reset(line); err != nil {
		return err
	}
	if err := s.Skip(); err != nil {
		return err
	}
	if err := s.End(); err != nil {
		return err
	}
	return json.Unmarshal(line, v)
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
