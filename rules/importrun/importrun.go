// Package importrun is the rule that takes in a run of AIPerf that was made
// elsewhere: its exports, and the server's records if there are any, become a
// sample of unknown origin, for join and publish. Nobody here saw the run, so it
// never qualifies anything; what its files do not show is listed with it.
package importrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/aiperfrun"
	"assay/rules/bundle"
	"assay/rules/internal/exports"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/ledger"
	"assay/rules/internal/rule"
	"assay/rules/internal/server"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// File is an Import, beside the sample's other files.
const File = "import.json"

// Import says of a sample where it is from.
type Import struct {
	Version int `json:"version"`
	// Origin is the note of whoever imported it.
	Origin      string `json:"origin"`
	AIPerf      string `json:"aiperf_version,omitempty"`
	BenchmarkID string `json:"benchmark_id,omitempty"`
	// Files are the digests of what was imported, by its name below the folder.
	Files map[string]digest.Digest `json:"files"`
	Plan  exports.Plan             `json:"plan"`
	// Findings are about the files; those about requests are the join's.
	Findings []ledger.Finding `json:"findings"`
	// Unknown is what the files do not show.
	Unknown []string `json:"unknown"`
}

// Read reads the Import of a sample, nil if the sample was made here.
func Read(sample string) (*Import, error) {
	var i Import
	err := jsonfile.Read(filepath.Join(sample, File), &i)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &i, err
}

// Rule is the rule `import_run`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "import_run", Version: 1,
		Doc: "Takes in a run of AIPerf that was made elsewhere, as a sample of unknown origin: for `join` and `publish`, never for a qualification. [Auditing](audit.md) tells what is checked.",
		Attrs: []schema.Attr{
			{Name: "files", Kind: schema.FileList, Required: true, Doc: "The files that AIPerf left, as `glob([\"runs/a/**\"])`: one run with its raw export. Where the folder is, is not in the key."},
			{Name: "records", Kind: schema.FileList, Doc: "The file of the server's records, and those that were rotated."},
			{Name: "origin", Kind: schema.String, Required: true, Pattern: `(?s).*\S.*`, PatternDoc: "a note", Doc: "Where the run is from, in a few words. It is published."},
			{Name: "context", Kind: schema.Int, Min: at(0), Max: at(1 << 24), Doc: "The server's context window in tokens, to tell cut prompts; 0 if it is not known."},
		},
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

// Roles of the inputs.
const (
	exportRole = "files/"
	recordRole = "records/"
)

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	names, problems := place(t.Files("files"))
	for file, name := range names {
		a.Sources = append(a.Sources, action.Source{Role: exportRole + name, Path: c.Path(file)})
	}
	slices.SortFunc(a.Sources, func(x, y action.Source) int { return strings.Compare(x.Role, y.Role) })
	c.SourceList(a, t, "records")
	records := map[string]bool{}
	for _, s := range a.Sources {
		if strings.HasPrefix(s.Role, recordRole) {
			if records[s.Role] {
				problems = append(problems, schema.Problem{Attr: "records", Message: fmt.Sprintf("two files are called %s", strings.TrimPrefix(s.Role, recordRole)), Hint: "rename one of them"})
			}
			records[s.Role] = true
		}
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		return take(ctx, run, t.String("origin"), t.Int("context"))
	}
	return problems
}

