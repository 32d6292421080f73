package aiperf

import (
	"fmt"
	"io"
	"iter"

	"assay/rules/internal/jsonl"
)

// Figures is what AIPerf itself computed for one request, a record of
// profile_export.jsonl. Token counts are its own estimates: it encodes the
// text of prompt and answer, without the chat template and without media.
//
// ID is empty where AIPerf failed over the record itself: it then writes an error
// that it cannot give to a request.
type Figures struct {
	ID, Phase    string
	InputTokens  *int64
	OutputTokens *int64 // reasoning included
	LatencyMS    *float64
	TTFTMS       *float64
	BlockedMS    *float64 // waiting for a connection of the pool
	Error        *Error
}

// ReadFigures yields the records of profile_export.jsonl in the order of the
// file; errors are those of ReadRaw.
func ReadFigures(r io.Reader, name string, maxLine int64) iter.Seq2[Figures, error] {
	return gaps(jsonl.Records(r, name, maxLine, func() jsonl.Parser[Figures] { return &figures{} }))
}

type figures struct{ jsonl.Scanner }

func (*figures) Reuse() {}

var (
	figureFields   = jsonl.NewFields("metadata", "metrics", "error")
	identityFields = jsonl.NewFields("x_request_id", "benchmark_phase")
	metricFields   = jsonl.NewFields("request_latency", "time_to_first_token", "output_sequence_length", "input_sequence_length", "error_isl", "http_req_blocked")
	valueFields    = jsonl.NewFields("value", "unit")
)

func (p *figures) Parse(line jsonl.Line) (f Figures, err error) {
	s := &p.Scanner
	s.Reset(line.Bytes)
	err = s.Object(figureFields, func(key []byte) (err error) {
		switch string(key) {
		case "metadata":
			err = s.Object(identityFields, func(key []byte) (err error) {
				switch string(key) {
				case "x_request_id":
					f.ID, err = optText(s)
				case "benchmark_phase":
					f.Phase, err = optName(s)
				}
				return in(key, err)
			})
		case "metrics":
			if !s.Null() {
				err = s.Object(metricFields, func(key []byte) error { return f.metric(s, key) })
			}
		case "error":
			f.Error, err = clientError(s)
		}
		return in(key, err)
	})
	if err == nil {
		err = s.End()
	}
	return f, err
}

func (f *Figures) metric(s *jsonl.Scanner, key []byte) error {
	var err error
	switch string(key) {
	case "input_sequence_length", "error_isl":
		f.InputTokens, err = count(s)
	case "output_sequence_length":
		f.OutputTokens, err = count(s)
	case "request_latency":
		f.LatencyMS, err = metric(s, "ms")
	case "time_to_first_token":
		f.TTFTMS, err = metric(s, "ms")
	case "http_req_blocked":
		f.BlockedMS, err = metric(s, "ms")
	}
	return in(key, err)
}

func count(s *jsonl.Scanner) (*int64, error) {
	v, err := metric(s, "tokens")
	if v == nil || err != nil {
		return nil, err
	}
	n := int64(*v)
	return &n, nil
}

// metric reads {"value": number, "unit": unit}.
func metric(s *jsonl.Scanner, unit string) (v *float64, err error) {
	if s.Null() {
		return nil, nil
	}
	got := ""
	err = s.Object(valueFields, func(key []byte) (err error) {
		switch string(key) {
		case "value":
			v, err = optFloat(s)
		case "unit":
			got, err = optName(s)
		}
		return in(key, err)
	})
	if err == nil && got != unit {
		err = fmt.Errorf("the unit is %q, not %q", got, unit)
	}
	return v, err
}

func optFloat(s *jsonl.Scanner) (*float64, error) {
	if s.Null() {
		return nil, nil
	}
	f, err := s.Float()
	return &f, err
}
