package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"assay/rules/internal/jsonl"
)

// Row is a request of a trace.
type Row struct {
	Line int64 // in the file, from 1
	// At is when it arrived, from the zero of the trace, which for dates is the first
	// row.
	At            time.Duration
	Input, Output int64 // tokens
	// Blocks name the contents of the prompt, BlockTokens each: equal ids at the start
	// of two prompts are a prefix that the two share. Nil if the format has none.
	Blocks []int64
}

// The formats that are read.
const (
	Mooncake = "mooncake" // JSON lines of kvcache-ai/Mooncake
	Azure    = "azure"    // CSV of Azure/AzurePublicDataset, 2023 and 2024
)

// Formats lists them.
var Formats = []string{Mooncake, Azure}

// BlockTokens is the size of a block of a Mooncake trace, in tokens.
const BlockTokens = 512

// MaxTokens is the longest prompt or answer that is taken for one.
const MaxTokens = 1 << 24

// maxLine is the longest line in bytes: a prompt of MaxTokens has 32,768 blocks.
const maxLine = 4 << 20

// Read reads a whole trace; an empty one is an error. unit is that of a Mooncake
// trace; Azure's times are dates. name stands for the file in errors, which are of
// all rows at once, up to a limit.
func Read(r io.Reader, name, format string, unit Unit) ([]Row, error) {
	f := faults{name: name}
	var rows []Row
	var err error
	switch format {
	case Mooncake:
		rows, err = readMooncake(r, name, unit, &f)
	case Azure:
		rows, err = readAzure(r, name, &f)
	default:
		return nil, fmt.Errorf("%s: unknown format %q", name, format)
	}
	if err = errors.Join(f.err(), err); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: there are no rows", name)
	}
	return rows, nil
}

// maxFaults is how many faults of a trace are told one by one.
const maxFaults = 20

// faults gathers what is wrong with the rows of a file.
type faults struct {
	name string
	errs []error
	n    int
}

func (f *faults) add(line int64, format string, args ...any) {
	if f.n++; f.n <= maxFaults {
		f.errs = append(f.errs, fmt.Errorf("%s:%d: %w", f.name, line, fmt.Errorf(format, args...)))
	}
}

func (f *faults) err() error {
	if more := f.n - len(f.errs); more > 0 {
		return errors.Join(append(f.errs, fmt.Errorf("%s: %d more faults", f.name, more))...)
	}
	return errors.Join(f.errs...)
}

func readMooncake(r io.Reader, name string, unit Unit, f *faults) (rows []Row, err error) {
	for p, err := range jsonl.Records(r, name, maxLine, func() jsonl.Parser[parsed] { return &mooncake{unit: unit} }) {
		switch torn, long := new(*jsonl.TornError), new(*jsonl.TooLongError); {
		case errors.As(err, torn):
			f.add((*torn).Line, "the row ends too early: its writer stopped before the end")
		case errors.As(err, long):
			f.add((*long).Line, "the row has %d bytes, more than the maximum of %d", (*long).Size, (*long).Max)
		case err != nil:
			return rows, err
		default:
			for _, fault := range p.faults {
				f.add(p.row.Line, "%w", fault)
			}
			rows = append(rows, p.row)
		}
	}
	return rows, nil
}

// parsed is a row and what is wrong with it.
type parsed struct {
	row    Row
	faults []error
}

// mooncake parses rows. What is wrong with a row is no error of the parser, which
// would end the reading, unless the row has no end.
type mooncake struct {
	unit Unit
	s    jsonl.Scanner
}

var members = []string{"timestamp", "input_length", "output_length", "hash_ids"}
var rowFields = jsonl.NewFields(members...)

