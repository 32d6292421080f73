package aiperf

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strings"

	"assay/rules/internal/jsonl"
)

// Gap is a request whose record could not be read because it was cut off or is
// too long: it was sent, and no more is known. Reading goes on after it.
type Gap struct {
	ID, Phase string // as far as the record's first bytes name them
	Err       error  // a *jsonl.TornError or *jsonl.TooLongError
}

func (g *Gap) Error() string { return g.Err.Error() }
func (g *Gap) Unwrap() error { return g.Err }

// ReadRaw yields the requests of a raw export (profile_export_raw.jsonl, or a
// file of raw_records, which is what a run without any success leaves) in the
// order of the file. name stands for the file in errors, maxLine is in bytes, 0
// for jsonl.DefaultMaxLine. A *Gap takes the place of a request; any other
// error is the last thing that is yielded.
func ReadRaw(r io.Reader, name string, maxLine int64) iter.Seq2[*Request, error] {
	return func(yield func(*Request, error) bool) {
		var p parser
		for line, err := range jsonl.Lines(r, name, maxLine) {
			var req *Request
			if err == nil {
				req, err = p.request(line.Bytes)
				if err != nil {
					err = line.Fault(name, err)
				} else {
					req.File, req.Line = name, line.Number
				}
			}
			if err != nil {
				req, err = nil, gap(err)
			}
			if !yield(req, err) || err != nil && !errors.As(err, new(*Gap)) {
				return
			}
		}
	}
}

var (
	headID    = regexp.MustCompile(`"x_request_id":\s*"([^"\\]*)"`)
	headPhase = regexp.MustCompile(`"benchmark_phase":\s*"([^"\\]*)"`)
)

// gap wraps an error that costs one record, and returns others as they are.
func gap(err error) error {
	var head []byte
	var torn *jsonl.TornError
	var long *jsonl.TooLongError
	switch {
	case errors.As(err, &torn):
		head = torn.Head
	case errors.As(err, &long):
		head = long.Head
	default:
		return err
	}
	g := &Gap{Err: err}
	if m := headID.FindSubmatch(head); m != nil {
		g.ID = string(m[1])
	}
	if m := headPhase.FindSubmatch(head); m != nil {
		g.Phase = string(m[1])
	}
	return g
}

// parser holds the memory that is used again from line to line.
type parser struct {
	line, inner jsonl.Scanner
	name, data  []byte // of an event
	answer      answer
	canon       canonical
}

func (p *parser) request(line []byte) (*Request, error) {
	s := &p.line
	if err := s.Reset(line); err != nil {
		return nil, err
	}
	r := &Request{}
	p.answer.reset(&r.Response)
	metadata := false
	err := s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "metadata":
			metadata = true
			return p.metadata(r)
		case "start_perf_ns":
			r.StartPerfNS, err = optInt(s)
		case "status":
			r.Status, err = optInt(s)
		case "error":
			r.Error, err = clientError(s)
		case "response_headers":
			return headers(s, r)
		case "responses":
			if !s.Null() {
				return s.Array(func() error { return p.received() })
			}
		case "payload":
			r.Payload, err = p.canon.payload(s)
		}
		return in(key, err)
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && !metadata {
		err = errors.New("the record has no metadata")
	}
	if err != nil {
		return nil, err
	}
	p.answer.finish()
	return r, nil
}

func (p *parser) metadata(r *Request) error {
	s := &p.line
	var start *int64
	err := s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "x_request_id":
			r.ID, err = optText(s)
		case "x_correlation_id":
			r.CorrelationID, err = optText(s)
		case "conversation_id":
			r.ConversationID, err = optText(s)
		case "turn_index":
			err = setInt(s, &r.Turn)
		case "session_num":
			err = setInt(s, &r.SessionNum)
		case "benchmark_phase":
			r.Phase, err = optText(s)
		case "credit_issued_ns":
			r.CreditWallNS, err = optInt(s)
		case "request_start_ns":
			start, err = optInt(s)
		case "request_ack_ns":
			r.AckWallNS, err = optInt(s)
		case "request_end_ns":
			r.EndWallNS, err = optInt(s)
		case "was_cancelled":
			if !s.Null() {
				r.Cancelled, err = s.Bool()
			}
		}
		return in(key, err)
	})
	if err != nil {
		return in([]byte("metadata"), err)
	}
	if r.Phase != Warmup && r.Phase != Profiling {
		return fmt.Errorf("metadata: benchmark_phase is %q, neither %q nor %q", r.Phase, Warmup, Profiling)
	}
	if start == nil {
		return errors.New("metadata: no request_start_ns")
	}
	r.StartWallNS = *start
	return nil
}

// headers keeps the two response headers that matter; a value may be a list.
func headers(s *jsonl.Scanner, r *Request) error {
	if s.Null() {
		return nil
	}
	return s.Object(func(key []byte) error {
		var to **string
		switch strings.ToLower(string(key)) {
		case "x-request-id":
			to = &r.EchoedID
		case "retry-after":
			to = &r.RetryAfter
		default:
			return nil
		}
		if s.Peek() != '"' {
			return nil
		}
		v, err := s.Text()
		*to = &v
		return in(key, err)
	})
}

func clientError(s *jsonl.Scanner) (*Error, error) {
	if s.Null() {
		return nil, nil
	}
	e := &Error{}
	return e, s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "code":
			e.Code, err = optInt(s)
		case "type":
			e.Type, err = optText(s)
		case "message":
			e.Message, err = optText(s)
		}
		return in(key, err)
	})
}

func optInt(s *jsonl.Scanner) (*int64, error) {
	if s.Null() {
		return nil, nil
	}
	n, err := s.Int()
	return &n, err
}

func setInt(s *jsonl.Scanner, to *int64) (err error) {
	if !s.Null() {
		*to, err = s.Int()
	}
	return err
}

func optText(s *jsonl.Scanner) (string, error) {
	if s.Null() {
		return "", nil
	}
	return s.Text()
}

// in says in which member an error is.
func in(key []byte, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}
