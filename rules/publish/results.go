package publish

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/rules/aiperfrun"
	"assay/rules/checkpoint"
	"assay/rules/compare"
	"assay/rules/importrun"
	"assay/rules/internal/fidelity"
	"assay/rules/internal/host"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/server"
	"assay/rules/internal/status"
	"assay/rules/internal/testbed"
	"assay/rules/join"
	"assay/rules/pythonenv"
	"assay/rules/sweep"
	"assay/rules/validatefamily"
)

// ResultsSchema is the version of results.json. It is raised when the meaning of
// a field changes or a field goes away.
const ResultsSchema = 1

// Results is results.json.
type Results struct {
	Schema int    `json:"schema"`
	Title  string `json:"title"`
	Rows   []Row  `json:"rows"`
	// Inventory is the matrix that the rows belong to, if one is published.
	Inventory *Matrix `json:"inventory,omitempty"`
	// Sweeps are series of growing load. Their cells are among the rows, as far as they
	// were measured.
	Sweeps []sweep.Sweep `json:"sweeps,omitempty"`
	// Comparisons are of runs with matched work, or say why it was not.
	Comparisons []compare.Comparison `json:"comparisons,omitempty"`
	Definitions map[string]string    `json:"definitions"`
}

// Status is how far a row has come.
type Status = status.Status

// Row is one checkpoint, profile and workload.
type Row struct {
	Status  Status  `json:"status"`
	Model   string  `json:"model"`
	Family  string  `json:"family"`
	Profile Profile `json:"profile"`
	// Endpoint is "chat" or "completions", Mode "buffered" or "streamed".
	Endpoint string             `json:"endpoint"`
	Mode     string             `json:"mode"`
	Workload aiperfrun.Workload `json:"workload"`
	Server   server.Spec        `json:"server"`
	Figures  metrics.Row        `json:"figures"`
	Samples  []Sample           `json:"samples"`
	// Chat has the turns of a row of conversations.
	Chat *join.Chat `json:"chat,omitempty"`
	// Imported says where the run is from if it was not made here.
	Imported *importrun.Import `json:"imported,omitempty"`
	// Gaps are what this row does not show.
	Gaps []string `json:"gaps"`
}

// Profile is one way to build and run a checkpoint.
type Profile struct {
	Precision      string            `json:"precision"`
	Context        int               `json:"context"` // tokens
	TensorParallel int               `json:"tensor_parallel"`
	Licence        string            `json:"licence"`
	Bundle         digest.Digest     `json:"bundle"`
	ServedFile     digest.Digest     `json:"served_file"`
	Origin         checkpoint.Source `json:"origin"`
	// ClaimedRevision is the upstream revision that the origin claims.
	ClaimedRevision string `json:"claimed_revision,omitempty"`
}

// Sample is the provenance and the account of one sample.
type Sample struct {
	ID       string                                `json:"id"`
	Started  time.Time                             `json:"started"`
	Finished time.Time                             `json:"finished"`
	Source   host.Revision                         `json:"source"`
	Packages []pythonenv.Wheel                     `json:"packages"`
	Python   string                                `json:"python"`
	Host     Hardware                              `json:"host"`
	CPUs     testbed.CPUs                          `json:"cpus"`
	Network  string                                `json:"network"`
	Quiet    host.Quiet                            `json:"quiet"`
	Commands map[string][]string                   `json:"commands"`
	Exit     int                                   `json:"client_exit"`
	Dataset  digest.Digest                         `json:"dataset"`
	Counts   map[ledger.Phase]map[ledger.Class]int `json:"counts"`
	Reasons  map[ledger.Reason]int                 `json:"failed_by_reason"`
	Server   map[string]int                        `json:"server_outcomes"`
	Join     ledger.Quality                        `json:"join_quality"`
	AIPerf   *join.Counts                          `json:"aiperf,omitempty"`
	// Validation is the verdict that the sample was made under, if one was required.
	Validation *aiperfrun.Validation `json:"validation,omitempty"`
	// Replay says how true the replay of a recorded schedule was.
	Replay *fidelity.Report `json:"replay,omitempty"`
	// Answers says how the answers were judged that depend on earlier turns.
	Answers  *join.Answers                     `json:"answers,omitempty"`
	Findings []ledger.Finding                  `json:"findings"`
	Measured struct{ Version, Sources string } `json:"measured_path"`
}

// Hardware is the machine, without what names it.
type Hardware struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Kernel       string `json:"kernel"`
	CPUModel     string `json:"cpu_model"`
	CPUs         int    `json:"cpus"`
	MemoryBytes  int64  `json:"memory_bytes"`
}

