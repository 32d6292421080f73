package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// headBytes of a line that could not be read are kept for its reader: enough
// for the identity of the record, which writers put first.
const headBytes = 4 << 10

func head(line []byte) []byte { return bytes.Clone(line[:min(len(line), headBytes)]) }

// TooLongError says that a line was skipped because of its size.
type TooLongError struct {
	File      string
	Line      int64  // from 1
	Offset    int64  // of the line's first byte
	Size, Max int64  // bytes
	Head      []byte // the first bytes of it
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("%s:%d: the line has %d bytes, more than the maximum of %d; it was skipped (raise the maximum to read it)", e.File, e.Line, e.Size, e.Max)
}

// TornError says that a line ends before its record does, as a crash of the
// writer leaves it.
type TornError struct {
	File   string
	Line   int64 // from 1
	Offset int64 // of the line's first byte
	Size   int64 // bytes that are there
	Head   []byte
}

func (e *TornError) Error() string {
	return fmt.Sprintf("%s:%d: torn record of %d bytes at byte %d: its writer stopped before the end", e.File, e.Line, e.Size, e.Offset)
}

// CorruptError says that a line is no record, and not because it was cut off.
type CorruptError struct {
	File   string
	Line   int64 // from 1
	Offset int64 // of the fault in the file
	Column int64 // of the fault in the line, bytes from 1; 0 when it is the whole line
	Head   []byte
	Err    error
}

func (e *CorruptError) Error() string {
	if e.Column == 0 {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// fault turns the error of a parser for line into a *TornError if the line
// just ends too early, else into a *CorruptError. A record never holds a raw
// newline, so a line that is a proper prefix of a record was cut off, wherever
// in the file it stands (a writer that starts again goes on below it).
func (l Line) fault(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &TornError{File: name, Line: l.Number, Offset: l.Offset, Size: int64(len(l.Bytes)), Head: head(l.Bytes)}
	}
	c := &CorruptError{File: name, Line: l.Number, Offset: l.Offset, Head: head(l.Bytes), Err: err}
	var s *SyntaxError
	if errors.As(err, &s) {
		c.Offset += int64(s.Offset)
		c.Column = int64(s.Offset) + 1
	}
	return c
}

// final says that nothing can be read behind an error.
func final(err error) bool {
	return err != nil && !errors.As(err, new(*TornError)) && !errors.As(err, new(*TooLongError)) && !errors.As(err, new(*CorruptError))
}

// mostSeams bounds how many places are tried for the start of a record.
const mostSeams = 8

// seam is where the last record of a line may begin that stands behind another, as
// one does that is written behind a torn one: what the line begins with, its first
// key, comes again before end. It is 0 if there is none.
func seam(line []byte, end int) int {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 {
		return 0
	}
	start := bytes.LastIndex(line[:colon], []byte(`{"`))
	if start < 0 {
		return 0
	}
	return max(0, bytes.LastIndex(line[:end], line[start:colon+1]))
}
