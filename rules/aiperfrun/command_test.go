package aiperfrun

import (
	"strings"
	"testing"
)

// The command is what a report shows and what anyone can run again.
func TestCommand(t *testing.T) {
	closed := Workload{Endpoint: "chat", Streaming: true, InputTokens: 32, OutputTokens: 16, Concurrency: 1, Arrival: "constant", Requests: 40, Warmup: 4, Seed: 7, TimeoutS: 120}
	open := closed
	open.RequestRate, open.Arrival, open.Streaming, open.Warmup = 2.5, "poisson", false, 0
	for _, c := range []struct {
		name          string
		w             Workload
		parameters    string
		with, without []string
	}{
		{"closed loop", closed, `{"seed":1,"stop":["\n","</s>"]}`,
			[]string{"{env}/bin/aiperf profile", "--streaming", "--concurrency 1", "--request-count 40", "--warmup-request-count 4", "--num-dataset-entries 44",
				"--random-seed 7", `--extra-inputs {"seed":1,"stop":["\n","</s>"]}`, "--export-level raw", "--artifact-dir {out}", "http://127.0.0.1:{port}"},
			[]string{"--request-rate", "--arrival-pattern"}},
		{"request rate", open, "",
			[]string{"--request-rate 2.5 --arrival-pattern poisson", "--num-dataset-entries 40"},
			[]string{"--streaming", "--warmup-request-count", "--extra-inputs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(c.w.command("m", c.parameters), " ")
			for _, want := range c.with {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			for _, other := range c.without {
				if strings.Contains(got, other) {
					t.Errorf("%q in\n%s", other, got)
				}
			}
		})
	}
}
