// Package publish is the rule that gives results to others: a directory with a
// report, tables and every request, and the same files as an OCI image layout.
// It refuses rather than leaks what is private.
package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
	"assay/cache/durable"
	"assay/engine/action"
	"assay/rules/compare"
	"assay/rules/internal/joined"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/internal/rule"
	"assay/rules/inventory"
	"assay/rules/join"
	"assay/rules/sweep"
	"assay/rules/validatefamily"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// sums lists the digests of all other files, for sha256sum --check.
const sums = "SHA256SUMS"

// marker makes a directory one that this rule may replace: what it lists was
// written by it, with these digests.
const marker = "assay-publication.json"

// publication is the content of the marker.
type publication struct {
	Schema int `json:"schema"`
	// Files maps names to digests, of all files but the marker.
	Files map[string]digest.Digest `json:"files"`
}

// Rule is the rule `publish`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "publish", Version: 6,
		Doc: "Publishes joins: report, tables, every request, and an OCI image layout.",
		Attrs: []schema.Attr{
			{Name: "joins", Kind: schema.LabelList, Rules: []string{"join"}, Doc: "What is published, a row each."},
			{Name: "sweeps", Kind: schema.LabelList, Rules: []string{"sweep"}, Doc: "Sweeps to show before the rows; their cells are rows too, as far as they were measured."},
			{Name: "validations", Kind: schema.LabelList, Rules: []string{"validate_family"}, Doc: "The validations that rows may rest on; a verdict counts only for the bundle that was served."},
			{Name: "comparisons", Kind: schema.LabelList, Rules: []string{"compare"}, Doc: "Comparisons to show after the rows."},
			{Name: "inventory", Kind: schema.Label, Rules: []string{"inventory"}, Doc: "The matrix to show before the rows, with the source revision it was published at."},
			{Name: "title", Kind: schema.String, Required: true, Doc: "The title of the report."},
			{Name: "dir", Kind: schema.String, Required: true, Pattern: `[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*`,
				PatternDoc: "a path below the workspace", Doc: "The directory to write, below the workspace. It belongs to this target."},
		},
		Check: func(v map[string]any) []schema.Problem {
			if len(v["joins"].([]string)) == 0 && len(v["sweeps"].([]string)) == 0 && v["inventory"] == "" {
				return []schema.Problem{{Attr: "joins", Message: "is empty, and there is neither a sweep nor an inventory: nothing to publish"}}
			}
			return nil
		},
	},
	Class:   action.Effect,
	Analyze: analyze,
	Owns:    func(t *graph.Target) string { return t.String("dir") },
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	joins := t.Labels("joins")
	for i, label := range joins {
		a.Deps = append(a.Deps, action.Dep{Role: role(i), ID: label.String()})
	}
	sweeps := t.Labels("sweeps")
	for i, label := range sweeps {
		a.Deps = append(a.Deps, action.Dep{Role: sweepRole(i), ID: label.String(), Path: sweep.File})
		of, _ := c.Graph.Target(label)
		for _, cell := range of.Labels("joins") {
			if !slices.Contains(joins, cell) {
				a.Deps = append(a.Deps, action.Dep{Role: role(len(joins)), ID: cell.String(), Optional: true})
				joins = append(joins[:len(joins):len(joins)], cell)
			}
		}
	}
	validations := t.Labels("validations")
	for i, label := range validations {
		a.Deps = append(a.Deps, action.Dep{Role: validationRole(i), ID: label.String(), Path: validatefamily.VerdictFile})
	}
	comparisons := t.Labels("comparisons")
	for i, label := range comparisons {
		a.Deps = append(a.Deps, action.Dep{Role: comparisonRole(i), ID: label.String(), Path: compare.File})
	}
	matrix, withMatrix := c.Dep(t, inventoryRole)
	if withMatrix {
		a.Deps = append(a.Deps, action.Dep{Role: inventoryRole, ID: matrix.Label.String(), Path: inventory.File})
	}
	dir := c.Path(t.String("dir"))
	a.Check = func(ctx context.Context, tree cas.Ref, store *cas.Store) error {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is not there", t.String("dir"))
		}
		if err := inPlace(ctx, dir, tree, store); err != nil {
			return fmt.Errorf("%s is not as it was published: %w", t.String("dir"), err)
		}
		return nil
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		results := Results{Schema: ResultsSchema, Title: t.String("title"), Definitions: metrics.Definitions}
		if withMatrix {
			results.Inventory = &Matrix{ReconciledWith: inventory.ReadRevision(ctx, c.Workspace)}
			if err := jsonfile.Read(run.Input(inventoryRole), &results.Inventory.Inventory); err != nil {
				return err
			}
		}
		for i := range sweeps {
			var s sweep.Sweep
			if err := jsonfile.Read(run.Input(sweepRole(i)), &s); err != nil {
				return err
			}
			results.Sweeps = append(results.Sweeps, s)
		}
		files, err := render(results, len(joins), len(validations), len(comparisons), run)
		if err != nil {
			return err
		}
		private := secrets(c.Workspace, filepath.Dir(c.Host.Environments))
		if err := refusePrivate(files, private); err != nil {
			return fmt.Errorf("nothing was published:\n%w", err)
		}
		// A compressed file cannot be searched: tables are made of what was.
		tables, err := tables(files)
		if err != nil {
			return err
		}
		if err := writeAll(run.Out, append(files, tables...)); err != nil {
			return err
		}
		if err := insideWorkspace(c.Workspace, t.String("dir")); err != nil {
			return err
		}
		return replace(dir, run.Out)
	}
	return nil
}

