// Package join is the rule that closes the books on the samples of a run: every
// planned request in exactly one class, the client's records joined with the
// server's by request id, and the figures that follow. It is pure, so anyone can
// derive the figures again from the same samples.
package join

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/aiperfrun"
	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/rule"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Places in the output.
const (
	File = "join.json" // a Joined
	// LedgerDir has one file a sample, ID.jsonl, with one line a request.
	LedgerDir = "ledger"
)

// Joined is join.json: the row that the samples of one run give.
type Joined struct {
	Version int         `json:"version"`
	Row     metrics.Row `json:"row"`
	Samples []Sample    `json:"samples"`
}

// Sample is the account of one sample.
type Sample struct {
	ID string `json:"id"`
	// Facts say what was run, with what and where.
	Facts  aiperfrun.Sample `json:"facts"`
	Ledger ledger.Summary   `json:"ledger"`
	// AIPerf is what AIPerf's own summary counts; nil if it wrote none.
	AIPerf *Counts `json:"aiperf,omitempty"`
	// Dataset identifies the requests as they were sent: the digest of their
	// bodies' digests, in the order of the ledger.
	Dataset digest.Digest `json:"dataset"`
}

// Counts are the measured requests in AIPerf's words.
type Counts struct {
	Successes int64 `json:"successes"`
	Errors    int64 `json:"errors"`
}

// Rule is the rule `join`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "join", Version: 1,
		Doc: "Joins the samples of a run into a closed ledger and figures.",
		Attrs: []schema.Attr{
			{Name: "run", Kind: schema.Label, Required: true, Rules: []string{"aiperf_run"}, Doc: "The run whose samples are joined."},
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	run, _ := c.Dep(t, "run")
	a.Deps = []action.Dep{{Role: "samples", ID: run.Label.String()}}
	a.Run = func(ctx context.Context, run *action.Run) error {
		return joinSamples(ctx, run.Input("samples"), run.Out)
	}
	return nil
}

func joinSamples(ctx context.Context, in, out string) error {
	entries, err := os.ReadDir(in) // by name: the oldest sample first
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(out, LedgerDir), 0o755); err != nil {
		return err
	}
	joined := Joined{Version: 1}
	var ledgers []*ledger.Ledger
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		sample, closed, err := joinOne(filepath.Join(in, e.Name()), e.Name())
		if err != nil {
			return fmt.Errorf("sample %s: %w", e.Name(), err)
		}
		joined.Samples = append(joined.Samples, sample)
		ledgers = append(ledgers, closed)
		if err := writeLedger(filepath.Join(out, LedgerDir, e.Name()+".jsonl"), closed.Entries); err != nil {
			return err
		}
	}
	joined.Row = metrics.Compute(ledgers...)
	return jsonfile.Write(filepath.Join(out, File), joined)
}

func joinOne(dir, id string) (Sample, *ledger.Ledger, error) {
	s := Sample{ID: id}
	if err := jsonfile.Read(filepath.Join(dir, aiperfrun.SampleFile), &s.Facts); err != nil {
		return s, nil, err
	}
	probes, err := aiperfrun.ReadProbes(dir)
	if err != nil {
		return s, nil, err
	}
	input := ledger.Input{
		Probes:        asRequests(probes),
		Plan:          ledger.Plan{Probe: len(probes), Warmup: int(s.Facts.Workload.Warmup), Measured: int(s.Facts.Workload.Requests)},
		Exit:          ledger.Exit{Code: s.Facts.ClientExit},
		ContextWindow: int64(s.Facts.Server.Context),
		PromptCache:   s.Facts.Server.PromptCache,
	}
	records, err := os.Open(filepath.Join(dir, aiperfrun.Records))
	if err != nil {
		return s, nil, err
	}
	defer records.Close()
	input.Server = ledger.ReadServer(records, aiperfrun.Records, 0)

	client := filepath.Join(dir, aiperfrun.ClientDir)
	names, err := aiperf.RawFiles(os.DirFS(client))
	if err != nil {
		return s, nil, err
	}
	input.Client = func(yield func(*aiperf.Request, error) bool) {
		for _, name := range names {
			if !readRaw(filepath.Join(client, name), aiperfrun.ClientDir+"/"+name, yield) {
				return
			}
		}
	}
	figures, err := openIfThere(filepath.Join(dir, aiperfrun.Figures))
	if err != nil {
		return s, nil, err
	}
	if figures != nil {
		defer figures.Close()
		input.Figures = aiperf.ReadFigures(figures, aiperfrun.Figures, 0)
	}
	summary, err := openIfThere(filepath.Join(dir, aiperfrun.Summary))
	if err != nil {
		return s, nil, err
	}
	if summary != nil {
		defer summary.Close()
		if input.Summary, err = aiperf.ReadSummary(summary, aiperfrun.Summary); err != nil {
			return s, nil, err
		}
		s.AIPerf = counts(input.Summary)
	}
	closed, err := ledger.Build(input)
	if err != nil {
		return s, nil, err
	}
	s.Ledger, s.Dataset = closed.Summary, dataset(closed.Entries)
	return s, closed, nil
}

// asRequests puts probes into the form of the load generator's records.
func asRequests(probes []aiperfrun.Probe) iter.Seq2[*aiperf.Request, error] {
	return func(yield func(*aiperf.Request, error) bool) {
		for i, p := range probes {
			status, zero, end := int64(p.Status), int64(0), p.LatencyNS
			r := &aiperf.Request{
				File: aiperfrun.Probes, Line: int64(i + 1), ID: p.ID, StartWallNS: p.SentWallNS, StartPerfNS: &zero, Status: &status,
				Response: aiperf.Response{
					Bodies: 1, Choice: true, Text: p.Text, SHA256: p.TextSHA256, FinishReason: p.FinishReason,
					FirstPerfNS: &end, LastPerfNS: &end,
					Usage: aiperf.Usage{Prompt: p.PromptTokens, Completion: p.CompletionTokens},
				},
			}
			if p.Text != "" {
				r.Response.Chunks = []aiperf.Chunk{{PerfNS: end, TextSize: len(p.Text)}}
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func dataset(entries []ledger.Entry) digest.Digest {
	var bodies strings.Builder
	for _, e := range entries {
		if e.Client != nil && e.Client.BodySHA256 != "" {
			bodies.WriteString(e.Client.BodySHA256 + "\n")
		}
	}
	return digest.FromString(bodies.String())
}

// counts reads AIPerf's summary, which leaves out a count of 0.
func counts(s *aiperf.Summary) *Counts {
	var c Counts
	if s.Successes != nil {
		c.Successes = *s.Successes
	}
	if s.Errors != nil {
		c.Errors = *s.Errors
	}
	return &c
}

// readRaw yields the requests of one file; false ends the iteration.
func readRaw(path, name string, yield func(*aiperf.Request, error) bool) bool {
	f, err := os.Open(path)
	if err != nil {
		return yield(nil, err)
	}
	defer f.Close()
	for r, err := range aiperf.ReadRaw(f, name, 0) {
		if !yield(r, err) {
			return false
		}
	}
	return true
}

func openIfThere(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

func writeLedger(path string, entries []ledger.Entry) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := ledger.Write(f, entries); err != nil {
		return err
	}
	return f.Close()
}
