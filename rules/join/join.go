// Package join is the rule that closes the books on the samples of a run: every
// planned request in exactly one class, the client's records joined with the
// server's by request id, and the figures that follow. It is pure, so anyone can
// derive the figures again from the same samples.
package join

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/aiperfrun"
	"assay/rules/importrun"
	"assay/rules/internal/aiperf"
	"assay/rules/internal/dataset"
	"assay/rules/internal/exports"
	"assay/rules/internal/fidelity"
	"assay/rules/internal/joined"
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
	// LedgerDir has two files a sample, ID.jsonl and ID.parquet: the same joined
	// records, one line or row a request.
	LedgerDir = "ledger"
)

// Joined is join.json: the row that the samples of one run give.
type Joined struct {
	Version int         `json:"version"`
	Row     metrics.Row `json:"row"`
	Samples []Sample    `json:"samples"`
	// Chat is set for a data set of conversations.
	Chat *Chat `json:"chat,omitempty"`
}

// Sample is the account of one sample.
type Sample struct {
	ID string `json:"id"`
	// Facts say what was run, with what and where.
	Facts aiperfrun.Sample `json:"facts"`
	// Imported says where a sample is from that was not made here; the facts are
	// then no more than its files tell.
	Imported *importrun.Import `json:"imported,omitempty"`
	Ledger   ledger.Summary    `json:"ledger"`
	// AIPerf is what AIPerf's own summary counts; nil if it wrote none.
	AIPerf *Counts `json:"aiperf,omitempty"`
	// Replay says how true the replay of a recorded schedule was.
	Replay *fidelity.Report `json:"replay,omitempty"`
	// Dataset identifies the requests as they were sent: the digest of their
	// bodies' digests, in the order of the ledger.
	Dataset digest.Digest `json:"dataset"`
	// Answers is set where answers were judged by references.
	Answers *Answers `json:"answers,omitempty"`
}

// Counts are the measured requests in AIPerf's words.
type Counts struct {
	Successes int64 `json:"successes"`
	Errors    int64 `json:"errors"`
}

// Rule is the rule `join`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "join", Version: 3,
		Doc: "Joins the samples of a run into a closed ledger and figures.",
		Attrs: []schema.Attr{
			{Name: "run", Kind: schema.Label, Required: true, Rules: []string{"aiperf_run", "import_run"}, Doc: "The run whose samples are joined."},
			{Name: "latency_limit_ms", Kind: schema.Float, Min: at(0), Max: at(1e9), Doc: "The longest latency of a good request, for goodput; 0 for no limit."},
			{Name: "ttft_limit_ms", Kind: schema.Float, Min: at(0), Max: at(1e9), Doc: "The longest time to first token of a good request; 0 for no limit."},
			{Name: "itl_limit_ms", Kind: schema.Float, Min: at(0), Max: at(1e9), Doc: "The longest mean gap between the tokens of a good request; 0 for no limit."},
			{Name: "lag_p50_limit_ms", Kind: schema.Float, Default: 10.0, Min: at(0), Max: at(1e9), Doc: "For a recorded schedule: half of the requests may be sent later than that."},
			{Name: "lag_p99_limit_ms", Kind: schema.Float, Default: 100.0, Min: at(0), Max: at(1e9), Doc: "For a recorded schedule: one request in a hundred may be sent later than that."},
			{Name: "rate_tolerance", Kind: schema.Float, Default: 0.01, Min: at(0), Max: at(1), Doc: "For a recorded schedule: the share by which the send rate may differ from the offered one."},
			{Name: "family", Kind: schema.Label, Rules: []string{"family"}, Doc: "The family by whose criteria answers are judged that depend on earlier turns. Goes with `history_prompts` and `history_references`."},
			{Name: "history_prompts", Kind: schema.File, Doc: "JSON lines: histories that there are references for, in the form of the family's prompts; the id is CONVERSATION/TURN."},
			{Name: "history_references", Kind: schema.File, Doc: "JSON lines: the answers to them by the family's reference, in the form of its references."},
		},
		Check: checkAnswers,
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	run, _ := c.Dep(t, "run")
	a.Deps = []action.Dep{{Role: "samples", ID: run.Label.String()}}
	names := judgedBy(c, t, a)
	a.Run = func(ctx context.Context, run *action.Run) error {
		return joinSamples(ctx, run.Input("samples"), run.Out, limits(t), gates(t), &chat{run: run, names: names})
	}
	return nil
}