// newRow makes a row of a join.
func newRow(j join.Joined, verdicts []validatefamily.Verdict) (Row, error) {
	if len(j.Samples) == 0 {
		return Row{}, fmt.Errorf("a join without samples has nothing to publish")
	}
	f := j.Samples[0].Facts // the key makes all samples alike in what a row says
	row := Row{
		Model: f.Bundle.Model, Family: f.Bundle.Family,
		Profile: Profile{
			Precision: f.Bundle.Precision, Context: f.Bundle.Context, TensorParallel: f.Bundle.TensorParallel,
			Licence: f.Bundle.Licence, Bundle: f.Bundle.Digest, ServedFile: f.ServedFile,
			Origin: f.Bundle.Origin, ClaimedRevision: f.Bundle.Revision,
		},
		Endpoint: f.Workload.Endpoint, Mode: "buffered", Workload: f.Workload, Server: f.Server, Figures: j.Row, Chat: j.Chat,
	}
	if f.Workload.Streaming {
		row.Mode = "streamed"
	}
	if row.Imported = j.Samples[0].Imported; row.Imported != nil {
		row.Model, row.Endpoint = cmp.Or(row.Model, unknown), cmp.Or(row.Endpoint, unknown)
	}
	for _, s := range j.Samples {
		row.Samples = append(row.Samples, newSample(s))
	}
	row.Status = status.Of(status.Evidence{Bundle: &f.Bundle, Verdicts: verdicts, Join: &j})
	row.Gaps = gaps(row)
	return row, nil
}

func newSample(s join.Sample) Sample {
	f := s.Facts
	outcomes := map[string]int{}
	for outcome, n := range s.Ledger.ServerOutcomes {
		outcomes[string(outcome)] = n
	}
	sample := Sample{
		ID: s.ID, Started: f.Started, Finished: f.Finished, Source: f.Revision,
		Packages: f.Packages, Python: f.Interpreter,
		Host: Hardware{f.Host.OS, f.Host.Architecture, f.Host.Kernel, f.Host.CPUModel, f.Host.CPUs, f.Host.MemoryBytes},
		CPUs: f.CPUs, Network: f.Network, Quiet: f.Quiet, Commands: f.Commands, Exit: f.ClientExit, Dataset: s.Dataset,
		Counts: s.Ledger.Counts, Reasons: s.Ledger.Reasons, Server: outcomes, Join: s.Ledger.Quality,
		AIPerf: s.AIPerf, Validation: f.Validation, Replay: s.Replay, Answers: s.Answers, Findings: s.Ledger.Findings,
	}
	sample.Measured.Version, sample.Measured.Sources = f.MeasuredPath.Version, f.MeasuredPath.Sources
	return sample
}

// unknown stands where an imported run does not say something.
const unknown = "not known"

// Description is the profile in words.
func (p Profile) Description() string {
	if p.Bundle == "" {
		return "profile " + unknown
	}
	return fmt.Sprintf("%s, context %d tokens", p.Precision, p.Context)
}

// gaps lists what the row does not show, so that nobody has to guess.
func gaps(r Row) []string {
	if r.Imported != nil {
		return append([]string{"the run was not made here, and nobody here saw it: all of this rests on the files that were imported"}, r.Imported.Unknown...)
	}
	var list []string
	if r.Server.External() {
		list = append(list, "the bundle was not ours to check: the server ran already, and nothing shows what it had loaded")
	}
	if r.Server.Unverified() {
		list = append(list, status.Unverified(r.Server))
	}
	if r.Status.State == status.Implemented {
		list = append(list, "no passing validation: nothing is said about the answers being right by the family's criteria")
	}
	if r.Profile.ClaimedRevision != "" {
		list = append(list, "the upstream revision of the checkpoint is claimed, not proved")
	}
	if n := len(r.Samples); n < 5 {
		list = append(list, fmt.Sprintf("%d of the 5 repeats that a claim about speed needs; requests of one sample are not independent", n))
	}
	for _, s := range r.Samples {
		if s.CPUs.Shared {
			list = append(list, "sample "+s.ID+": server and load generator shared their CPUs")
		}
		if s.Source.Commit == "" {
			list = append(list, "sample "+s.ID+": the source revision is not known")
		} else if s.Source.Dirty == nil || *s.Source.Dirty {
			list = append(list, "sample "+s.ID+": the source tree had changes that are in no revision")
		}
	}
	return append(list,
		"what else the machine did was observed; above its limit it is the finding noisy_host, and rejects no sample",
		"the load was sent over the host's loopback interface, not in a network of its own")
}

