package compare

import (
	"fmt"
	"math"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

// Verdict says how b is beside a.
type Verdict string

// The verdicts. All but the last need the whole interval of the mean difference on
// one side of the margin, or within it.
const (
	Better     Verdict = "better" // faster by more than the margin
	Worse      Verdict = "worse"  // slower by more than the margin
	Equal      Verdict = "equal within margin"
	CannotTell Verdict = "cannot tell"
)

// Units of the interval.
const (
	perRequest = "request"
	perSample  = "sample"
)

// runsNeeded is how many samples a side needs for the sample to be the unit.
const runsNeeded = 5

// Difference is b minus a of one duration, in ms.
type Difference struct {
	Requests int     `json:"requests"` // paired by their prompt
	MeanA    float64 `json:"mean_a_ms"`
	MeanB    float64 `json:"mean_b_ms"`
	// Mean is the difference of the means, with its 95 % interval by Student's t.
	// Percent is of the faster side's mean, so that it only changes its sign when
	// the sides are swapped.
	Mean    float64   `json:"mean_ms"`
	Percent float64   `json:"mean_percent"`
	Mean95  *Interval `json:"mean_interval,omitempty"`
	// Unit is what the interval takes for independent: "request" or "sample".
	Unit string `json:"unit"`
	// Median is that of the paired differences, with its interval of order
	// statistics.
	Median metrics.Quantile `json:"median_ms"`
	// Margin is the margin in ms.
	Margin  float64 `json:"margin_ms"`
	Verdict Verdict `json:"verdict"`
}

// Interval is a two-sided interval in ms.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Timing is a compared duration, or why there is none.
type Timing struct {
	*Difference
	Withheld string `json:"withheld,omitempty"`
}

// duration reads a duration of a request in ns, nil if there is none.
type duration func(ledger.Entry) *int64

func clientLatency(e ledger.Entry) *int64 { return e.Client.LatencyNS }

func taskCall(e ledger.Entry) *int64 {
	if e.Server == nil {
		return nil
	}
	return e.Server.TaskCallNS
}

// difference compares a duration of matched sides; margin is in percent of the
// faster side's mean.
func difference(a, b side, of duration, margin float64) Timing {
	x, y := table(a, of), table(b, of)
	var pairs []float64 // differences in ms
	d := Difference{Unit: perRequest}
	for i := range x.requests {
		if math.IsNaN(x.requests[i]) != math.IsNaN(y.requests[i]) {
			return Timing{Withheld: "the duration of a request is known on one side only"}
		}
		if !math.IsNaN(x.requests[i]) {
			pairs = append(pairs, y.requests[i]-x.requests[i])
			d.MeanA += x.requests[i]
			d.MeanB += y.requests[i]
		}
	}
	if len(pairs) == 0 {
		return Timing{Withheld: "no request completed with this duration"}
	}
	n := float64(len(pairs))
	d.Requests, d.MeanA, d.MeanB = len(pairs), d.MeanA/n, d.MeanB/n
	d.Mean = d.MeanB - d.MeanA
	if faster := min(d.MeanA, d.MeanB); faster > 0 {
		d.Percent, d.Margin = 100*d.Mean/faster, margin/100*faster
	}
	if len(x.samples) >= runsNeeded && len(y.samples) >= runsNeeded {
		d.Unit, d.Mean95 = perSample, welch(x.samples, y.samples)
	} else {
		d.Mean95 = paired(pairs)
	}
	d.Median = metrics.Describe(pairs).P50
	d.Verdict = judge(d.Mean95, d.Margin)
	return Timing{Difference: &d}
}

// judge places the interval beside the margin.
func judge(i *Interval, margin float64) Verdict {
	switch {
	case i == nil:
		return CannotTell
	case i.Low >= -margin && i.High <= margin:
		return Equal
	case i.Low > margin:
		return Worse
	case i.High < -margin:
		return Better
	}
	return CannotTell
}

// times are the means in ms of one side: of each measured request over the
// samples, NaN if it is not known in all, and of each sample over its requests.
type times struct{ requests, samples []float64 }

func table(s side, of duration) times {
	var t times
	for _, entries := range s.ledgers {
		sum, n, at := 0.0, 0, 0
		for _, e := range entries {
			if e.Phase != ledger.Measured {
				continue
			}
			if at == len(t.requests) {
				t.requests = append(t.requests, 0)
			}
			ms := math.NaN()
			if ns := of(e); e.Class == ledger.Completed && ns != nil {
				ms = float64(*ns) / 1e6
				sum += ms
				n++
			}
			t.requests[at] += ms / float64(len(s.ledgers))
			at++
		}
		if n > 0 {
			t.samples = append(t.samples, sum/float64(n))
		}
	}
	return t
}

// paired is the interval of the mean of paired differences; nil for a single one.
func paired(d []float64) *Interval {
	n := float64(len(d))
	if n < 2 {
		return nil
	}
	mean, variance := moments(d)
	return around(mean, math.Sqrt(variance/n), n-1)
}

// welch is the interval of the difference of two means, b minus a, with the
// degrees of freedom of Welch and Satterthwaite.
func welch(a, b []float64) *Interval {
	meanA, varA := moments(a)
	meanB, varB := moments(b)
	na, nb := float64(len(a)), float64(len(b))
	ea, eb := varA/na, varB/nb
	if ea+eb == 0 {
		return &Interval{meanB - meanA, meanB - meanA}
	}
	df := (ea + eb) * (ea + eb) / (ea*ea/(na-1) + eb*eb/(nb-1))
	return around(meanB-meanA, math.Sqrt(ea+eb), df)
}

func around(mean, deviation, df float64) *Interval {
	half := 0.0
	if deviation > 0 {
		half = deviation * studentQuantile((1+metrics.Confidence)/2, df)
	}
	return &Interval{mean - half, mean + half}
}

// moments are the mean and the unbiased variance of two values or more.
func moments(v []float64) (mean, variance float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	for _, x := range v {
		variance += (x - mean) * (x - mean)
	}
	return mean, variance / float64(len(v)-1)
}

// scope is the one scope of a side's task calls.
func scope(s side) (string, error) {
	found := ""
	for _, entries := range s.ledgers {
		for _, e := range entries {
			if e.Phase != ledger.Measured || e.Server == nil || e.Server.TaskCallNS == nil {
				continue
			}
			if found != "" && e.Server.Scope != found {
				return "", fmt.Errorf("%s times the scopes %s and %s", s.name, found, e.Server.Scope)
			}
			found = e.Server.Scope
		}
	}
	if found == "" {
		return "", fmt.Errorf("%s has no task calls", s.name)
	}
	return found, nil
}
