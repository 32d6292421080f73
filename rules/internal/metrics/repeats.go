package metrics

import (
	"fmt"
	"math"

	"assay/rules/internal/stats"
)

// ClaimSamples is how many samples a figure needs for a claim. Requests of one
// sample share its server's start, its batch and its queue, so however many there
// are, they say little about the next sample; the sample is the unit.
const ClaimSamples = 5

// Repeats is a figure over the samples of a run, one value each. The value of a
// sample is a mean or a rate, never a percentile: the mean of percentiles is the
// percentile of nothing.
type Repeats struct {
	N      int       `json:"n"`
	Values []float64 `json:"values"` // in the order of the samples
	Mean   *float64  `json:"mean"`   // null of nothing
	// CV is the coefficient of variation, standard deviation / mean: null below two
	// values or for a mean that is not positive.
	CV *float64 `json:"cv"`
	// Low and High are the 95 % interval of the mean by Student's t, null below
	// ClaimSamples.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Absent says why there is no interval.
	Absent string `json:"absent,omitempty"`
}

// Repeat describes the values of a figure, one for each sample.
func Repeat(values []float64) Repeats {
	r := Repeats{N: len(values), Values: append([]float64{}, values...)}
	if r.N > 0 {
		mean, variance := stats.Moments(values)
		r.Mean = &mean
		if r.N > 1 && mean > 0 {
			cv := math.Sqrt(variance) / mean
			r.CV = &cv
		}
	}
	if r.N < ClaimSamples {
		r.Absent = fmt.Sprintf("%s, no claim (needs %d)", samples(r.N), ClaimSamples)
		return r
	}
	i := stats.Mean(values).Interval(Confidence)
	r.Low, r.High = &i.Low, &i.High
	return r
}

func samples(n int) string {
	if n == 1 {
		return "1 sample"
	}
	return fmt.Sprintf("%d samples", n)
}

// Repeated holds the figures over samples. With fewer than ClaimSamples they are
// shown and carry no claim.
type Repeated struct {
	LatencyMS    LatencyRepeats `json:"latency_ms_mean"`
	TTFTMS       LatencyRepeats `json:"ttft_ms_mean"`
	TaskCallMS   LatencyRepeats `json:"task_call_ms_mean"`
	RequestsPerS Repeats        `json:"requests_per_s"`
}

// LatencyRepeats is to Repeats what Latency is to Stats.
type LatencyRepeats struct {
	Repeats
	Rejected Share `json:"rejected"`
}

// sample is what one sample gives to Repeated; nil is not known.
type sample struct{ latency, ttft, task, rate *float64 }

// repeated takes over what the row withholds: a figure that is in doubt for all
// samples together is so for each.
func (b *Builder) repeated(r *Row) Repeated {
	over := func(value func(sample) *float64, withheld string) Repeats {
		var values []float64
		for _, s := range b.samples {
			if v := value(s); v != nil {
				values = append(values, *v)
			}
		}
		if missing := len(b.samples) - len(values); missing > 0 && withheld == "" {
			withheld = fmt.Sprintf("%d of %s have no value", missing, samples(len(b.samples)))
		}
		if withheld != "" {
			return Repeats{Values: []float64{}, Absent: withheld}
		}
		return Repeat(values)
	}
	latency := func(value func(sample) *float64, of Latency) LatencyRepeats {
		return LatencyRepeats{over(value, of.Absent), of.Rejected}
	}
	return Repeated{
		LatencyMS:    latency(func(s sample) *float64 { return s.latency }, r.LatencyMS),
		TTFTMS:       latency(func(s sample) *float64 { return s.ttft }, r.TTFTMS),
		TaskCallMS:   latency(func(s sample) *float64 { return s.task }, r.TaskCallMS),
		RequestsPerS: over(func(s sample) *float64 { return s.rate }, ""),
	}
}
