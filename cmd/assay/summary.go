package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"assay/cache/cas"
	"assay/cache/durable"
	"assay/engine"
	"assay/engine/action"
	"assay/engine/event"
	"assay/rules/publish"
)

// resultsFile is the part of a publication that is compared.
const resultsFile = "results.json"

// publications are what targets had published before a build, by target.
type publications map[string]publication

// publication is the results.json of one, as far as there was one that could be
// read.
type publication struct {
	results *publish.Results
	err     error
}

// publications reads what is published now: what stands in the folder of each
// target, which may come from another machine, else what this checkout published
// last.
func (a *app) publications(eng *engine.Engine, actions []*action.Action) publications {
	found := publications{}
	for _, x := range actions {
		if x.Rule != publish.Rule.Schema.Name {
			continue
		}
		dir, _ := x.Attrs["dir"].(string)
		data, err := os.ReadFile(filepath.Join(a.workspace.root, filepath.FromSlash(dir), resultsFile))
		if errors.Is(err, fs.ErrNotExist) {
			last, ok := eng.History().Last(x.ID)
			if !ok {
				continue
			}
			data, err = resultsOf(eng, last.Output)
		}
		found[x.ID] = readResults(data, err)
	}
	return found
}

// resultsOf reads the results of a publication out of the store.
func resultsOf(eng *engine.Engine, tree cas.Ref) ([]byte, error) {
	entry, err := eng.Blobs().Lookup(tree, resultsFile)
	if err != nil {
		return nil, err
	}
	return eng.Blobs().Bytes(entry.Ref())
}

func readResults(data []byte, err error) publication {
	var r publish.Results
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Schema != publish.ResultsSchema {
		err = fmt.Errorf("its schema is %d, this assay writes %d", r.Schema, publish.ResultsSchema)
	}
	if err != nil {
		return publication{err: err}
	}
	return publication{results: &r}
}

// writeSummary writes the page for people who read a CI job: what ran and why,
// what the gates say, and which published numbers are other ones than before.
func (a *app) writeSummary(file string, eng *engine.Engine, r *engine.Report, before publications, closing string) error {
	var page strings.Builder
	fmt.Fprintf(&page, "# Assay build\n\n%s\n", closing)
	summarizeRuns(&page, r)
	summarizeGates(&page, r)
	for _, o := range r.Outcomes {
		if o.Action.Rule == publish.Rule.Schema.Name && o.Output.Digest != "" {
			data, err := resultsOf(eng, o.Output)
			summarizePublication(&page, o.Action, before[o.Action.ID], readResults(data, err))
		}
	}
	if file == "-" {
		_, err := fmt.Fprint(a.stdout, page.String())
		return err
	}
	return durable.WriteFile(file, []byte(page.String()), 0o644)
}

func summarizeRuns(page *strings.Builder, r *engine.Report) {
	var ran, errs strings.Builder
	var reused []string
	for _, o := range r.Outcomes {
		if o.Status == event.Cached || o.Status == event.GateFailed && o.Elapsed == 0 {
			reused = append(reused, code(o.Action.ID))
			continue
		}
		status, took := string(o.Status), ""
		if o.Samples > 0 {
			status += ", " + plural(o.Samples, "new sample")
		}
		if o.Elapsed > 0 {
			took = round(o.Elapsed).String()
		}
		why := o.Why.Reason
		for i, c := range o.Why.Changes {
			if i > 0 { // the first is the reason
				why += "; " + c.String()
			}
		}
		if o.Status == event.Blocked {
			why = o.Err.Error()
		}
		fmt.Fprintf(&ran, "| %s | %s | %s | %s |\n", code(o.Action.ID), status, took, cell(why))
		if o.Status == event.Failed {
			fmt.Fprintf(&errs, "\n%s", quoted("    ", o.Err))
		}
	}
	if ran.Len() > 0 {
		fmt.Fprintf(page, "\n## What ran, and why\n\n| target | | time | why |\n|---|---|--:|---|\n%s%s", ran.String(), errs.String())
	}
	if len(reused) > 0 {
		fmt.Fprintf(page, "\n## Reused\n\n%s: %s\n", plural(len(reused), "result"), strings.Join(reused, ", "))
	}
}

// summarizeGates tells of verdicts, and of samples that were rejected, which hold
// back what needs them all the same.
func summarizeGates(page *strings.Builder, r *engine.Report) {
	var list strings.Builder
	for _, o := range r.Outcomes {
		switch {
		case o.Status == event.GateFailed:
			fmt.Fprintf(&list, "* %s **did not pass**\n\n%s", code(o.Action.ID), quoted("      ", o.Err))
		case o.Action.Verdict != nil && o.Output.Digest != "":
			fmt.Fprintf(&list, "* %s passed\n", code(o.Action.ID))
		case o.Action.Verdict != nil:
			fmt.Fprintf(&list, "* %s has no verdict: %s\n", code(o.Action.ID), o.Status)
		}
	}
	if list.Len() > 0 {
		fmt.Fprintf(page, "\n## Gates\n\n%s", list.String())
	}
}

