package jsonl

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// blockSize in bytes: little enough to stay in a core's cache, enough to make the
// handing over cost nothing.
const blockSize = 256 << 10

// piece is a part of a file that holds whole lines.
type piece struct {
	text         []byte
	line, offset int64 // of its start
	err          error // of the line behind text, nil for none
}

// splitter cuts a file into pieces.
type splitter struct {
	r            io.Reader
	name         string
	max          int64
	line, offset int64  // of what comes next
	rest         []byte // the start of it
	ended        bool
}

// next reads a piece of a block's size. It returns false if there is no whole line
// in it: then long must read on.
func (s *splitter) next(p *piece) bool {
	p.line, p.offset, p.err = s.line, s.offset, nil
	p.text = append(p.text[:0], s.rest...)
	if len(p.text) >= blockSize {
		return false // a long line before may have read so much of this one
	}
	return s.fill(p, blockSize)
}

// fill reads until the piece has size bytes, and cuts it behind its last line.
func (s *splitter) fill(p *piece, size int) bool {
	had := len(p.text)
	p.text = slices.Grow(p.text, size-had)
	n, err := io.ReadFull(s.r, p.text[had:size])
	p.text = p.text[:had+n]
	whole := bytes.LastIndexByte(p.text[had:], '\n') + 1
	if whole > 0 {
		whole += had
	}
	switch err {
	case nil:
		if whole == 0 {
			return false
		}
	case io.EOF, io.ErrUnexpectedEOF:
		whole, s.ended = len(p.text), true // a last line may lack its newline
	default:
		s.broken(p, whole, err)
	}
	s.rest = append(s.rest[:0], p.text[whole:]...)
	p.text = p.text[:whole]
	s.line += int64(bytes.Count(p.text, newline))
	s.offset += int64(whole)
	return true
}

func (s *splitter) broken(p *piece, whole int, err error) {
	line := s.line + int64(bytes.Count(p.text[:whole], newline))
	p.err = fmt.Errorf("%s:%d: after byte %d: %w", s.name, line, s.offset+int64(len(p.text)), err)
	s.ended = true
}

// long reads on to the end of a line that is larger than a block, and skips it if
// it is larger than the maximum.
func (s *splitter) long(p *piece) {
	for int64(len(p.text)) <= s.max {
		if s.fill(p, 2*len(p.text)) {
			return
		}
	}
	long := &TooLongError{File: s.name, Line: s.line, Offset: s.offset, Size: int64(len(p.text)), Max: s.max, Head: head(p.text)}
	for buf, end := p.text[:blockSize], -1; end < 0; {
		n, err := s.r.Read(buf)
		if end = bytes.IndexByte(buf[:n], '\n'); end >= 0 {
			long.Size += int64(end)
			s.rest = append(s.rest[:0], buf[end+1:n]...)
			break
		}
		long.Size += int64(n)
		if err == io.EOF {
			s.ended = true
			break
		}
		if err != nil {
			p.text = p.text[:0]
			p.err, s.ended = fmt.Errorf("%s:%d: after byte %d: %w", s.name, s.line, s.offset+long.Size, err), true
			return
		}
	}
	p.text, p.err = p.text[:0], long
	s.line++
	s.offset += long.Size + 1
}
