// Package trace reads production traces and plans their replay: which requests are
// sent when, how long they are and what they share. A trace has no text, so prompts
// are made up, with exactly as many tokens as the plan says.
//
// Times are exact to the last digit, and a unit of time that cannot be right is
// refused: between traces in seconds and traces in milliseconds lies a factor of
// 1,000 that nothing in the files shows.
package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"
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
// MaxRate. declared says that the unit is somebody's word, which may be wrong: then
// it tells what they would be in the other unit. Fewer than two rows, or rows at one
// time, have no rate.
func Check(name string, arrivals []time.Duration, unit Unit, declared bool) error {
	span := Span(arrivals).Seconds()
	if span == 0 {
		return nil
	}
	rate := float64(len(arrivals)-1) / span
	if rate >= MinRate && rate <= MaxRate {
		return nil
	}
	if !declared {
		return fmt.Errorf("%s: %d rows span %.6g s, %.2g requests/s, which is not between %g and %g: is it one service's?", name, len(arrivals), span, rate, MinRate, float64(MaxRate))
	}
	other, factor := Milliseconds, 1e-3
	if unit == Milliseconds {
		other, factor = Seconds, 1e3
	}
	return fmt.Errorf("%s: %d rows in %s span %.6g s, %.2g requests/s, which is not between %g and %g; in %s they span %.6g s, %.2g requests/s: is the unit right?",
		name, len(arrivals), unit, span, rate, MinRate, float64(MaxRate), other, span*factor, rate/factor)
}