// limits is nil if there are none.
func limits(t *graph.Target) *metrics.Limits {
	var l metrics.Limits
	for name, to := range map[string]**float64{"latency_limit_ms": &l.LatencyMS, "ttft_limit_ms": &l.TTFTMS, "itl_limit_ms": &l.ITLMS} {
		if limit := t.Float(name); limit > 0 {
			*to = &limit
		}
	}
	if l == (metrics.Limits{}) {
		return nil
	}
	return &l
}

func joinSamples(ctx context.Context, in, out string, limits *metrics.Limits, gates fidelity.Limits, chat *chat) error {
	entries, err := os.ReadDir(in) // by name: the oldest sample first
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(out, LedgerDir), 0o755); err != nil {
		return err
	}
	all := Joined{Version: 1}
	figures := metrics.Builder{Limits: limits}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		sample, err := joinOne(filepath.Join(in, e.Name()), e.Name(), filepath.Join(out, LedgerDir), &figures, gates, chat)
		if err != nil {
			return fmt.Errorf("sample %s: %w", e.Name(), err)
		}
		all.Samples = append(all.Samples, sample)
	}
	all.Row, all.Chat = figures.Row(), chat.result()
	return jsonfile.Write(filepath.Join(out, File), all)
}

// joinOne writes the ledger of one sample into the folder to, and adds its entries to
// the figures.
func joinOne(dir, id, to string, row *metrics.Builder, gates fidelity.Limits, chat *chat) (Sample, error) {
	s := Sample{ID: id}
	if err := jsonfile.Read(filepath.Join(dir, aiperfrun.SampleFile), &s.Facts); err != nil {
		return s, err
	}
	var err error
	if s.Imported, err = importrun.Read(dir); err != nil {
		return s, err
	}
	probes, err := aiperfrun.ReadProbes(dir)
	if err != nil {
		return s, err
	}
	places, err := places(dir, &s.Facts.Workload)
	if err != nil {
		return s, err
	}
	replay, err := readReplay(dir, &s.Facts.Workload, gates)
	if err != nil {
		return s, err
	}
	input := ledger.Input{
		Probes:        asRequests(probes),
		Plan:          ledger.Plan{Probe: len(probes), Warmup: int(s.Facts.Workload.Warmup), Measured: int(s.Facts.Workload.Requests), Places: places},
		Exit:          ledger.Exit{Code: s.Facts.ClientExit},
		ContextWindow: int64(s.Facts.Server.Context),
		PromptCache:   s.Facts.Server.PromptCache,
		Conditions:    conditions(&s),
		Due:           replay.plannedTimes(),
	}
	records, err := os.Open(filepath.Join(dir, aiperfrun.Records))
	switch {
	case err == nil:
		defer records.Close()
		input.Server = ledger.ReadServer(records, aiperfrun.Records, 0)
	case s.Imported == nil || !errors.Is(err, fs.ErrNotExist):
		return s, err
	}

	client := filepath.Join(dir, aiperfrun.ClientDir)
	names, err := aiperf.RawFiles(os.DirFS(client))
	if err != nil {
		return s, err
	}
	input.Client = func(yield func(*aiperf.Request, error) bool) {
		for _, name := range names {
			if !readRaw(filepath.Join(client, name), aiperfrun.ClientDir+"/"+name, yield) {
				return
			}
		}
	}
	follower, err := chat.follow(dir, &s.Facts.Workload)
	if err != nil {
		return s, err
	}
	if follower != nil {
		input.Inspector, input.Client = follower, follower.tap(input.Client)
	}
	figures, err := openIfThere(filepath.Join(dir, aiperfrun.Figures))
	if err != nil {
		return s, err
	}
	if figures != nil {
		defer figures.Close()
		input.Figures = replay.watch(aiperf.ReadFigures(figures, aiperfrun.Figures, 0))
	}
	summary, err := openIfThere(filepath.Join(dir, aiperfrun.Summary))
	if err != nil {
		return s, err
	}
	if summary != nil {
		defer summary.Close()
		if input.Summary, err = aiperf.ReadSummary(summary, aiperfrun.Summary); err != nil {
			return s, err
		}
		s.AIPerf = counts(input.Summary)
	}
	s.Ledger, s.Dataset, err = closeBooks(input, to, id, row, replay)
	if s.Imported != nil {
		s.Ledger.Findings = exports.Merge(s.Ledger.Findings, s.Imported.Findings)
	}
	if follower != nil && follower.judge != nil {
		s.Answers = &follower.judge.Answers
	}
	row.Sample(s.Ledger)
	s.Replay = replay.report(&s.Ledger)
	return s, err
}

