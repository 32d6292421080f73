package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"assay/engine/supervise"
	"assay/rules/internal/scripted"
	"assay/rules/internal/worker"
)

const (
	faultVariable  = "CONFORMANCE_TEST_FAULT"
	scriptVariable = "CONFORMANCE_TEST_SCRIPT"
	onceVariable   = "CONFORMANCE_TEST_ONCE"
)

// The test binary is the worker too: the scripted one, or a model with a fault.
func TestMain(m *testing.M) {
	var err error
	if name, ok := os.LookupEnv(faultVariable); ok {
		w := &model{version: worker.Version}
		if name == "version 1" {
			w.version = worker.BufferedVersion
		} else if i := slices.IndexFunc(broken, func(b brokenModel) bool { return b.name == name }); i >= 0 {
			w.fault = broken[i].fault
		}
		err = w.run(os.Stdin, os.Stdout)
	} else if path, ok := os.LookupEnv(scriptVariable); ok {
		var script *scripted.Script
		if script, err = scripted.Load(path); err == nil {
			err = scripted.Run(context.Background(), script, os.Stdin, os.Stdout)
		}
	} else {
		supervise.AdoptOrphans() // as the command does
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func self(variable, value string, more ...string) Command {
	return Command{Path: os.Args[0], Env: append(append(os.Environ(), "GORACE=atexit_sleep_ms=0", variable+"="+value), more...)}
}

// patient limits are for workers that do what they must.
var patient = Limits{Start: 2 * time.Minute, Answer: time.Minute, End: time.Minute}

// check runs the checks and returns the results of each verdict.
func checkWorker(t *testing.T, c Command, limits Limits) (map[Verdict][]Result, Summary) {
	t.Helper()
	results := map[Verdict][]Result{}
	total := 0
	summary, err := Run(t.Context(), c, limits, func(r Result) {
		results[r.Verdict] = append(results[r.Verdict], r)
		total++
	})
	if err != nil {
		t.Fatal(err)
	}
	if total != len(checks) {
		t.Errorf("%d results of %d checks", total, len(checks))
	}
	for verdict, n := range summary.Counts {
		if n != len(results[verdict]) {
			t.Errorf("%d results %q, and the summary says %d", len(results[verdict]), verdict, n)
		}
	}
	return results, summary
}

func names(results []Result) []string {
	list := []string{}
	for _, r := range results {
		list = append(list, r.Check)
	}
	return list
}

func TestWorkersThatKeepTheProtocol(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is needed for the template worker: ", err)
	}
	examples, err := filepath.Abs("../../../examples/worker")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(script, []byte(`{"rules":[{"when":{"prompt":"ten thousand"},"do":{"count":5000,"token_delay_ms":10}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	optional := []string{"log-probabilities are given", "an image does no harm"}
	version1 := append([]string{"answers in pieces at every endpoint", "a prompt beyond max_context is refused", "cancel ends a request early", "a cancel for no request is ignored", "texts are tokenized"}, optional...)
	for _, c := range []struct {
		name    string
		command Command
		skipped []string
	}{
		{"all there is", self(faultVariable, ""), nil},
		{"version 1", self(faultVariable, "version 1"), version1},
		{"the scripted worker", self(scriptVariable, script), append([]string{"a prompt beyond max_context is refused", "texts are tokenized"}, optional...)},
		{"the template", Command{Path: python, Args: []string{filepath.Join(examples, "worker.py")}}, optional},
		{"the simplest template", Command{Path: python, Args: []string{filepath.Join(examples, "buffered.py")}}, version1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			results, summary := checkWorker(t, c.command, patient)
			for _, r := range append(results[Fail], results[Note]...) {
				t.Errorf("%+v", r)
			}
			if diff := cmp.Diff(c.skipped, names(results[Skip])); diff != "" && len(c.skipped)+len(results[Skip]) > 0 {
				t.Error(diff)
			}
			if summary.Hello == nil {
				t.Error("no hello in the summary")
			}
		})
	}
}

func TestEveryCheckCanFail(t *testing.T) {
	failed := map[string]bool{}
	t.Run("group", func(t *testing.T) {
		for _, b := range broken {
			for _, name := range b.want {
				failed[name] = true
			}
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				results, _ := checkWorker(t, self(faultVariable, b.name, onceVariable+"="+filepath.Join(t.TempDir(), "started")), b.within())
				verdict := Fail
				if b.noted {
					verdict = Note
				} else if len(results[Note]) > 0 {
					t.Errorf("noted: %+v", results[Note])
				}
				if diff := cmp.Diff(b.want, names(results[verdict])); diff != "" {
					t.Errorf("%s\n%+v", diff, results[verdict])
				}
				for _, r := range results[verdict] {
					if !strings.Contains(r.Reason, b.says) && r.Check == b.want[0] {
						t.Errorf("%s: %s does not say %q", r.Check, r.Reason, b.says)
					}
					if verdict == Fail && r.Hint == "" {
						t.Errorf("%s: no hint", r.Check)
					}
				}
			})
		}
	})
	for _, c := range checks {
		if !failed[c.name] {
			t.Errorf("no broken worker fails %q", c.name)
		}
	}
}

func TestWhatCannotBeChecked(t *testing.T) {
	if _, err := Run(t.Context(), Command{Path: "./no-such-worker"}, patient, func(Result) {}); err == nil || !strings.Contains(err.Error(), "no-such-worker") {
		t.Errorf("a missing program: %v", err)
	}
	// Told to stop in the middle of it.
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("told to stop")
	n := 0
	_, err := Run(ctx, self(faultVariable, ""), patient, func(Result) {
		if n++; n == 5 {
			cancel(stop)
		}
	})
	if !errors.Is(err, stop) || n != 5 {
		t.Errorf("%v after %d checks", err, n)
	}
}

func TestLinesArePartOfWhatFailed(t *testing.T) {
	results, _ := checkWorker(t, self(faultVariable, "a digest of something else"), patient)
	r := results[Fail][0]
	if !strings.Contains(r.Sent, `"frame":"generate"`) || !strings.Contains(r.Got, `"frame":"done"`) {
		t.Errorf("%+v", r)
	}
	if text := excerpt(append(bytes.Repeat([]byte("ä"), 1000), '\n')); !strings.HasSuffix(text, "… (2000 bytes)") || strings.Contains(text, damaged) {
		t.Error(text)
	}
}
