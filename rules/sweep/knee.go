package sweep

import (
	"fmt"
	"slices"
	"strings"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/stats"
)

// Knee is the load up to which more load pays: where power, the throughput of
// completed requests divided by their mean latency, is greatest: the measure of
// Kleinrock (1979), by the name of Ramakrishnan and Jain (1988). For a server with
// one queue (M/M/1) it is half the capacity; for one that serves at full speed until
// it is saturated it is where the bounds of Little's law meet.
//
// Power needs no smoothing and no threshold, and unlike the distance from a chord
// (Kneedle) it does not move when a cell of higher load is added.
type Knee struct {
	// Load of the cell with the knee, null if nobody can tell.
	Load *float64 `json:"load"`
	Cell string   `json:"cell,omitempty"`
	// Low and High are the loads of the neighbouring cells: the greatest power of all
	// loads lies between them if power rises to a peak and falls.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Absent says why nobody can tell, Note how little is known.
	Absent string `json:"absent,omitempty"`
	Note   string `json:"note,omitempty"`
}

// pointsNeeded is how many loads a peak takes: one on either side of it.
const pointsNeeded = 3

// point is a cell as the knee sees it.
type point struct {
	name       string
	load       float64
	throughput float64 // completed requests per second
	latency    float64 // mean of completed requests, s
	samples    []float64
	overloaded bool // too many requests did not complete: its latency is that of the lucky ones
}

func (p point) power() float64 { return p.throughput / p.latency }

// pointOf reads a point; why says what is missing.
func pointOf(row *metrics.Row) (p point, why string) {
	switch n := row.Counts[ledger.Completed]; {
	case n == 0:
		return p, "no request completed"
	case n < metrics.Floor(.5):
		return p, fmt.Sprintf("%d completed requests are too few (needs %d)", n, metrics.Floor(.5))
	case row.RequestsPerS == nil || row.LatencyMS.Mean == nil:
		return p, "throughput or latency is not known"
	case *row.RequestsPerS <= 0 || *row.LatencyMS.Mean <= 0:
		return p, "throughput or latency is 0"
	}
	p.throughput, p.latency = *row.RequestsPerS, *row.LatencyMS.Mean/1e3
	rates, latencies := row.Repeats.RequestsPerS.Values, row.Repeats.LatencyMS.Values
	if len(rates) == row.Samples && len(latencies) == row.Samples {
		for i := range rates {
			if latencies[i] > 0 {
				p.samples = append(p.samples, rates[i]/latencies[i]*1e3)
			}
		}
	}
	return p, ""
}

// findKnee looks for the peak of power among points in order of their load.
func findKnee(w Workload, points []point) Knee {
	names := func(list []point) string {
		var at []string
		for _, p := range list {
			at = append(at, w.At(p.load))
		}
		return strings.Join(at, " and ")
	}
	// Behind the first overload lies no knee, but it bounds the knee from above.
	eligible := points
	if i := slices.IndexFunc(points, func(p point) bool { return p.overloaded }); i >= 0 {
		points, eligible = points[:i+1], points[:i]
	}
	switch {
	case len(eligible) == 0 && len(points) > 0:
		return Knee{Absent: fmt.Sprintf("cannot tell: too many errors from the lowest load on, %s", names(points))}
	case len(points) < pointsNeeded:
		return Knee{Absent: fmt.Sprintf("cannot tell: %d of the loads can be judged (needs %d)", len(points), pointsNeeded)}
	}
	best := 0
	for i, p := range eligible {
		if p.power() > eligible[best].power() {
			best = i
		}
	}
	// No concurrency is lower than 1.
	lowest := w.Axis == Concurrency && eligible[0].load == 1
	switch {
	case best == len(points)-1:
		return Knee{Absent: fmt.Sprintf("cannot tell: power still rises at the highest load, %s", names(eligible[best:]))}
	case best == 0 && !lowest:
		return Knee{Absent: fmt.Sprintf("cannot tell: power falls from the lowest load on, %s", names(eligible[:1]))}
	}
	claim := true
	for _, p := range eligible {
		claim = claim && len(p.samples) >= metrics.ClaimSamples
	}
	for i := 1; i < len(eligible); i++ {
		rises := eligible[i].power() > eligible[i-1].power()
		doubtful := claim && stats.Welch(eligible[i-1].samples, eligible[i].samples).Level(0) > 1-metrics.Confidence
		if rises != (i <= best) && !doubtful {
			return Knee{Absent: "cannot tell: power rises and falls more than once"}
		}
	}
	if claim {
		if rivals := rivals(eligible, best); len(rivals) > 0 {
			return Knee{Absent: fmt.Sprintf("cannot tell: power at %s may be as great as at %s", names(rivals), names(eligible[best:best+1]))}
		}
	}
	k := Knee{Load: &eligible[best].load, Cell: eligible[best].name, Low: &eligible[max(0, best-1)].load, High: &points[best+1].load}
	if !claim {
		k.Note = fmt.Sprintf("an estimate and no claim: that takes %d samples of each cell", metrics.ClaimSamples)
	}
	return k
}

// rivals are the points whose power is not known to be less than that of the best.
// The levels are adjusted by Holm's method, as several are judged at once.
func rivals(points []point, best int) []point {
	var others []point
	var p []float64
	for i, other := range points {
		if i != best {
			others = append(others, other)
			p = append(p, stats.Welch(other.samples, points[best].samples).Level(0))
		}
	}
	var list []point
	for i, level := range stats.Holm(p, 1-metrics.Confidence) {
		if p[i] > level {
			list = append(list, others[i])
		}
	}
	return list
}
