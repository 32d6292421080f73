package aiperf

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"assay/rules/internal/jsonl"
)

// Summary is profile_export_aiperf.json, as far as the ledger needs it. AIPerf
// writes it only if a request succeeded.
type Summary struct {
	SchemaVersion, AIPerfVersion string
	WasCancelled                 bool
	IsComplete                   *bool
	// Successes and Errors count the measured requests; AIPerf leaves Errors
	// out when there were none.
	Successes, Errors *int64
	// MinLatencyMS and MaxLatencyMS are the extremes of request_latency, over
	// what AIPerf counts as a success.
	MinLatencyMS, MaxLatencyMS *float64
	// StartWallNS is the start of the profiling phase. AIPerf writes it without a zone;
	// it is read as UTC.
	StartWallNS *int64
	// Command is the command line as AIPerf recorded it. It may hold paths.
	Command string
}

// maxSummary bounds the summary in bytes; real ones have some tens of KiB.
const maxSummary = 64 << 20

// ReadSummary reads the summary of a run. name stands for the file in errors.
func ReadSummary(r io.Reader, name string) (*Summary, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSummary+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > maxSummary {
		return nil, fmt.Errorf("%s: larger than %d bytes: not a summary of AIPerf", name, maxSummary)
	}
	sum := &Summary{}
	var s jsonl.Scanner
	s.Reset(b)
	err = s.Object(summaryFields, func(key []byte) error { return in(key, sum.field(&s, key)) })
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: byte %d: %w", name, s.Offset(), err)
	}
	return sum, nil
}

var (
	summaryFields = jsonl.NewFields("schema_version", "aiperf_version", "was_cancelled", "is_complete", "request_count", "error_request_count", "request_latency", "run_info", "start_time")
	runFields     = jsonl.NewFields("cli_command")
	totalFields   = jsonl.NewFields("avg")
	latencyFields = jsonl.NewFields("unit", "min", "max")
)

func (sum *Summary) field(s *jsonl.Scanner, key []byte) (err error) {
	switch string(key) {
	case "schema_version":
		sum.SchemaVersion, err = optText(s)
	case "aiperf_version":
		sum.AIPerfVersion, err = optText(s)
	case "was_cancelled":
		if !s.Null() {
			sum.WasCancelled, err = s.Bool()
		}
	case "is_complete":
		if !s.Null() {
			var b bool
			b, err = s.Bool()
			sum.IsComplete = &b
		}
	case "request_count":
		sum.Successes, err = total(s)
	case "error_request_count":
		sum.Errors, err = total(s)
	case "request_latency":
		err = sum.latency(s)
	case "start_time":
		sum.StartWallNS, err = optTime(s)
	case "run_info":
		if !s.Null() {
			err = s.Object(runFields, func(key []byte) (err error) {
				if string(key) == "cli_command" {
					sum.Command, err = optText(s)
				}
				return in(key, err)
			})
		}
	}
	return err
}

// latency reads the extremes of request_latency; of a unit other than ms nothing is
// known.
func (sum *Summary) latency(s *jsonl.Scanner) error {
	if s.Null() {
		return nil
	}
	unit := ""
	err := s.Object(latencyFields, func(key []byte) (err error) {
		switch string(key) {
		case "unit":
			unit, err = optText(s)
		case "min":
			sum.MinLatencyMS, err = optFloat(s)
		case "max":
			sum.MaxLatencyMS, err = optFloat(s)
		}
		return in(key, err)
	})
	if unit != "ms" {
		sum.MinLatencyMS, sum.MaxLatencyMS = nil, nil
	}
	return err
}

// optTime reads a date and time as Python's isoformat writes it, without a zone; nil
// for any other form.
func optTime(s *jsonl.Scanner) (*int64, error) {
	if s.Peek() != '"' {
		return nil, s.Skip()
	}
	text, err := optText(s)
	at, fault := time.Parse("2006-01-02T15:04:05", text)
	if err != nil || fault != nil {
		return nil, err
	}
	ns := at.UnixNano()
	return &ns, nil
}

// total reads an aggregate, which AIPerf puts under "avg".
func total(s *jsonl.Scanner) (n *int64, err error) {
	if s.Null() {
		return nil, nil
	}
	err = s.Object(totalFields, func(key []byte) (err error) {
		if string(key) == "avg" {
			n, err = optInt(s)
		}
		return in(key, err)
	})
	return n, err
}

// RawFiles names the raw exports in the artifact folder of one run: the file
// that AIPerf puts together at the end or, after a crash, a kill or a run
// without any success, the parts that it would have been made from.
func RawFiles(folder fs.FS) ([]string, error) {
	const whole = "profile_export_raw.jsonl"
	if _, err := fs.Stat(folder, whole); err == nil {
		return []string{whole}, nil
	}
	parts, err := fs.Glob(folder, "raw_records/*.jsonl")
	if err == nil && len(parts) == 0 {
		err = fmt.Errorf("neither %s nor raw_records/*.jsonl is there; was the run made with --export-level raw?", whole)
	}
	slices.Sort(parts)
	return parts, err
}
