package worker

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

var errTorn = errors.New("the output ends inside a line")

// lineReader reads lines, and goes on after a read that failed.
type lineReader struct {
	r     io.Reader
	limit int // bytes in a line, its newline included
	buf   []byte
	start int // of the line in buf
	seen  int // no newline before it
	end   int // of what was read
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: r, limit: limit, buf: make([]byte, 64<<10)}
}

// ready says that next has a line without reading.
func (l *lineReader) ready() bool {
	i := bytes.IndexByte(l.buf[l.seen:l.end], '\n')
	if i < 0 {
		l.seen = l.end
		return false
	}
	l.seen += i
	return true
}

// next returns the next line without its newline; it is valid until the next call.
// The errors are bufio.ErrTooLong, errTorn for a last line without its newline, and
// those of the reader.
func (l *lineReader) next() ([]byte, error) {
	for !l.ready() {
		if l.end-l.start >= l.limit {
			return nil, bufio.ErrTooLong
		}
		l.room()
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if n == 0 && err != nil {
			if err == io.EOF && l.end > l.start {
				return nil, errTorn
			}
			return nil, err
		}
	}
	line := l.buf[l.start:l.seen]
	l.seen++
	l.start = l.seen
	if len(line) >= l.limit {
		return nil, bufio.ErrTooLong
	}
	return line, nil
}

// room makes some in the buffer.
func (l *lineReader) room() {
	if l.end < len(l.buf) {
		return
	}
	to := l.buf
	if l.start == 0 {
		to = make([]byte, 2*len(l.buf))
	}
	l.end = copy(to, l.buf[l.start:l.end])
	l.seen -= l.start
	l.start, l.buf = 0, to
}