// take makes the sample: a folder by its id, as a measurement's are.
func take(ctx context.Context, run *action.Run, origin string, window int64) error {
	dir := filepath.Join(run.Out, sampleID(run.Inputs))
	imported := Import{Version: 1, Origin: origin, Files: map[string]digest.Digest{}}
	records := filepath.Join(dir, filepath.FromSlash(aiperfrun.Records))
	hasRecords := false
	for _, role := range slices.Sorted(maps.Keys(run.Inputs)) {
		if name, ok := strings.CutPrefix(role, exportRole); ok {
			imported.Files[name] = run.Inputs[role]
			if err := appendFile(ctx, filepath.Join(dir, aiperfrun.ClientDir, filepath.FromSlash(name)), run.Input(role)); err != nil {
				return err
			}
			continue
		}
		hasRecords = true
		imported.Files[role] = run.Inputs[role]
		if err := appendFile(ctx, records, run.Input(role)); err != nil {
			return err
		}
	}
	if !hasRecords {
		records = ""
	}
	r, err := exports.Open(filepath.Join(dir, aiperfrun.ClientDir), records)
	if err != nil {
		return err
	}
	r.Copies, r.Strict = true, true
	s, _, err := r.Ledger(ctx, window, func(*ledger.Entry) error { return nil })
	if err != nil {
		return err
	}
	imported.Plan, imported.Findings = r.Plan(), r.Findings()
	if err := readable(imported.Findings); err != nil {
		return err
	}
	if p := r.Reported; p != nil {
		imported.AIPerf, imported.BenchmarkID = p.Version, p.BenchmarkID
	}
	facts := describe(r, s.Plan, int(window))
	facts.Started, facts.Finished = r.Extent()
	imported.Unknown = unknown(r, hasRecords, window)
	return errors.Join(
		jsonfile.Write(filepath.Join(dir, aiperfrun.SampleFile), facts),
		jsonfile.Write(filepath.Join(dir, File), imported),
	)
}

// sampleID is the same for the same files, wherever they lie.
func sampleID(inputs map[string]digest.Digest) string {
	var list strings.Builder
	for _, role := range slices.Sorted(maps.Keys(inputs)) {
		fmt.Fprintf(&list, "%s %s\n", inputs[role], role)
	}
	return "imported-" + digest.FromString(list.String()).Encoded()[:12]
}

// readable refuses what the join would stumble over.
func readable(findings []ledger.Finding) error {
	for _, f := range findings {
		if f.Code == exports.UnreadFile {
			var errs []error
			for _, e := range f.Evidence {
				errs = append(errs, errors.New(e.Detail))
			}
			return fmt.Errorf("%w\nleave what cannot be read out of `files` to import the run without it", errors.Join(errs...))
		}
	}
	return nil
}

// describe says what was run as far as the files do.
func describe(r *exports.Run, plan ledger.Plan, window int) aiperfrun.Sample {
	s := aiperfrun.Sample{
		Version:  1,
		Workload: aiperfrun.Workload{Requests: int64(plan.Measured), Warmup: int64(plan.Warmup)},
		Server:   server.Spec{Version: 1, Context: window},
		Bundle:   bundle.Info{Version: 1, Context: window},
		Network:  "not known",
	}
	p := r.Reported
	if p == nil {
		return s
	}
	s.Server.Model, s.Bundle.Model = p.Model, p.Model
	w := &s.Workload
	w.Endpoint, w.Streaming = p.Endpoint, p.Streaming
	w.InputTokens, w.OutputTokens, w.Seed = whole(p.InputTokens), whole(p.OutputTokens), whole(p.Seed)
	if m := p.Measured(); m != nil {
		w.Concurrency = whole(m.Concurrency)
		if m.Rate != nil {
			w.RequestRate, w.Arrival = *m.Rate, m.Type
		}
	}
	return s
}

func whole(v *float64) int64 {
	if v == nil {
		return 0
	}
	return int64(*v)
}

// unknown lists what nobody can say of a run by its files.
func unknown(r *exports.Run, records bool, window int64) []string {
	list := []string{
		"which model file was served, and whether its answers are right: no bundle, no validation",
		"the machine, its load, and which CPUs server and load generator had",
		"the packages that were installed, beside the version that AIPerf gives itself",
		"how AIPerf ended, and whether the files are whole and unchanged since",
	}
	if !records {
		list = append(list, "the server's side: no native time, and no proof that the answers are those it gave")
	}
	if window == 0 {
		list = append(list, "the server's context window: prompts that were cut may not be told")
	}
	if r.Reported == nil {
		list = append(list, "the configuration of the run: there is no summary")
	}
	if p := r.Plan(); !p.Known() {
		list = append(list, "how many requests were planned: those that were dispatched are taken for the plan")
	}
	return list
}

// appendFile puts a file behind what is there already. What it appends to ends
// with a newline, so that no record is glued to another.
func appendFile(ctx context.Context, to, from string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	last := make([]byte, 1)
	switch size, err := out.Seek(0, io.SeekEnd); {
	case err != nil:
		return err
	case size > 0:
		if _, err := out.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			if _, err := out.Write([]byte{'\n'}); err != nil {
				return err
			}
		}
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
