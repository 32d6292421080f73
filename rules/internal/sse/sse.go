// Package sse reads server-sent events as the WHATWG specification has them:
// lines end in LF, CRLF or CR; one space after the colon is dropped; several data
// lines are joined by LF; comments are counted as keep-alives; an event that the
// stream ends in the middle of is discarded, and said to be.
//
// https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Event is one event. Data is what its data lines hold, in bytes as received:
// the caller decides whether they are valid text. It is valid until the next call.
type Event struct {
	Type string // of the event field; "" for the default, "message"
	ID   string // of the id field of this event
	Data []byte
}

// ErrTruncated says that the stream ended in the middle of an event.
var ErrTruncated = errors.New("the stream ended in the middle of an event")

// DefaultMaxEvent is the largest event in bytes unless the caller says otherwise:
// echoed media can take tens of MiB.
const DefaultMaxEvent = 64 << 20

// bufferSize holds some dozens of usual events, which often come together.
const bufferSize = 16 << 10

// Reader reads events from a stream. Bytes are buffered until an event is
// complete, so it does not matter how the network splits it.
type Reader struct {
	r     *bufio.Reader
	max   int
	begun bool
	// afterCR: an LF that comes next belongs to the line end before it. Waiting
	// for it there would hold up the event.
	afterCR bool
	long    []byte // a line that is not in r's buffer as a whole
	data    []byte // of the event
	// KeepAlives counts the comment lines so far.
	KeepAlives int
}

// NewReader returns a Reader; maxEvent 0 means DefaultMaxEvent.
func NewReader(r io.Reader, maxEvent int) *Reader {
	if maxEvent == 0 {
		maxEvent = DefaultMaxEvent
	}
	return &Reader{r: bufio.NewReaderSize(r, bufferSize), max: maxEvent}
}

// Next returns the next event. At the end of the stream the error is io.EOF, or
// ErrTruncated if an event was begun.
func (r *Reader) Next() (Event, error) {
	var e Event
	r.data = r.data[:0]
	some, lines, size := false, 0, 0
	for {
		line, err := r.line()
		size += len(line)
		if size > r.max {
			return Event{}, fmt.Errorf("an event has more than %d bytes", r.max)
		}
		switch {
		case errors.Is(err, io.EOF) && (some || len(line) > 0):
			return Event{}, ErrTruncated
		case err != nil:
			return Event{}, err
		case len(line) == 0:
			if lines == 0 { // an event without data is none
				e, some, size = Event{}, false, 0
				continue
			}
			e.Data = r.data
			return e, nil
		case line[0] == ':':
			r.KeepAlives++
			continue
		}
		some = true
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			if lines++; lines > 1 {
				r.data = append(r.data, '\n')
			}
			r.data = append(r.data, value...)
		case "event":
			e.Type = string(value)
		case "id":
			e.ID = string(value)
		}
	}
}

// line returns the next line without its end, valid until the next call. At the end
// of the stream it returns what is left, with io.EOF.
func (r *Reader) line() ([]byte, error) {
	if !r.begun {
		r.begun = true
		if bom, err := r.r.Peek(3); err == nil && string(bom) == "\ufeff" {
			r.r.Discard(3)
		}
	}
	r.long = r.long[:0]
	for {
		if _, err := r.r.Peek(1); err != nil {
			return r.long, err
		}
		ready, _ := r.r.Peek(r.r.Buffered())
		if r.afterCR {
			r.afterCR = false
			if ready[0] == '\n' {
				r.r.Discard(1)
				continue
			}
		}
		end, whole := lineEnd(ready)
		line := ready[:end]
		if len(r.long) > 0 || !whole {
			r.long = append(r.long, line...)
			line = r.long
		}
		if !whole {
			r.r.Discard(end)
			if len(line) > r.max {
				return line, nil
			}
			continue
		}
		r.afterCR = ready[end] == '\r'
		r.r.Discard(end + 1) // which leaves the bytes where they are
		return line, nil
	}
}

// lineEnd returns where the first line of b ends, and whether that is in b.
func lineEnd(b []byte) (at int, whole bool) {
	if at = bytes.IndexByte(b, '\n'); at >= 0 {
		b, whole = b[:at], true
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr, true
	}
	return len(b), whole
}