// closeBooks takes the entries where they go, one at a time: into both files of the
// ledger, the row and the digest of the dataset.
func closeBooks(input ledger.Input, to, id string, row *metrics.Builder, replay *replay) (ledger.Summary, digest.Digest, error) {
	lines, err := os.Create(filepath.Join(to, id+".jsonl"))
	if err != nil {
		return ledger.Summary{}, "", err
	}
	defer lines.Close()
	table, err := os.Create(filepath.Join(to, id+".parquet"))
	if err != nil {
		return ledger.Summary{}, "", err
	}
	defer table.Close()
	w, t, bodies := ledger.NewWriter(lines), joined.NewWriter(table, id), digest.SHA256.Digester()
	summary, err := ledger.Build(input, func(e *ledger.Entry) error {
		row.Add(e)
		replay.add(e)
		if e.Client != nil && e.Client.BodySHA256 != "" {
			io.WriteString(bodies.Hash(), e.Client.BodySHA256+"\n")
		}
		return errors.Join(w.Write(e), t.Write(e))
	})
	if err == nil {
		err = errors.Join(w.Flush(), t.Close(), lines.Close(), table.Close())
	}
	return summary, bodies.Digest(), err
}

// places names the requests of a sample that sent a data set, nil for any other:
// those of its warm-up are the first of the plan.
func places(dir string, w *aiperfrun.Workload) (map[ledger.Phase][]ledger.Place, error) {
	if w.Dataset == nil {
		return nil, nil
	}
	plan, err := dataset.ReadPlan(filepath.Join(dir, aiperfrun.DatasetDir))
	if err != nil {
		return nil, err
	}
	if int64(len(plan)) != w.Warmup+w.Requests {
		return nil, fmt.Errorf("%s: %d requests are planned, the workload has %d", dataset.PlanFile, len(plan), w.Warmup+w.Requests)
	}
	all := make([]ledger.Place, len(plan))
	for i, p := range plan {
		all[i] = ledger.Place{Conversation: p.Conversation, Turn: p.Turn}
	}
	return map[ledger.Phase][]ledger.Place{ledger.Warmup: all[:w.Warmup], ledger.Measured: all[w.Warmup:]}, nil
}

// asRequests puts probes into the form of the load generator's records.
func asRequests(probes []aiperfrun.Probe) iter.Seq2[*aiperf.Request, error] {
	return func(yield func(*aiperf.Request, error) bool) {
		for i, p := range probes {
			status, zero, end := int64(p.Status), int64(0), p.LatencyNS
			r := &aiperf.Request{
				File: aiperfrun.Probes, Line: int64(i + 1), ID: p.ID, StartWallNS: p.SentWallNS, StartPerfNS: &zero, Status: &status,
				Response: aiperf.Response{
					Bodies: 1, Choice: true, Text: p.Text, SHA256: sha256.Sum256([]byte(p.Text)), FinishReason: p.FinishReason,
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
