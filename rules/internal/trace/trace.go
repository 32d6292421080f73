// Package trace reads when the requests of a production trace arrived, exact to
// the last digit, and refuses a unit of time that cannot be right: between
// traces in seconds and traces in milliseconds lies a factor of 1,000 that
// nothing in the files shows.
package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"assay/rules/internal/jsonl"
)

// Unit is what a trace's times count.
type Unit time.Duration

// The units of the public traces.
const (
	Milliseconds Unit = Unit(time.Millisecond) // Mooncake
	Seconds      Unit = Unit(time.Second)      // Bailian, BurstGPT
)

func (u Unit) String() string {
	if u == Seconds {
		return "seconds"
	}
	return "milliseconds"
}

// Parse reads a number of units as decimal text, without a detour over binary
// fractions: 61.114 s is 61,114 ms. It refuses what is finer than a nanosecond.
func (u Unit) Parse(text string) (time.Duration, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	digits := len(strconv.FormatInt(int64(u), 10)) - 1 // behind the point, in ns
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > digits {
		return 0, fmt.Errorf("%q is finer than a nanosecond", text)
	}
	ns, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", digits-len(fraction)), 10, 64)
	if err != nil || whole == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no number of %s from 0 to %s", text, u, time.Duration(1<<63-1))
	}
	return time.Duration(ns), nil
}

// dateTime is the form of the Azure traces: seven digits behind the point, which
// are 100 ns, and no zone.
const dateTime = "2006-01-02 15:04:05.9999999"

// ReadJSON reads the member "timestamp" of each line (Mooncake, Bailian). name
// stands for the file in errors.
func ReadJSON(r io.Reader, name string, unit Unit) (arrivals []time.Duration, err error) {
	for at, err := range jsonl.Records(r, name, 0, func() jsonl.Parser[time.Duration] { return &row{unit: unit} }) {
		if err != nil {
			return nil, err
		}
		arrivals = append(arrivals, at)
	}
	return arrivals, nil
}

// row parses the rows of a trace.
type row struct {
	unit Unit
	s    jsonl.Scanner
}

var rowFields = jsonl.NewFields("timestamp")

func (p *row) Parse(line jsonl.Line) (at time.Duration, err error) {
	text := ""
	p.s.Reset(line.Bytes)
	err = p.s.Object(rowFields, func(key []byte) error {
		if string(key) != "timestamp" {
			return nil
		}
		n, err := p.s.Number()
		text = string(n)
		return err
	})
	if err == nil {
		err = p.s.End()
	}
	switch {
	case err != nil:
		return 0, err
	case text == "":
		return 0, errors.New("the row has no timestamp")
	}
	return p.unit.Parse(text)
}

func (p *row) Reuse() {}

// ReadAzure reads the first column of an Azure trace, as distances from its
// first row. Its lines end with CRLF, and the last one does not end at all.
func ReadAzure(r io.Reader, name string) (arrivals []time.Duration, err error) {
	var zero time.Time
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, columns := strings.Cut(strings.TrimSuffix(lines.Text(), "\r"), ",")
		if n == 1 {
			if text != "TIMESTAMP" {
				return nil, fmt.Errorf("%s:1: the first column is %q, not TIMESTAMP", name, text)
			}
			continue
		}
		at, err := time.Parse(dateTime, text)
		if err != nil || !columns {
			return nil, fmt.Errorf("%s:%d: %q is no row with a time like %s", name, n, lines.Text(), dateTime)
		}
		if arrivals == nil {
			zero = at
		}
		arrivals = append(arrivals, at.Sub(zero))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return arrivals, nil
}

// The mean rates, in requests per second, that a trace of one service can have.
const (
	MinRate = 0.1
	MaxRate = 100
)

// Span is the time from the earliest to the latest arrival.
func Span(arrivals []time.Duration) time.Duration {
	if len(arrivals) == 0 {
		return 0
	}
	low, high := arrivals[0], arrivals[0]
	for _, at := range arrivals {
		low, high = min(low, at), max(high, at)
	}
	return high - low
}

// Check refuses arrivals whose mean rate, (rows-1)/span, is outside MinRate to
// MaxRate, and says what they would be in the other unit. Fewer than two rows,
// or rows at one time, have no rate.
func Check(name string, arrivals []time.Duration, unit Unit) error {
	span := Span(arrivals).Seconds()
	if span == 0 {
		return nil
	}
	rate := float64(len(arrivals)-1) / span
	if rate >= MinRate && rate <= MaxRate {
		return nil
	}
	other, factor := Milliseconds, 1e-3
	if unit == Milliseconds {
		other, factor = Seconds, 1e3
	}
	return fmt.Errorf("%s: %d rows in %s span %.6g s, %.2g requests/s, which is not between %g and %g; in %s they span %.6g s, %.2g requests/s: is the unit right?",
		name, len(arrivals), unit, span, rate, MinRate, float64(MaxRate), other, span*factor, rate/factor)
}
