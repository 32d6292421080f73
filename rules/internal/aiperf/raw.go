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
	Err       error  // a *jsonl.TornError or *jsonl.TooLongError; of GapOf, *jsonl.CorruptError too
}

func (g *Gap) Error() string { return g.Err.Error() }
func (g *Gap) Unwrap() error { return g.Err }

// ReadRaw yields the requests of a raw export (profile_export_raw.jsonl, or a
// file of raw_records, which is what a run without any success leaves) in the
// order of the file. A request is valid until the next is asked for. name stands
// for the file in errors, maxLine is in bytes, 0 for jsonl.DefaultMaxLine. A *Gap
// takes the place of a request, and so does a *jsonl.CorruptError, behind which who
// wants to can read on; any other error is the last thing that is yielded.
func ReadRaw(r io.Reader, name string, maxLine int64) iter.Seq2[*Request, error] {
	return gaps(jsonl.Records(r, name, maxLine, func() jsonl.Parser[*Request] { return &parser{file: name} }))
}

// gaps turns the errors that cost one record into a *Gap each.
func gaps[T any](records iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for r, err := range records {
			if !errors.As(err, new(*jsonl.CorruptError)) {
				err = GapOf(err)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

var (
	headID    = regexp.MustCompile(`"x_request_id":\s*"([^"\\]*)"`)
	headPhase = regexp.MustCompile(`"benchmark_phase":\s*"([^"\\]*)"`)
)

// GapOf wraps an error that costs one record, and returns others as they are.
func GapOf(err error) error {
	var head []byte
	var torn *jsonl.TornError
	var long *jsonl.TooLongError
	var corrupt *jsonl.CorruptError
	switch {
	case errors.As(err, &torn):
		head = torn.Head
	case errors.As(err, &long):
		head = long.Head
	case errors.As(err, &corrupt):
		head = corrupt.Head
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

// parser reads one request after the other. What it returns lies in its own
// memory, which Reuse gives free: an export has tens of small pieces a line.
type parser struct {
	file        string
	line, inner jsonl.Scanner
	name, data  []byte // of an event
	answer      answer
	canon       canonical
	requests    []Request
	ints        ints
}

func (p *parser) Reuse() {
	p.requests, p.ints, p.answer.chunks = p.requests[:0], p.ints[:0], p.answer.chunks[:0]
}

var requestFields = jsonl.NewFields("metadata", "start_perf_ns", "request_headers", "response_headers", "status", "responses", "error", "payload")

func (p *parser) Parse(line jsonl.Line) (*Request, error) {
	s := &p.line
	s.Reset(line.Bytes)
	p.requests = append(p.requests, Request{File: p.file, Line: line.Number})
	r := &p.requests[len(p.requests)-1]
	p.answer.start(&r.Response, &p.ints)
	metadata := false
	m := s.Members(requestFields)
	for m.Next() {
		var err error
		switch string(m.Key()) {
		case "metadata":
			metadata = true
			if err := p.metadata(r); err != nil {
				return nil, err
			}
		case "start_perf_ns":
			r.StartPerfNS, err = p.ints.read(s)
		case "status":
			r.Status, err = p.ints.read(s)
		case "error":
			r.Error, err = clientError(s)
		case "request_headers":
			if s.Peek() == '{' {
				h := s.Members(headerFields)
				for h.Next() {
				}
				if err := h.Err(); err != nil {
					return nil, err
				}
			}
		case "response_headers":
			if err := headers(s, r); err != nil {
				return nil, err
			}
		case "responses":
			if !s.Null() {
				if err := p.responses(); err != nil {
					return nil, err
				}
			}
		case "payload":
			r.Payload, err = p.canon.payload(s, &p.ints)
		}
		if err != nil {
			return nil, in(m.Key(), err)
		}
	}
	err := m.Err()
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

var metadataFields = jsonl.NewFields("session_num", "x_request_id", "x_correlation_id", "conversation_id", "turn_index",
	"credit_issued_ns", "request_start_ns", "request_ack_ns", "request_end_ns", "worker_id", "record_processor_id",
	"benchmark_phase", "phase_index", "profiling_index", "phase_name", "phase_kind", "was_cancelled", "context_overflow_skip",
	"agent_depth", "root_correlation_id")

// headerFields are those that AIPerf sends; only their form is checked.
var headerFields = jsonl.NewFields("User-Agent", "X-Request-ID", "X-Correlation-ID", "Accept", "Content-Type", "X-Session-Affinity")

var metadataKey = []byte("metadata")

func (p *parser) metadata(r *Request) error {
	s := &p.line
	started := false
	m := s.Members(metadataFields)
	for m.Next() {
		var err error
		switch string(m.Key()) {
		case "x_request_id":
			r.ID, err = optText(s)
		case "x_correlation_id":
			r.CorrelationID, err = optText(s)
		case "conversation_id":
			r.ConversationID, err = optText(s)
		case "turn_index":
			_, err = setInt(s, &r.Turn)
		case "session_num":
			_, err = setInt(s, &r.SessionNum)
		case "benchmark_phase":
			r.Phase, err = optName(s)
		case "credit_issued_ns":
			r.CreditWallNS, err = p.ints.read(s)
		case "request_start_ns":
			started, err = setInt(s, &r.StartWallNS)
		case "request_ack_ns":
			r.AckWallNS, err = p.ints.read(s)
		case "request_end_ns":
			r.EndWallNS, err = p.ints.read(s)
		case "was_cancelled":
			if !s.Null() {
				r.Cancelled, err = s.Bool()
			}
		}
		if err != nil {
			return in(metadataKey, in(m.Key(), err))
		}
	}
	if err := m.Err(); err != nil {
		return in(metadataKey, err)
	}
	if r.Phase != Warmup && r.Phase != Profiling {
		return fmt.Errorf("metadata: benchmark_phase is %q, neither %q nor %q", r.Phase, Warmup, Profiling)
	}
	if !started {
		return errors.New("metadata: no request_start_ns")
	}
	return nil
}

// headers keeps the two response headers that matter; a value may be a list.
func headers(s *jsonl.Scanner, r *Request) error {
	if s.Null() {
		return nil
	}
	return s.Object(nil, func(key []byte) error {
		name := strings.ToLower(string(key))
		var to **string
		switch name {
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

var errorFields = jsonl.NewFields("code", "type", "message")

func clientError(s *jsonl.Scanner) (*Error, error) {
	if s.Null() {
		return nil, nil
	}
	e := &Error{}
	return e, s.Object(errorFields, func(key []byte) (err error) {
		switch string(key) {
		case "code":
			e.Code, err = optInt(s)
		case "type":
			e.Type, err = optName(s)
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

// setInt says whether there was a number.
func setInt(s *jsonl.Scanner, to *int64) (set bool, err error) {
	n, set, err := s.OptInt()
	if set {
		*to = n
	}
	return set, err
}

// ints is memory for numbers that may be absent.
type ints []int64

func (a *ints) read(s *jsonl.Scanner) (*int64, error) {
	n, known, err := s.OptInt()
	if !known {
		return nil, err
	}
	return a.keep(n), err
}

func (a *ints) keep(n int64) *int64 {
	*a = append(*a, n)
	return &(*a)[len(*a)-1]
}

func optText(s *jsonl.Scanner) (string, error) {
	if s.Null() {
		return "", nil
	}
	return s.Text()
}

// optName is optText for what repeats from record to record.
func optName(s *jsonl.Scanner) (string, error) {
	if s.Null() {
		return "", nil
	}
	return s.Name()
}

// in says in which member an error is.
func in(key []byte, err error) error {
	if err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", key, err)
}
