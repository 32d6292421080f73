package exports

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

// Run is one run of AIPerf as its files tell it.
type Run struct {
	Files []File
	// Reported is what AIPerf's summary says, nil without one that can be read.
	Reported *aiperf.Reported
	// Copies says that the files' own times are not those of the run.
	Copies bool
	// Strict makes a damaged record an error; otherwise it costs itself only.
	Strict bool

	dir      string
	summary  *aiperf.Summary
	manifest *aiperf.Manifest
	found    findings
	from, to int64 // Unix ns
}

// Plan is how many requests were to be sent, nil where no file says so.
type Plan struct {
	Warmup   *int `json:"warmup,omitempty"`
	Measured *int `json:"measured,omitempty"`
	// Source is where the numbers are from.
	Source string `json:"source"`
}

// Known reports whether both numbers are.
func (p Plan) Known() bool { return p.Warmup != nil && p.Measured != nil }

// readSmall reads the files that concern the run as a whole. None of them is
// needed, so one that cannot be read is a finding.
func (r *Run) readSmall() {
	if f := r.one(Summary); f != nil {
		reported, err := readFile(f, aiperf.ReadReported)
		if err != nil {
			r.unread(err)
		} else {
			r.Reported = reported
			if r.summary, err = readFile(f, aiperf.ReadSummary); err != nil {
				r.unread(err)
			}
		}
	}
	if f := r.one(Manifest); f != nil {
		var err error
		if r.manifest, err = readFile(f, aiperf.ReadManifest); err != nil {
			r.unread(err)
		}
	}
}

func readFile[T any](f *File, read func(io.Reader, string) (T, error)) (T, error) {
	in, err := os.Open(f.path)
	if err != nil {
		var none T
		return none, err
	}
	defer in.Close()
	return read(in, f.Name)
}

// Plan reads what was planned from the run's configuration, which the summary
// repeats, or else from AIPerf's log.
func (r *Run) Plan() Plan {
	if r.Reported != nil && len(r.Reported.Phases) > 0 {
		p := Plan{Source: "the run's configuration in " + r.one(Summary).Name}
		counts := map[string]int{}
		open := map[string]bool{} // bounded by something else: a duration, sessions
		for _, phase := range r.Reported.Phases {
			n, ok := phase.Planned()
			counts[phase.Kind] += n
			open[phase.Kind] = open[phase.Kind] || !ok
		}
		p.Warmup, p.Measured = known(counts, open, aiperf.Warmup), known(counts, open, aiperf.Profiling)
		return p
	}
	if f := r.one(Log); f != nil {
		if counts := logTargets(f); counts[aiperf.Profiling] > 0 {
			return Plan{Source: f.Name, Warmup: known(counts, nil, aiperf.Warmup), Measured: known(counts, nil, aiperf.Profiling)}
		}
	}
	return Plan{Source: "no file says so"}
}

func known(counts map[string]int, open map[string]bool, kind string) *int {
	if open[kind] {
		return nil
	}
	n := counts[kind]
	return &n
}

var logTarget = regexp.MustCompile(`Phase \S+ \((warmup|profiling)\) started .*target: (\d+) requests`)

// logTargets reads from the log how many requests each kind of phase was to send.
// A log can hold several runs: the last counts.
func logTargets(f *File) map[string]int {
	in, err := os.Open(f.path)
	if err != nil {
		return nil
	}
	defer in.Close()
	counts := map[string]int{}
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadSlice('\n') // of a longer line the rest is a line that says nothing
		if strings.Contains(string(line), "Starting AIPerf System") {
			clear(counts)
		}
		if m := logTarget.FindSubmatch(line); m != nil {
			n, _ := strconv.Atoi(string(m[2]))
			counts[string(m[1])] += n
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return counts
		}
	}
}

// Ledger closes the books on the run: it hands every entry to each, as
// ledger.Build does, and returns the summary, and the checks of whether the files
// belong together. What is to be said of the files is in Findings then. window is
// the server's context in tokens, 0 if not known. Where the plan is not known,
// what was dispatched is taken for it.
//
// The error is of files that cannot be read at all, and names each; a torn, too
// long or damaged record is a finding.
func (r *Run) Ledger(ctx context.Context, window int64, each func(*ledger.Entry) error) (ledger.Summary, []Check, error) {
	plan, err := r.closedPlan(ctx)
	if err != nil {
		return ledger.Summary{}, nil, err
	}
	w := newWitness()
	in := ledger.Input{
		Plan: plan, Summary: r.summary, ContextWindow: window, Conditions: r.conditions(),
		Client: w.requests(r.requests(ctx)),
	}
	if f := r.one(Figures); f != nil {
		in.Figures = w.figures(ctx, figures(ctx, *f), r.unread)
	}
	if files := r.of(Records); files != nil {
		in.Server = passing(r.Strict, records(ctx, files))
	}
	s, err := ledger.Build(in, each)
	if err != nil {
		return s, nil, err
	}
	if s.Counts[ledger.Measured][ledger.Completed] == 0 {
		r.found.add(NothingCompleted, ledger.Blocking, "", "%d measured requests, none of them completed", plan.Measured)
	}
	for _, e := range w.sent {
		if r.from == 0 || e.start < r.from {
			r.from = e.start
		}
		r.to = max(r.to, e.last)
	}
	return s, r.check(w, s), nil
}

