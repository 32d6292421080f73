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
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
	"assay/cache/durable"
	"assay/engine/action"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/metrics"
	"assay/rules/internal/rule"
	"assay/rules/join"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// sums lists the digests of all other files. It also marks a directory as one
// that this rule may replace.
const sums = "SHA256SUMS"

// Rule is the rule `publish`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "publish", Version: 1,
		Doc: "Publishes joins: report, tables, every request, and an OCI image layout.",
		Attrs: []schema.Attr{
			{Name: "joins", Kind: schema.LabelList, Required: true, Rules: []string{"join"}, Doc: "What is published, a row each."},
			{Name: "title", Kind: schema.String, Required: true, Doc: "The title of the report."},
			{Name: "dir", Kind: schema.String, Required: true, Pattern: `[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*`,
				PatternDoc: "a path below the workspace", Doc: "The directory to write, below the workspace. It belongs to this target."},
		},
	},
	Class:   action.Effect,
	Analyze: analyze,
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	joins := t.Labels("joins")
	for i, label := range joins {
		a.Deps = append(a.Deps, action.Dep{Role: role(i), ID: label.String()})
	}
	dir := c.Path(t.String("dir"))
	a.Check = func(ctx context.Context, tree cas.Ref, store *cas.Store) error {
		if err := inPlace(ctx, dir, tree, store); err != nil {
			return fmt.Errorf("%s is not as it was published: %w", t.String("dir"), err)
		}
		return nil
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		files, err := render(t.String("title"), len(joins), run)
		if err != nil {
			return err
		}
		private := secrets(c.Workspace, filepath.Dir(c.Host.Environments))
		if err := refusePrivate(files, private); err != nil {
			return fmt.Errorf("nothing was published:\n%w", err)
		}
		if err := writeAll(run.Out, files); err != nil {
			return err
		}
		return replace(dir, run.Out)
	}
	return nil
}

func role(i int) string { return fmt.Sprintf("joins/%03d", i) }

// render makes the files that are published, but for the layout and the sums.
func render(title string, joins int, run *action.Run) ([]file, error) {
	results := Results{Schema: ResultsSchema, Title: title, Definitions: metrics.Definitions}
	var ledgers []file
	for i := range joins {
		in := run.Input(role(i))
		var j join.Joined
		if err := jsonfile.Read(filepath.Join(in, join.File), &j); err != nil {
			return nil, err
		}
		row, err := newRow(j)
		if err != nil {
			return nil, err
		}
		results.Rows = append(results.Rows, row)
		for _, s := range row.Samples {
			data, err := os.ReadFile(filepath.Join(in, join.LedgerDir, s.ID+".jsonl"))
			if err != nil {
				return nil, err
			}
			ledgers = append(ledgers, file{fmt.Sprintf("ledger/row%d-%s.jsonl", i+1, s.ID), "application/jsonl", data})
		}
	}
	var report, encoded bytes.Buffer
	writeReport(&report, results)
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
	return append([]file{
		{"report.md", "text/markdown", report.Bytes()},
		{"results.csv", "text/csv", table},
		{"results.json", types.MediaType("application/vnd.assay.results.v1+json"), encoded.Bytes()},
	}, ledgers...), nil
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
// replaced, anything else in the way is an error. At every moment the sums name
// all files there are, so that the next try can tell them from somebody else's;
// a publication that was interrupted is seen by its digests.
func replace(dir, from string) error {
	old, err := published(dir)
	if err != nil {
		return err
	}
	fresh, err := os.ReadFile(filepath.Join(from, sums))
	if err != nil {
		return err
	}
	wanted, err := parseSums(fresh)
	if err != nil {
		return err
	}
	var both bytes.Buffer
	both.Write(fresh)
	for name, sum := range old {
		if _, ok := wanted[name]; !ok {
			fmt.Fprintf(&both, "%s  %s\n", sum, name)
		}
	}
	marker := filepath.Join(dir, sums)
	if err := durable.WriteFile(marker, both.Bytes(), 0o644); err != nil {
		return err
	}
	for name := range wanted {
		data, err := os.ReadFile(filepath.Join(from, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := durable.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), data, 0o644); err != nil {
			return err
		}
	}
	for name := range old {
		if _, ok := wanted[name]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return durable.WriteFile(marker, fresh, 0o644)
}

// published lists the files that an earlier publication left in dir, with their
// sums.
func published(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, sums))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds files but no %s, so publish did not write it; move it away or choose another dir", filepath.Base(dir), sums)
	}
	if err != nil {
		return nil, err
	}
	return parseSums(data)
}

// parseSums reads lines of "digest  name", as sha256sum writes them.
func parseSums(data []byte) (map[string]string, error) {
	list := map[string]string{}
	for line := range strings.Lines(string(data)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || name != path.Clean(name) || !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("%s: the line %q is not one that publish wrote", sums, line)
		}
		list[name] = sum
	}
	return list, nil
}

// inPlace checks that dir holds the tree's files, byte for byte.
func inPlace(ctx context.Context, dir string, ref cas.Ref, store *cas.Store) error {
	tree, err := store.Tree(ref)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range tree.Entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		place := filepath.Join(dir, e.Name)
		if e.Type == "dir" {
			errs = append(errs, inPlace(ctx, place, e.Ref(), store))
			continue
		}
		data, err := os.ReadFile(place)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("%s is missing", e.Name))
		case err != nil:
			errs = append(errs, err)
		case digest.FromBytes(data) != e.Digest:
			errs = append(errs, fmt.Errorf("%s was changed", e.Name))
		}
	}
	return errors.Join(errs...)
}
