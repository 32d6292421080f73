package measured

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "add a version for the present sources")

// folders hold the measured path, from the module's root.
var folders = []string{
	"engine/supervise",
	"rules/aiperfrun",
	"rules/internal/dataset",
	"rules/internal/gateway",
	"rules/internal/host",
	"rules/internal/jsonl",
	"rules/internal/llama",
	"rules/internal/nonblock",
	"rules/internal/openai",
	"rules/internal/record",
	"rules/internal/recordlog",
	"rules/internal/scripted",
	"rules/internal/server",
	"rules/internal/sse",
	"rules/internal/testbed",
	"rules/internal/upstream",
	"rules/internal/worker",
}

func TestVersionFollowsTheSources(t *testing.T) {
	got := digest(t, os.DirFS("../../.."))
	if got == Sources {
		return
	}
	n, err := strconv.Atoi(Version)
	if err != nil {
		t.Fatalf("versions.txt: %v", err)
	}
	line := fmt.Sprintf("%d %s\n", n+1, got)
	if !*update {
		t.Fatalf("the measured path changed since version %s. If results may differ, add the line\n%sto versions.txt (go test ./rules/internal/measured -update)", Version, line)
	}
	if err := os.WriteFile("versions.txt", []byte(history+line), 0o644); err != nil {
		t.Fatal(err)
	}
}

func digest(t *testing.T, module fs.FS) string {
	t.Helper()
	h := sha256.New()
	for _, folder := range folders {
		entries, err := fs.ReadDir(module, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() || strings.HasSuffix(e.Name(), "_test.go") || !slices.Contains([]string{".go", ".py"}, path.Ext(e.Name())) {
				continue
			}
			data, err := fs.ReadFile(module, path.Join(folder, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(h, "%s/%s %d\n%s", folder, e.Name(), len(data), data)
		}
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil))
}