func role(i int) string { return fmt.Sprintf("joins/%03d", i) }

func sweepRole(i int) string { return fmt.Sprintf("sweeps/%03d", i) }

func validationRole(i int) string { return fmt.Sprintf("validations/%03d", i) }

func comparisonRole(i int) string { return fmt.Sprintf("comparisons/%03d", i) }

const inventoryRole = "inventory"

// render makes the files that are published, but for the layout and the sums, of
// results that have no rows and comparisons yet.
func render(results Results, joins, validations, comparisons int, run *action.Run) ([]file, error) {
	verdicts := make([]validatefamily.Verdict, validations)
	for i := range verdicts {
		if err := jsonfile.Read(run.Input(validationRole(i)), &verdicts[i]); err != nil {
			return nil, err
		}
	}
	for i := range comparisons {
		var c compare.Comparison
		if err := jsonfile.Read(run.Input(comparisonRole(i)), &c); err != nil {
			return nil, err
		}
		results.Comparisons = append(results.Comparisons, c)
	}
	var ledgers []file
	var entries [][][]ledger.Entry // of each row's samples
	for i := range joins {
		if _, ok := run.Absent[role(i)]; ok {
			continue // the sweep says why
		}
		in := run.Input(role(i))
		var j join.Joined
		if err := jsonfile.Read(filepath.Join(in, join.File), &j); err != nil {
			return nil, err
		}
		row, err := newRow(j, verdicts)
		if err != nil {
			return nil, err
		}
		results.Rows, entries = append(results.Rows, row), append(entries, nil)
		n := len(results.Rows)
		for _, s := range row.Samples {
			data, err := os.ReadFile(filepath.Join(in, join.LedgerDir, s.ID+".jsonl"))
			if err != nil {
				return nil, err
			}
			f := file{fmt.Sprintf("ledger/row%d-%s.jsonl", n, s.ID), "application/jsonl", data}
			sample, err := readLedger(f)
			if err != nil {
				return nil, err
			}
			ledgers, entries[n-1] = append(ledgers, f), append(entries[n-1], sample)
		}
	}
	var report, page, encoded bytes.Buffer
	writeReport(&report, results)
	if err := writeHTML(&page, results, entries); err != nil {
		return nil, err
	}
	enc := json.NewEncoder(&encoded)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(results); err != nil {
		return nil, err
	}
	table, err := encodeCSV(results.Rows)
	if err != nil {
		return nil, err
	}
	files := []file{
		{"report.html", htmlType, page.Bytes()},
		{"report.md", "text/markdown", report.Bytes()},
		{"results.csv", "text/csv", table},
		{"results.json", types.MediaType("application/vnd.assay.results.v1+json"), encoded.Bytes()},
	}
	if results.Inventory != nil {
		table, err := inventoryCSV(results.Inventory.Rows)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"inventory.csv", "text/csv", table})
	}
	if len(results.Sweeps) > 0 {
		table, err := sweepsCSV(results.Sweeps)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"sweeps.csv", "text/csv", table})
	}
	return append(files, ledgers...), nil
}

// tables makes a table of each ledger among the files.
func tables(files []file) ([]file, error) {
	var list []file
	for _, f := range files {
		name, ok := strings.CutPrefix(f.name, "ledger/")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, ".jsonl")
		_, sample, _ := strings.Cut(name, "-") // behind the row
		entries, err := readLedger(f)
		if err != nil {
			return nil, err
		}
		var table bytes.Buffer
		w := joined.NewWriter(&table, sample)
		for i := range entries {
			if err := w.Write(&entries[i]); err != nil {
				return nil, err
			}
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		list = append(list, file{"joined/" + name + ".parquet", "application/vnd.apache.parquet", table.Bytes()})
	}
	return list, nil
}

