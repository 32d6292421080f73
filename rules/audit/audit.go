// Package audit checks a run of AIPerf that somebody already has: it closes the
// ledger on the files that AIPerf left, sets AIPerf's own summary beside it, and
// says what blocks, what is open and what cannot be known any more. It needs no
// workspace and writes nothing that it is not asked for.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"assay/rules/internal/exports"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

// Schema is the version of the JSON form of a Report. It is raised when the
// meaning of a field changes or a field goes away.
const Schema = 1

// Options say what is audited.
type Options struct {
	Dir     string // that AIPerf wrote
	Records string // the server's records; "" for records.jsonl in Dir, if it is there
	Context int64  // of the server, in tokens; 0 if not known
	Ledger  string // the file to write the ledger to; "" for none
}

// Report is what an audit says.
type Report struct {
	Schema int    `json:"schema"`
	Folder string `json:"folder"`
	Run    Run    `json:"run"`
	// Files are those that were found, Checks what tells whether they belong
	// together.
	Files  []exports.File  `json:"files"`
	Checks []exports.Check `json:"checks"`
	Plan   exports.Plan    `json:"plan"`
	// Ledger has the findings too.
	Ledger      ledger.Summary    `json:"ledger"`
	Figures     metrics.Row       `json:"figures"`
	Definitions map[string]string `json:"definitions"`
	// AIPerf is absent without a summary that can be read.
	AIPerf   *Beside `json:"aiperf_beside_ledger,omitempty"`
	Blocking int     `json:"blocking_findings"`
}

// Run is the run as its summary describes it; what is empty is not known.
type Run struct {
	AIPerf      string `json:"aiperf_version,omitempty"`
	BenchmarkID string `json:"benchmark_id,omitempty"`
	Model       string `json:"model,omitempty"`
	Endpoint    string `json:"endpoint,omitempty"`
	Streaming   bool   `json:"streaming"`
	// From and To are the first dispatch and the last answer, by the client's wall
	// clock.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
}

// Audit reads the run and reports. The error is of what cannot be read at all;
// it names every such file.
func Audit(ctx context.Context, o Options) (_ *Report, err error) {
	run, err := exports.Open(o.Dir, o.Records)
	if err != nil {
		return nil, err
	}
	out, err := newOutput(o.Ledger)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, out.end(err == nil)) }()

	var row metrics.Builder
	var ours tally
	r := &Report{Schema: Schema, Folder: o.Dir, Files: run.Files, Plan: run.Plan(), Definitions: metrics.Definitions}
	r.Ledger, r.Checks, err = run.Ledger(ctx, o.Context, func(e *ledger.Entry) error {
		row.Add(e)
		ours.add(e)
		return out.write(e)
	})
	if err != nil {
		return nil, err
	}
	r.Ledger.Findings = exports.Merge(r.Ledger.Findings, run.Findings())
	row.Sample(r.Ledger)
	r.Figures = row.Row()
	r.Run = describe(run)
	r.AIPerf = beside(run.Reported, r.Figures, &ours)
	for _, f := range r.Ledger.Findings {
		if f.Severity == ledger.Blocking {
			r.Blocking++
		}
	}
	return r, nil
}

func describe(run *exports.Run) Run {
	var d Run
	if p := run.Reported; p != nil {
		d = Run{AIPerf: p.Version, BenchmarkID: p.BenchmarkID, Model: p.Model, Endpoint: p.Endpoint, Streaming: p.Streaming}
	}
	if from, to := run.Extent(); !from.IsZero() {
		d.From, d.To = &from, &to
	}
	return d
}

// tally is what an audit counts beside the figures.
type tally struct {
	// successes are AIPerf's among the measured requests, wrong those of them that
	// are not completed, by class or reason.
	successes int
	wrong     map[string]int
}

func (t *tally) add(e *ledger.Entry) {
	if e.Client == nil || e.Phase != ledger.Measured || !e.Client.AIPerfSuccess {
		return
	}
	t.successes++
	if e.Class != ledger.Completed {
		if t.wrong == nil {
			t.wrong = map[string]int{}
		}
		t.wrong[cmp.Or(string(e.Reason), string(e.Class))]++
	}
}

// output is the file of the ledger, if one is wanted.
type output struct {
	file *os.File
	w    *ledger.Writer
}

// newOutput makes a file that is not there yet: a name that was mistyped must not
// cost an export.
func newOutput(name string) (*output, error) {
	if name == "" {
		return &output{w: ledger.NewWriter(io.Discard)}, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s exists; name a file for the ledger that does not", name)
	}
	if err != nil {
		return nil, err
	}
	return &output{f, ledger.NewWriter(f)}, nil
}

func (o *output) write(e *ledger.Entry) error {
	if o.file == nil {
		return nil
	}
	return o.w.Write(e)
}

// end closes the file, and removes half a ledger.
func (o *output) end(whole bool) error {
	if o.file == nil {
		return nil
	}
	err := errors.Join(o.w.Flush(), o.file.Close())
	if !whole || err != nil {
		err = errors.Join(err, os.Remove(o.file.Name()))
	}
	return err
}