// column is a column of results.csv.
type column struct {
	name  string
	value func(Row) string
}

var columns = append([]column{
	{"model", func(r Row) string { return r.Model }},
	{"precision", func(r Row) string { return r.Profile.Precision }},
	{"context_tokens", func(r Row) string { return strconv.Itoa(r.Profile.Context) }},
	{"endpoint", func(r Row) string { return r.Endpoint }},
	{"mode", func(r Row) string { return r.Mode }},
	{"concurrency", func(r Row) string { return strconv.FormatInt(r.Workload.Concurrency, 10) }},
	{"input_tokens", func(r Row) string { return strconv.FormatInt(r.Workload.InputTokens, 10) }},
	{"output_tokens", func(r Row) string { return strconv.FormatInt(r.Workload.OutputTokens, 10) }},
	{"status", func(r Row) string { return r.Status.String() }},
	{"samples", func(r Row) string { return strconv.Itoa(r.Figures.Samples) }},
	{"measured", func(r Row) string { return strconv.Itoa(r.Figures.Measured) }},
}, append(classColumns(), append(figureColumns(), []column{
	{"requests_per_s", func(r Row) string { return number(r.Figures.RequestsPerS) }},
	{"output_tokens_per_s", func(r Row) string { return number(r.Figures.OutputTokensPerS) }},
	{"goodput_share", func(r Row) string { return number(goodput(r).Value) }},
	{"goodput_per_s", func(r Row) string { return number(goodput(r).PerS) }},
	{"bundle", func(r Row) string { return r.Profile.Bundle.String() }},
	{"source_revision", func(r Row) string { return r.Samples[0].Source.Commit }},
}...)...)...)

func classColumns() []column {
	var list []column
	for _, class := range ledger.Classes {
		list = append(list, column{string(class), func(r Row) string { return strconv.Itoa(r.Figures.Counts[class]) }})
	}
	return list
}

// figure is a distribution that the report shows.
type figure struct {
	column, title string
	latency       func(metrics.Row) metrics.Latency
	streamed      bool // only streams have it
	seldom        bool // left out where no request has it
}

var figures = []figure{
	{"response_ms", "response from the planned time", func(r metrics.Row) metrics.Latency { return r.ResponseMS }, false, true},
	{"latency_ms", "client latency", func(r metrics.Row) metrics.Latency { return r.LatencyMS }, false, false},
	{"ttfb_ms", "time to first byte", func(r metrics.Row) metrics.Latency { return r.TTFBMS }, false, true},
	{"ttft_ms", "time to first token", func(r metrics.Row) metrics.Latency { return r.TTFTMS }, true, false},
	{"ttfo_ms", "time to first output", func(r metrics.Row) metrics.Latency { return r.TTFOMS }, true, true},
	{"itl_ms", "inter-token latency", func(r metrics.Row) metrics.Latency { return r.ITLMS }, true, false},
	{"icl_ms", "inter-chunk latency", func(r metrics.Row) metrics.Latency { return r.ICLMS }, true, true},
	{"task_call_ms", "native task call", func(r metrics.Row) metrics.Latency { return r.TaskCallMS }, false, false},
}

func figureColumns() []column {
	var list []column
	for _, f := range figures {
		list = append(list,
			column{f.column + "_mean", func(r Row) string { return number(f.latency(r.Figures).Mean) }},
			column{f.column + "_p50", func(r Row) string { return number(f.latency(r.Figures).P50.Value) }},
			column{f.column + "_p90", func(r Row) string { return number(f.latency(r.Figures).P90.Value) }},
			column{f.column + "_p95", func(r Row) string { return number(f.latency(r.Figures).P95.Value) }},
			column{f.column + "_p99", func(r Row) string { return number(f.latency(r.Figures).P99.Value) }},
			column{f.column + "_rejected_share", func(r Row) string { return number(f.latency(r.Figures).Rejected.Value) }},
		)
	}
	return list
}

func goodput(r Row) metrics.Goodput {
	if g := r.Figures.Goodput; g != nil {
		return *g
	}
	return metrics.Goodput{}
}

// number is empty for what was not measured.
func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

// encodeCSV writes results.csv: a header, and one line a row.
func encodeCSV(rows []Row) ([]byte, error) {
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i] = c.name
	}
	records := [][]string{header}
	for _, r := range rows {
		record := make([]string, len(columns))
		for i, c := range columns {
			record[i] = c.value(r)
		}
		records = append(records, record)
	}
	err := w.WriteAll(records)
	return buf.Bytes(), err
}