func readLedger(f file) ([]ledger.Entry, error) {
	var entries []ledger.Entry
	for e, err := range ledger.Read(bytes.NewReader(f.data), f.name) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, *e)
	}
	return entries, nil
}

// writeAll writes the files, the layout and the sums into an empty directory.
func writeAll(out string, files []file) error {
	for _, f := range files {
		name := filepath.Join(out, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, f.data, 0o644); err != nil {
			return err
		}
	}
	if err := writeLayout(filepath.Join(out, "oci"), files, nil); err != nil {
		return err
	}
	var list bytes.Buffer
	err := walk(out, func(name, path string) error {
		data, err := os.ReadFile(path)
		if err == nil {
			fmt.Fprintf(&list, "%s  %s\n", digest.FromBytes(data).Encoded(), name)
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, sums), list.Bytes(), 0o644)
}

// walk visits the regular files below dir by their slash-separated names.
func walk(dir string, visit func(name, path string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(name), path)
	})
}

// replace makes dir hold the files of from: what an earlier publication left is
// replaced, anything else in the way is an error. At every moment the marker
// names all files there are, so that the next try can tell them from somebody
// else's; a publication that was interrupted is seen by its digests.
func replace(dir, from string) error {
	old, err := published(dir)
	if err != nil {
		return err
	}
	fresh := publication{Schema: 1, Files: map[string]digest.Digest{}}
	err = walk(from, func(name, path string) error {
		data, err := os.ReadFile(path)
		fresh.Files[name] = digest.FromBytes(data)
		return err
	})
	if err != nil {
		return err
	}
	delete(fresh.Files, marker)
	both := publication{Schema: 1, Files: maps.Clone(old)}
	maps.Copy(both.Files, fresh.Files)
	if err := writeMarker(dir, both); err != nil {
		return err
	}
	for name := range fresh.Files {
		data, err := os.ReadFile(filepath.Join(from, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := durable.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), data, 0o644); err != nil {
			return err
		}
	}
	for name, sum := range old {
		if _, ok := fresh.Files[name]; ok {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		data, err := os.ReadFile(path)
		// What is no longer as it was written is somebody's by now.
		if err == nil && digest.FromBytes(data) == sum {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return writeMarker(dir, fresh)
}

func writeMarker(dir string, p publication) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, marker), append(data, '\n'), 0o644)
}

// published lists what an earlier publication left in dir.
func published(dir string) (map[string]digest.Digest, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return map[string]digest.Digest{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be published to: %w", filepath.Base(dir), err)
	}
	var p publication
	err = jsonfile.Read(filepath.Join(dir, marker), &p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds files but no %s, so publish did not write it; move it away or choose another dir", filepath.Base(dir), marker)
	}
	if err != nil {
		return nil, err
	}
	for name := range p.Files {
		if name != path.Clean(name) || !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("%s: %q is not a name that publish wrote", marker, name)
		}
	}
	return p.Files, nil
}

// insideWorkspace refuses a directory that links lead out of the workspace.
func insideWorkspace(workspace, dir string) error {
	at := workspace
	for name := range strings.SplitSeq(dir, "/") {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link; publish writes below the workspace only", name)
		}
	}
	return nil
}

// inPlace checks that dir holds the tree's files, byte for byte. The error names
// the first that differ.
func inPlace(ctx context.Context, dir string, ref cas.Ref, store *cas.Store) error {
	var differ []string
	if err := compareTree(ctx, dir, "", ref, store, &differ); err != nil {
		return err
	}
	const shown = 3
	switch n := len(differ); {
	case n == 0:
		return nil
	case n > shown:
		return fmt.Errorf("%s and %d more", strings.Join(differ[:shown], ", "), n-shown)
	}
	return errors.New(strings.Join(differ, ", "))
}

// compareTree adds what differs from the tree that stands at below in dir.
func compareTree(ctx context.Context, dir, below string, ref cas.Ref, store *cas.Store, differ *[]string) error {
	tree, err := store.Tree(ref)
	if err != nil {
		return err
	}
	for _, e := range tree.Entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := path.Join(below, e.Name)
		if e.Type == "dir" {
			if err := compareTree(ctx, dir, name, e.Ref(), store, differ); err != nil {
				return err
			}
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			*differ = append(*differ, name+" is missing")
		case err != nil:
			*differ = append(*differ, err.Error())
		case digest.FromBytes(data) != e.Digest:
			*differ = append(*differ, name+" was changed")
		}
	}
	return nil
}
