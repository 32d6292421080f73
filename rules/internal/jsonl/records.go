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
	"bytes"
	"io"
	"iter"
	"runtime"
	"sync"
)

// DefaultMaxLine is the longest line in bytes that is read unless the caller
// says otherwise.
const DefaultMaxLine = 256 << 20

// Line is one line that is not blank, without its newline.
type Line struct {
	Number int64 // from 1
	Offset int64 // of its first byte in the file
	Bytes  []byte
}

// Parser turns lines into records. It is used by one goroutine at a time.
type Parser[T any] interface {
	// Parse reads one line, which does not last. Its error becomes a *TornError or
	// a *CorruptError.
	Parse(Line) (T, error)
	// Reuse says that nobody looks any more at what Parse has returned so far, so
	// that its memory can be used again.
	Reuse()
}

// Records yields what parsers make of the lines of r, in the order of the file. A
// record is valid until the next is asked for, unless its parser says otherwise.
// name stands for the file in errors; maxLine is in bytes, 0 for DefaultMaxLine.
// A *TornError, *TooLongError or *CorruptError takes the place of its record, and who
// wants to can read on; any other error is the last thing that is yielded. A record
// that stands behind another in one line, as behind a torn one, is read.
//
// The file is read in blocks of whole lines, which GOMAXPROCS goroutines parse,
// each block with a parser of its own. Their number is fixed, and a line larger
// than a block is handled while there is no other, so memory does not grow with
// the file. When the iteration has ended, so have the goroutines.
func Records[T any](r io.Reader, name string, maxLine int64, fresh func() Parser[T]) iter.Seq2[T, error] {
	if maxLine <= 0 {
		maxLine = DefaultMaxLine
	}
	return func(yield func(T, error) bool) {
		workers := runtime.GOMAXPROCS(0)
		p := newPipeline[T](workers + 2) // one more is being read, one yielded
		defer p.running.Wait()
		defer close(p.stop)
		p.running.Go(func() { p.read(&splitter{r: r, name: name, max: maxLine, line: 1}) })
		for range workers {
			p.running.Go(func() {
				for b := range p.todo {
					if b.parser == nil {
						b.parser = fresh()
					}
					b.parse(name, maxLine)
					b.parsed <- struct{}{}
				}
			})
		}
		for b := range p.inOrder {
			<-b.parsed
			for _, rec := range b.records {
				if !yield(rec.value, rec.err) || final(rec.err) {
					return
				}
			}
			p.free <- b
		}
	}
}

// pipeline passes blocks from the reader to the workers, and to the consumer in
// the order of the file. Each channel has room for all blocks, so that only the
// reader ever waits, for a free one.
type pipeline[T any] struct {
	free, todo, inOrder chan *block[T]
	stop                chan struct{}
	running             sync.WaitGroup
}

func newPipeline[T any](blocks int) *pipeline[T] {
	channel := func() chan *block[T] { return make(chan *block[T], blocks) }
	p := &pipeline[T]{free: channel(), todo: channel(), inOrder: channel(), stop: make(chan struct{})}
	for range blocks {
		p.free <- &block[T]{parsed: make(chan struct{}, 1)}
	}
	return p
}

func (p *pipeline[T]) read(s *splitter) {
	defer close(p.inOrder)
	defer close(p.todo)
	for !s.ended {
		b := p.take()
		if b == nil {
			return
		}
		if s.next(&b.piece) {
			p.send(b)
			continue
		}
		// A line larger than a block: let all others go first, then wait for it.
		all := []*block[T]{{parsed: b.parsed}} // what it needed is not kept
		for range cap(p.free) - 1 {
			all = append(all, p.take())
		}
		s.long(&b.piece)
		p.send(b)
		p.take()
		for _, b := range all {
			if b == nil {
				return
			}
			p.free <- b
		}
	}
}

func (p *pipeline[T]) send(b *block[T]) {
	p.todo <- b
	p.inOrder <- b
}

// take waits for a free block; nil if there is nobody who wants more.
func (p *pipeline[T]) take() *block[T] {
	select {
	case b := <-p.free:
		return b
	case <-p.stop:
		return nil
	}
}

// block is a piece of the file and what became of it.
type block[T any] struct {
	piece
	parser  Parser[T]
	records []result[T]
	parsed  chan struct{}
}

type result[T any] struct {
	value T
	err   error
}

func (b *block[T]) parse(name string, maxLine int64) {
	b.parser.Reuse()
	b.records = b.records[:0]
	line := Line{Number: b.line, Offset: b.offset}
	for text, more := b.text, len(b.text) > 0; more; line.Number++ {
		line.Bytes, text, _ = bytes.Cut(text, newline)
		var rec result[T]
		switch size := int64(len(line.Bytes)); {
		case size > maxLine:
			rec.err = &TooLongError{File: name, Line: line.Number, Offset: line.Offset, Size: size, Max: maxLine, Head: head(line.Bytes)}
			b.records = append(b.records, rec)
		case !blank(line.Bytes):
			b.parseLine(name, line)
		}
		line.Offset += int64(len(line.Bytes)) + 1
		more = len(text) > 0
	}
	if b.err != nil {
		b.records = append(b.records, result[T]{err: b.err})
	}
}

// parseLine reads the records of a line: one, unless there are seams.
func (b *block[T]) parseLine(name string, line Line) {
	value, err := b.parser.Parse(line)
	if err == nil {
		b.records = append(b.records, result[T]{value: value})
		return
	}
	for at, tries := seam(line.Bytes, len(line.Bytes)), 0; at > 0 && tries < mostSeams; at, tries = seam(line.Bytes, at), tries+1 {
		last := Line{Number: line.Number, Offset: line.Offset + int64(at), Bytes: line.Bytes[at:]}
		if value, err := b.parser.Parse(last); err == nil {
			line.Bytes = line.Bytes[:at]
			b.parseLine(name, line)
			b.records = append(b.records, result[T]{value: value})
			return
		}
	}
	b.records = append(b.records, result[T]{err: line.fault(name, err)})
}

var newline = []byte{'\n'}

func blank(line []byte) bool {
	return len(line) == 0 || line[0] <= ' ' && len(bytes.TrimLeft(line, " \t\r")) == 0
}
