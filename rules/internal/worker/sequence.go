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
	call  *Generate // of the request in progress
}

type phase int

const (
	starting phase = iota // before hello
	loading               // before ready
	idle
	generating
	fatal
)

// Request notes that a request is about to be sent.
func (s *Sequence) Request(g *Generate) error {
	if s.phase != idle {
		return errors.New("the worker is not idle")
	}
	s.phase, s.call = generating, g
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
		if !s.call.Stream {
			return errors.New("delta frame for a buffered request")
		}
		return nil
	case *Done:
		if err := s.owns("done", r.ID); err != nil {
			return err
		}
		if (r.Text == nil) != s.call.Stream {
			return errors.New("done frame: text belongs to buffered requests and only to them")
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
	case id != s.call.ID:
		return fmt.Errorf("%s frame for %q while %q is in progress", kind, id, s.call.ID)
	}
	return nil
}

var errTorn = errors.New("the output ends inside a line")

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
