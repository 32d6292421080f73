package importrun

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"assay/rules/internal/exports"
	"assay/starlark/schema"
)

// place finds the one run among the files and names each as AIPerf does, below
// the folder of the run. So neither the folder nor a prefix is in the key.
func place(files []string) (names map[string]string, problems []schema.Problem) {
	problem := func(hint, format string, args ...any) (map[string]string, []schema.Problem) {
		return nil, []schema.Problem{{Attr: "files", Message: fmt.Sprintf(format, args...), Hint: hint}}
	}
	var roots, whole []string
	for _, f := range files {
		root := path.Dir(f)
		switch {
		case strings.HasSuffix(f, exports.RawSuffix):
			whole = append(whole, f)
		case path.Base(root) == exports.RawDir && path.Ext(f) == ".jsonl":
			root = path.Dir(root)
		default:
			continue
		}
		if !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	switch {
	case len(roots) == 0:
		return problem("AIPerf writes one with --export-level raw",
			"none of the %d files is a raw export, %s or %s/*.jsonl", len(files), exports.RawFile, exports.RawDir)
	case len(roots) > 1:
		return problem("import each with a target of its own", "the files are of %d runs: %s", len(roots), strings.Join(roots, ", "))
	case len(whole) > 1:
		return problem("import each with a target of its own", "the files are of %d runs: %s", len(whole), strings.Join(whole, ", "))
	}
	renamed := map[string]string{}
	if len(whole) == 1 {
		if stem := strings.TrimSuffix(path.Base(whole[0]), exports.RawSuffix); stem+exports.RawSuffix != exports.RawFile {
			renamed = map[string]string{stem + exports.RawSuffix: exports.RawFile, stem + ".jsonl": exports.FiguresFile, stem + ".json": exports.SummaryFile}
		}
	}
	names = map[string]string{}
	taken := map[string]string{}
	for _, f := range files {
		name, below := f, true
		if roots[0] != "." {
			name, below = strings.CutPrefix(f, roots[0]+"/")
		}
		if to := renamed[name]; to != "" {
			name = to
		}
		switch other := taken[name]; {
		case !below:
			problems = append(problems, schema.Problem{Attr: "files", Message: fmt.Sprintf("%s is not below %s, the folder of the run", f, roots[0]), Hint: "leave it out"})
		case other != "":
			problems = append(problems, schema.Problem{Attr: "files", Message: fmt.Sprintf("%s and %s would both be %s", other, f, name), Hint: "leave one of them out"})
		default:
			taken[name], names[f] = f, name
		}
	}
	return names, problems
}