// Extent is the time from the first dispatch to the last answer by the client's
// wall clock, zero if nothing was sent; it is known when the ledger is.
func (r *Run) Extent() (from, to time.Time) {
	if r.from == 0 {
		return from, to
	}
	return time.Unix(0, r.from).UTC(), time.Unix(0, r.to).UTC()
}

// Findings are about the files; those about requests are in the ledger's summary.
func (r *Run) Findings() []ledger.Finding { return r.found.list() }

// conditions are what the configuration tells beside the plan.
func (r *Run) conditions() ledger.Conditions {
	if r.Reported == nil {
		return ledger.Conditions{}
	}
	c := ledger.Conditions{Model: r.Reported.Model}
	if p := r.Reported.Measured(); p != nil && p.Type == "constant" && p.Rate != nil {
		c.Rate = *p.Rate
	}
	return c
}

// closedPlan is the plan with what was dispatched where it is not known.
func (r *Run) closedPlan(ctx context.Context) (ledger.Plan, error) {
	p := r.Plan()
	if !p.Known() {
		warmup, measured, err := r.count(ctx)
		if err != nil {
			return ledger.Plan{}, err
		}
		if warmup+measured == 0 {
			return ledger.Plan{}, fmt.Errorf("%s holds no request, and no file says how many were planned: nothing to audit", r.one(Raw).Name)
		}
		if p.Warmup == nil {
			p.Warmup = &warmup
		}
		if p.Measured == nil {
			p.Measured = &measured
		}
	}
	return ledger.Plan{Warmup: *p.Warmup, Measured: *p.Measured}, nil
}

// count counts the requests in the raw export.
func (r *Run) count(ctx context.Context) (warmup, measured int, err error) {
	for req, err := range r.requests(ctx) {
		phase := ""
		var gap *aiperf.Gap
		switch {
		case errors.As(err, &gap):
			phase = gap.Phase
		case err != nil:
			return 0, 0, err
		default:
			phase = req.Phase
		}
		if phase == aiperf.Warmup {
			warmup++
		} else {
			measured++
		}
	}
	return warmup, measured, nil
}

// requests yields the raw export. Every file is read, and every error that ends
// one is yielded.
func (r *Run) requests(ctx context.Context) iter.Seq2[*aiperf.Request, error] {
	return passing(r.Strict, concat(ctx, r.of(Raw), func(in io.Reader, name string) iter.Seq2[*aiperf.Request, error] {
		return aiperf.ReadRaw(in, name, maxLine)
	}))
}

// mostDamaged is how many damaged records may come before the first whole one: a
// file that begins otherwise is of something else.
const mostDamaged = 100

// passing makes a gap of each damaged record, if there are whole ones too.
func passing[T any](strict bool, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	if strict {
		return all
	}
	return func(yield func(T, error) bool) {
		var none T
		var damaged []error // as long as no record was whole
		whole := false
		for x, err := range all {
			switch corrupt := errors.As(err, new(*jsonl.CorruptError)); {
			case corrupt && whole:
				err = aiperf.GapOf(err)
			case corrupt:
				if damaged = append(damaged, err); len(damaged) < mostDamaged {
					continue
				}
				yield(none, damaged[0])
				return
			case err == nil && !whole:
				whole = true
				for _, err := range damaged {
					if !yield(none, aiperf.GapOf(err)) {
						return
					}
				}
			}
			if !yield(x, err) {
				return
			}
		}
		if !whole && damaged != nil {
			yield(none, damaged[0])
		}
	}
}

func records(ctx context.Context, files []File) iter.Seq2[*record.Record, error] {
	return concat(ctx, files, func(in io.Reader, name string) iter.Seq2[*record.Record, error] {
		return ledger.ReadServer(in, name, maxLine)
	})
}

// maxLine is in bytes; 0 is the reader's own maximum.
const maxLine = 0

func figures(ctx context.Context, f File) iter.Seq2[aiperf.Figures, error] {
	return concat(ctx, []File{f}, func(in io.Reader, name string) iter.Seq2[aiperf.Figures, error] {
		return aiperf.ReadFigures(in, name, maxLine)
	})
}

// concat yields the records of several files, one after the other, until ctx
// ends.
func concat[T any](ctx context.Context, files []File, read func(io.Reader, string) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, f := range files {
			if !readOne(ctx, f, read, yield) {
				return
			}
		}
	}
}

// readOne yields the records of one file; false ends the iteration.
func readOne[T any](ctx context.Context, f File, read func(io.Reader, string) iter.Seq2[T, error], yield func(T, error) bool) bool {
	var none T
	in, err := os.Open(f.path)
	if err != nil {
		return yield(none, err)
	}
	defer in.Close()
	for x, err := range read(in, f.Name) {
		if ctx.Err() != nil {
			yield(none, context.Cause(ctx))
			return false
		}
		if !yield(x, err) {
			return false
		}
	}
	return true
}

// path is where a name below the folder is.
func (r *Run) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }
