// Package jsonl reads JSON Lines without trust: lines of any length below a
// stated maximum, and values that are checked against RFC 8259 to the last
// byte.
//
// It exists because the usual readers fail in silence on the files that load
// generators leave behind: line scanners stop at a long line (an image in a
// prompt), encoding/json keeps the last of two equal keys, and a file that was
// cut by a crash looks like a corrupt one.
package jsonl

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"
)

// DefaultMaxLine is the longest line in bytes that is read unless the caller
// says otherwise.
const DefaultMaxLine = 256 << 20

// headBytes of a line that could not be read are kept for its reader: enough
// for the identity of the record, which writers put first.
const headBytes = 4 << 10

// Line is one line that is not blank. Bytes is without the newline and valid
// until the next line is asked for.
type Line struct {
	Number int64 // from 1
	Offset int64 // of its first byte in the file
	Bytes  []byte
}

// Lines yields the lines of r. name stands for the file in errors; maxLine is
// in bytes, 0 for DefaultMaxLine. A *TooLongError takes the place of its line
// and reading goes on; any other error is the last thing that is yielded.
func Lines(r io.Reader, name string, maxLine int64) iter.Seq2[Line, error] {
	if maxLine <= 0 {
		maxLine = DefaultMaxLine
	}
	return func(yield func(Line, error) bool) {
		l := lineReader{r: bufio.NewReaderSize(r, 256<<10), max: maxLine}
		for {
			b, size, err := l.next()
			line := Line{Number: l.number, Offset: l.offset, Bytes: b}
			if err != nil && err != io.EOF {
				yield(line, fmt.Errorf("%s:%d: after byte %d: %w", name, l.number, l.offset+size, err))
				return
			}
			ok := true
			switch {
			case size > maxLine:
				ok = yield(line, &TooLongError{File: name, Line: l.number, Offset: l.offset, Size: size, Max: maxLine, Head: bytes.Clone(b)})
			case len(bytes.TrimLeft(b, " \t\r\n")) > 0:
				ok = yield(line, nil)
			}
			if !ok || err == io.EOF {
				return
			}
			l.offset += size + 1
		}
	}
}

type lineReader struct {
	r      *bufio.Reader
	max    int64
	number int64
	offset int64
	long   []byte // a line that does not fit the reader's buffer
}

// next returns a line and its full size, both without the newline. Of a line
// above the maximum only the head is returned.
func (l *lineReader) next() (line []byte, size int64, err error) {
	l.number++
	part, err := l.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		line = bytes.TrimSuffix(part, []byte{'\n'})
		if size = int64(len(line)); size > l.max {
			line = line[:min(len(line), headBytes)]
		}
		return line, size, err
	}
	l.long = l.long[:0]
	for {
		size += int64(len(part))
		if size <= l.max+1 {
			l.long = append(l.long, part...)
		} else if len(l.long) < headBytes {
			l.long = append(l.long, part[:min(len(part), headBytes)]...)
		}
		if err != bufio.ErrBufferFull {
			break
		}
		part, err = l.r.ReadSlice('\n')
	}
	if bytes.HasSuffix(part, []byte{'\n'}) {
		size--
	}
	if size > l.max {
		return l.long[:min(len(l.long), headBytes)], size, err
	}
	return l.long[:size], size, err
}

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
	Err    error
}

func (e *CorruptError) Error() string {
	if e.Column == 0 {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Fault turns the error of a parser for line into a *TornError if the line
// just ends too early, else into a *CorruptError. A record never holds a raw
// newline, so a line that is a proper prefix of a record was cut off, wherever
// in the file it stands (a writer that starts again goes on below it).
func (l Line) Fault(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		head := bytes.Clone(l.Bytes[:min(len(l.Bytes), headBytes)])
		return &TornError{File: name, Line: l.Number, Offset: l.Offset, Size: int64(len(l.Bytes)), Head: head}
	}
	c := &CorruptError{File: name, Line: l.Number, Offset: l.Offset, Err: err}
	var s *SyntaxError
	if errors.As(err, &s) {
		c.Offset += int64(s.Offset)
		c.Column = int64(s.Offset) + 1
	}
	return c
}

// checkUTF8 says where b stops being UTF-8. A character that is cut off by the
// end of b is the end of the input, not an error in it.
func checkUTF8(b []byte) error {
	if utf8.Valid(b) {
		return nil
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			if !utf8.FullRune(b[i:]) {
				return &SyntaxError{Offset: len(b), Msg: "the input ends inside a character", err: io.ErrUnexpectedEOF}
			}
			return &SyntaxError{Offset: i, Msg: fmt.Sprintf("byte 0x%02x is not UTF-8", b[i])}
		}
		i += n
	}
	return nil
}
