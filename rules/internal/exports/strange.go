package exports

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// strange says what a folder without a raw export is.
func strange(dir string, entries []fs.DirEntry) error {
	names := map[string]bool{}
	var tools []string
	for _, e := range entries {
		names[e.Name()] = true
		if tool := toolOf(filepath.Join(dir, e.Name())); tool != "" {
			tools = append(tools, fmt.Sprintf("%s is %s", e.Name(), tool))
		}
	}
	runs := runsBelow(dir)
	switch {
	case len(entries) == 0:
		return fmt.Errorf("%s is empty", dir)
	case names[FiguresFile] || names[SummaryFile]:
		return fmt.Errorf("%s is a run of AIPerf without its raw export: it holds AIPerf's own figures and not what was sent and received. Run it again with --export-level raw", dir)
	case len(runs) == 1:
		return fmt.Errorf("%s holds no run itself; the folder %s does", dir, runs[0])
	case len(runs) > 1:
		return fmt.Errorf("%s holds no run itself, but %d below it: %s. Audit one at a time", dir, len(runs), strings.Join(runs, ", "))
	case len(tools) > 0:
		return fmt.Errorf("%s holds no run of AIPerf: %s. Only AIPerf's raw export has what a ledger needs", dir, strings.Join(tools, "; "))
	}
	return fmt.Errorf("%s holds no run of AIPerf: neither %s nor %s/*.jsonl is there", dir, RawFile, RawDir)
}

// maxDepth and maxRuns bound the look for runs below a folder.
const (
	maxDepth = 4
	maxRuns  = 20
)

// runsBelow lists folders below dir that hold a raw export, relative to it. Links
// are not followed.
func runsBelow(dir string) []string {
	var runs []string
	fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it is only a hint
		case len(runs) == maxRuns:
			return fs.SkipAll
		case d.IsDir() && strings.Count(name, "/") >= maxDepth:
			return fs.SkipDir
		case d.Name() == RawFile:
			runs = append(runs, path.Dir(name))
		case d.Name() == RawDir && d.IsDir():
			runs = append(runs, path.Dir(name))
			return fs.SkipDir
		}
		return nil
	})
	return runs
}

// tools are exports that people take for AIPerf's, by the keys at their top.
var tools = []struct {
	name string
	keys []string
}{
	{"the result of GuideLLM", []string{"benchmarks", "metadata"}},
	{"the result of GuideLLM", []string{"benchmarks", "args"}},
	{"an export of GenAI-Perf", []string{"experiments", "service_kind"}},
	{"the result of vLLM's benchmark", []string{"tokenizer_id", "mean_ttft_ms"}},
	{"the result of a benchmark that knows averages only", []string{"mean_ttft_ms"}},
}

// sniffed is how much of a file is read to recognise it, in bytes.
const sniffed = 1 << 20

// toolOf names the tool that wrote a JSON file, "" if it is none that is known.
func toolOf(file string) string {
	if strings.HasSuffix(file, "_genai_perf.json") {
		return "an export of GenAI-Perf"
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(filepath.Ext(file), ".json") {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	keys := topKeys(io.LimitReader(f, sniffed))
	for _, tool := range tools {
		all := true
		for _, key := range tool.keys {
			all = all && keys[key]
		}
		if all {
			return tool.name
		}
	}
	return ""
}

// topKeys reads the keys of a JSON object as far as it can be read.
func topKeys(r io.Reader) map[string]bool {
	keys := map[string]bool{}
	dec := json.NewDecoder(r)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return keys
	}
	depth := 0
	for key := true; ; {
		t, err := dec.Token()
		if err != nil {
			return keys
		}
		if d, ok := t.(json.Delim); ok {
			if d == '{' || d == '[' {
				depth++
			} else {
				depth--
			}
			key = depth == 0
			if depth < 0 {
				return keys
			}
			continue
		}
		if depth > 0 {
			continue
		}
		if key {
			keys[t.(string)] = true
		}
		key = !key
	}
}