func (p *mooncake) Parse(line jsonl.Line) (parsed, error) {
	out := parsed{row: Row{Line: line.Number}}
	bad := func(format string, args ...any) { out.faults = append(out.faults, fmt.Errorf(format, args...)) }
	var seen [4]bool
	p.s.Reset(line.Bytes)
	err := p.s.Object(rowFields, func(key []byte) (err error) {
		i := slices.Index(members, string(key))
		if i < 0 {
			bad("member %q is not one of a Mooncake trace, %q", key, members)
			return nil
		}
		seen[i] = true
		switch i {
		case 0:
			var text []byte
			if text, err = p.s.Number(); err == nil {
				var fault error
				if out.row.At, fault = p.unit.Parse(string(text)); fault != nil {
					bad("timestamp: %w", fault)
				}
			}
		case 1:
			out.row.Input, err = p.tokens("input_length", bad)
		case 2:
			out.row.Output, err = p.tokens("output_length", bad)
		case 3:
			err = p.s.Array(func() error {
				id, err := p.s.Int()
				if err == nil && id < 0 {
					bad("hash_ids: %d is negative", id)
				}
				out.row.Blocks = append(out.row.Blocks, id)
				return err
			})
		}
		return err
	})
	if err == nil {
		err = p.s.End()
	}
	var syntax *jsonl.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return out, err
	case errors.As(err, &syntax):
		out.faults = []error{fmt.Errorf("column %d: %w", syntax.Offset+1, err)}
	case err != nil:
		return out, err
	default:
		for i, name := range members {
			if !seen[i] {
				bad("%s is missing", name)
			}
		}
		if want := (out.row.Input + BlockTokens - 1) / BlockTokens; len(out.faults) == 0 && int64(len(out.row.Blocks)) != want {
			bad("%d hash_ids for %d input tokens, which are %d blocks of %d", len(out.row.Blocks), out.row.Input, want, BlockTokens)
		}
	}
	return out, nil
}

func (p *mooncake) Reuse() {}

func (p *mooncake) tokens(name string, bad func(string, ...any)) (int64, error) {
	text, err := p.s.Number()
	if err != nil {
		return 0, err
	}
	n, fault := count(string(text))
	if fault != nil {
		bad("%s: %w", name, fault)
	}
	return n, nil
}

// count reads a number of tokens.
func count(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > MaxTokens {
		return 1, fmt.Errorf("%.40s is no number of tokens from 1 to %d", text, MaxTokens)
	}
	return n, nil
}

// dateTime is the form of the Azure traces: seven digits behind the point, which
// are 100 ns, and no zone.
const dateTime = "2006-01-02 15:04:05.9999999"

var columns = []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}

// maxSpan bounds the dates of one trace: the longest public ones have a few weeks.
const maxSpan = 366 * 24 * time.Hour

// readAzure reads lines that end with CRLF, the last of which does not end at all.
func readAzure(r io.Reader, name string, f *faults) (rows []Row, err error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = -1
	header, err := lines.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !slices.Equal(header, columns) {
		return nil, fmt.Errorf("%s:1: the columns are %q, those of an Azure trace are %q, in this order", name, header, columns)
	}
	var zero time.Time
	dated := false // there is a row that zero is of
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", name, err)
		}
		number, _ := lines.FieldPos(0)
		line := int64(number)
		if len(fields) != len(columns) {
			f.add(line, "%d fields for %d columns: %q", len(fields), len(columns), strings.Join(fields, ","))
			continue
		}
		at, err := time.Parse(dateTime, fields[0])
		switch {
		case err != nil:
			f.add(line, "TIMESTAMP: %q is no time like %s", fields[0], dateTime)
			at = zero
		case !dated:
			zero, dated = at, true
		}
		row := Row{Line: line}
		for i, to := range []*int64{&row.Input, &row.Output} {
			if *to, err = count(fields[i+1]); err != nil {
				f.add(line, "%s: %w", columns[i+1], err)
			}
		}
		if row.At = at.Sub(zero); row.At.Abs() > maxSpan {
			f.add(line, "TIMESTAMP: %s is more than %s from the first row", fields[0], maxSpan)
		}
		rows = append(rows, row)
	}
}

// Arrivals are the times of rows.
func Arrivals(rows []Row) []time.Duration {
	at := make([]time.Duration, len(rows))
	for i, r := range rows {
		at[i] = r.At
	}
	return at
}

// Millis is a duration as decimal text in milliseconds.
func Millis(d time.Duration) string {
	text := fmt.Sprintf("%d.%06d", d/time.Millisecond, d%time.Millisecond)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
