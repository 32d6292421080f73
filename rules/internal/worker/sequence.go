package worker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Sequence checks that the frames of one worker come in an allowed order. The
// zero value is a worker that has just been started.
type Sequence struct {
	phase phase
	// Of the request in progress: its id, and what may answer it.
	id               string
	stream, tokenize bool
}

type phase int

const (
	starting phase = iota // before hello
	loading               // before ready
	idle
	generating
	fatal
)

// Request notes that a request, a *Generate or a *Tokenize, is about to be sent.
func (s *Sequence) Request(r Request) error {
	if s.phase != idle {
		return errors.New("the worker is not idle")
	}
	switch r := r.(type) {
	case *Generate:
		s.id, s.stream, s.tokenize = r.ID, r.Stream, false
	case *Tokenize:
		s.id, s.stream, s.tokenize = r.ID, false, true
	default:
		return fmt.Errorf("%T is not a request that is answered", r)
	}
	s.phase = generating
	return nil
}

// Reply checks a reply against what came before it.
func (s *Sequence) Reply(r Reply) error {
	switch r := r.(type) {
	case *Hello:
		return s.step(starting, loading, "hello")
	case *Ready:
		return s.step(loading, idle, "ready")
	case *Fatal:
		if s.phase > loading {
			return errors.New("fatal frame after ready")
		}
		s.phase = fatal
		return nil
	case *Delta:
		if err := s.owns("delta", r.ID); err != nil {
			return err
		}
		if !s.stream {
			return errors.New("delta frame for a request that is not a stream")
		}
		return nil
	case *Done:
		if err := s.owns("done", r.ID); err != nil {
			return err
		}
		if s.tokenize {
			return errors.New("done frame for a tokenize request")
		}
		if (r.Text == nil) != s.stream {
			return errors.New("done frame: text belongs to buffered requests and only to them")
		}
		s.phase = idle
		return nil
	case *Tokens:
		if err := s.owns("tokens", r.ID); err != nil {
			return err
		}
		if !s.tokenize {
			return errors.New("tokens frame for a generate request")
		}
		s.phase = idle
		return nil
	case *Error:
		if err := s.owns("error", r.ID); err != nil {
			return err
		}
		s.phase = idle
		return nil
	}
	return fmt.Errorf("unexpected %T", r)
}

func (s *Sequence) step(from, to phase, kind string) error {
	if s.phase != from {
		return fmt.Errorf("%s frame out of order", kind)
	}
	s.phase = to
	return nil
}

func (s *Sequence) owns(kind, id string) error {
	switch {
	case s.phase != generating:
		return fmt.Errorf("%s frame for %q while no request is in progress", kind, id)
	case id != s.id:
		return fmt.Errorf("%s frame for %q while %q is in progress", kind, id, s.id)
	}
	return nil
}

// Lines returns a scanner over the lines of r. A line of more than limit bytes
// ends it with bufio.ErrTooLong; a last line without its newline is an error.
func Lines(r io.Reader, limit int) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), limit)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return 0, nil, errTorn
		}
		return 0, nil, nil
	})
	return s
}
