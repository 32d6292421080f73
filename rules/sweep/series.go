package sweep

import (
	"fmt"
	"strconv"

	"assay/rules/internal/rule"
	"assay/starlark/graph"
)

// Axes along which the load of a series grows.
const (
	Concurrency = "concurrency"  // of a closed loop
	RequestRate = "request_rate" // per second, of an open one
)

// Workload is what the cells of one series have in common.
type Workload struct {
	Server string `json:"server"` // label
	// Dataset is a label, empty for synthetic prompts; with one the tokens are 0, as
	// they are the data set's to say.
	Dataset      string `json:"dataset,omitempty"`
	Endpoint     string `json:"endpoint"`
	Mode         string `json:"mode"` // "buffered" or "streamed"
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"` // at most
	Axis         string `json:"axis"`
	// Arrival and MostInFlight are of an open loop.
	Arrival      string `json:"arrival,omitempty"`
	MostInFlight int64  `json:"most_in_flight,omitempty"`
}

// place is where a join stands in a sweep, by what its run is declared to be.
type place struct {
	Workload
	join, run string // labels
	name      string // of the run's target
	load      float64
}

// placeOf reads the place of a join off the graph; ok is false for a join of
// anything but an aiperf_run.
func placeOf(c *rule.Context, join *graph.Target) (place, bool) {
	run, _ := c.Dep(join, "run")
	if run.Rule.Name != "aiperf_run" {
		return place{}, false
	}
	server, _ := c.Dep(run, "server")
	p := place{join: join.Label.String(), run: run.Label.String(), name: run.Label.Name, Workload: Workload{
		Server: server.Label.String(), Endpoint: run.String("endpoint"), Mode: "buffered",
		InputTokens: run.Int("input_tokens"), OutputTokens: run.Int("output_tokens"),
	}}
	if run.Bool("streaming") {
		p.Mode = "streamed"
	}
	if data, ok := c.Dep(run, "dataset"); ok {
		p.Dataset, p.InputTokens, p.OutputTokens = data.Label.String(), 0, 0
	}
	p.Axis, p.load = Concurrency, float64(run.Int("concurrency"))
	if rate := run.Float("request_rate"); rate > 0 {
		p.Axis, p.load = RequestRate, rate
		p.Arrival, p.MostInFlight = run.String("arrival"), run.Int("concurrency")
	}
	return p, true
}

// at names a load in short.
func at(axis string, load float64) string {
	value := strconv.FormatFloat(load, 'f', -1, 64)
	if axis == RequestRate {
		return "rate=" + value + "/s"
	}
	return "c=" + value
}

// At names the load of a cell of the series in short, such as c=4.
func (w Workload) At(load float64) string { return at(w.Axis, load) }

func (w Workload) String() string {
	s := fmt.Sprintf("%s, %s", w.Endpoint, w.Mode)
	if w.Dataset != "" {
		return s + ", " + w.Dataset
	}
	s = fmt.Sprintf("%s, %d → %d tokens", s, w.InputTokens, w.OutputTokens)
	if w.Axis == RequestRate {
		s += fmt.Sprintf(", %s arrivals, at most %d in flight", w.Arrival, w.MostInFlight)
	}
	return s
}