// summarizePublication compares a publication with the one before it.
func summarizePublication(page *strings.Builder, x *action.Action, before, now publication) {
	fmt.Fprintf(page, "\n## Published: %s in %s\n\n", code(x.ID), code(fmt.Sprint(x.Attrs["dir"])))
	switch {
	case now.err != nil:
		fmt.Fprintf(page, "Its results cannot be read: %v\n", now.err)
	case before.err != nil:
		fmt.Fprintf(page, "Not compared: what was published before cannot be read: %v\n", before.err)
	case before.results == nil:
		fmt.Fprintf(page, "First publication.\n\n%s", comparison(&publish.Results{}, now.results))
	default:
		page.WriteString(cmp.Or(comparison(before.results, now.results), "No change in the rows.\n"))
	}
}

// summaryFigure is what the summary compares of a row.
type summaryFigure struct {
	name  string
	value func(publish.Row) string
}

var summaryFigures = []summaryFigure{
	{"status", func(r publish.Row) string { return r.Status.String() }},
	{"bundle", func(r publish.Row) string { return r.Profile.Bundle.String() }},
	{"latency p50, ms", func(r publish.Row) string { q := r.Figures.LatencyMS.P50; return measured(q.Value, q.Absent) }},
	{"latency p90, ms", func(r publish.Row) string { q := r.Figures.LatencyMS.P90; return measured(q.Value, q.Absent) }},
	{"requests/s", func(r publish.Row) string { return measured(r.Figures.RequestsPerS, "") }},
	{"output tokens/s", func(r publish.Row) string { return measured(r.Figures.OutputTokensPerS, "") }},
	{"samples", func(r publish.Row) string { return strconv.Itoa(r.Figures.Samples) }},
	{"completed", func(r publish.Row) string {
		return fmt.Sprintf("%d of %d", r.Figures.Measured-r.Figures.NotCompleted.Count, r.Figures.Measured)
	}},
}

// measured is a number, or why there is none.
func measured(v *float64, absent string) string {
	switch {
	case v != nil:
		return strconv.FormatFloat(*v, 'f', 3, 64)
	case absent != "":
		return absent
	}
	return "not measured"
}

// namedRow is a row by what it stands for: model, profile and workload. Names are
// unique; rows that say the same of themselves, such as those of two servers, are
// numbered in their order.
type namedRow struct {
	name string
	publish.Row
}

func rowsOf(r *publish.Results) []namedRow {
	seen := map[string]int{}
	var rows []namedRow
	for _, row := range r.Rows {
		w := row.Workload
		name := fmt.Sprintf("%s %s, context %d, %s %s, %d → %d tokens, concurrency %d",
			row.Model, row.Profile.Precision, row.Profile.Context, row.Endpoint, row.Mode, w.InputTokens, w.OutputTokens, w.Concurrency)
		if n := row.Profile.TensorParallel; n > 1 {
			name += fmt.Sprintf(", on %d devices", n)
		}
		if w.RequestRate > 0 {
			name += fmt.Sprintf(", %g requests/s", w.RequestRate)
		}
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf(" (%d)", seen[name])
		}
		rows = append(rows, namedRow{name, row})
	}
	return rows
}

// comparison is a table of the rows in which something is not what it was; ""
// if there are none.
func comparison(before, now *publish.Results) string {
	var table strings.Builder
	old := map[string]publish.Row{}
	for _, r := range rowsOf(before) {
		old[r.name] = r.Row
	}
	for _, r := range rowsOf(now) {
		was, ok := old[r.name]
		delete(old, r.name)
		var lines strings.Builder
		changed := false
		for _, f := range summaryFigures {
			from, to := "–", f.value(r.Row)
			if ok {
				from = f.value(was)
			}
			changed = changed || from != to
			fmt.Fprintf(&lines, "| %s | %s | %s | %s |\n", cell(r.name), f.name, cell(from), cell(to))
		}
		if changed {
			table.WriteString(lines.String())
		}
	}
	for _, r := range rowsOf(before) {
		if _, gone := old[r.name]; gone {
			fmt.Fprintf(&table, "| %s | status | %s | no longer published |\n", cell(r.name), cell(r.Status.String()))
		}
	}
	if table.Len() == 0 {
		return ""
	}
	return "| row | | before | now |\n|---|---|---|---|\n" + table.String()
}

func code(s string) string { return "`" + s + "`" }

// cell makes text fit into a cell of a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

// quoted shows an error as it is, whatever is in it; the indent makes it code.
func quoted(indent string, err error) string {
	return indent + strings.ReplaceAll(strings.TrimRight(err.Error(), "\n"), "\n", "\n"+indent) + "\n"
}
