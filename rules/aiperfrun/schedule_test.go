package aiperfrun

import (
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/dataset"
)

// A schedule is sent as it is: nothing holds a request back, and no prompt is made up.
func TestCommandOfASchedule(t *testing.T) {
	w := Workload{Endpoint: "completions", Dataset: &Dataset{Format: "mooncake_trace", Scheduled: true}}
	args := w.command("m", "")
	if !slices.Contains(args, "--fixed-schedule") {
		t.Errorf("%q", args)
	}
	for _, other := range []string{"--concurrency", "--isl", "--osl", "--request-count", "--num-sessions", "--warmup-request-count", "--dataset-sampling-strategy", "--request-rate"} {
		if slices.Contains(args, other) {
			t.Errorf("%s in %q", other, args)
		}
	}
}

func TestAnswersThatTheServerDoesNotGive(t *testing.T) {
	plan := []dataset.Planned{{Conversation: "line-1", OutputTokens: 10}, {Conversation: "line-2", OutputTokens: 11}, {Conversation: "line-3", OutputTokens: 12}}
	if err := checkLimits(plan, 12); err != nil {
		t.Error(err)
	}
	err := checkLimits(plan, 10)
	if err == nil || !strings.HasPrefix(err.Error(), `2 of the data set's 3 requests ask for more than max_output_tokens = 10 of the server, first turn 0 of "line-2" with 11; `) {
		t.Errorf("%v", err)
	}
}
