package aiperfrun

import (
	"strings"
	"testing"

	"assay/rules/internal/dataset"
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

// What AIPerf draws and drops at the end of a warm-up is a spare conversation.
func TestSpare(t *testing.T) {
	plan := func(turns ...int) (plan []dataset.Planned, requests string) {
		for i, n := range turns {
			id := string(rune('a' + i))
			for k := range n {
				plan = append(plan, dataset.Planned{Conversation: id, Turn: int64(k)})
			}
			requests += `{"session_id":"` + id + `","turns":[]}` + "\n"
		}
		return plan, requests
	}
	const extra = `{"session_id":"assay.drawn-and-not-sent","turns":[]}` + "\n"
	for _, c := range []struct {
		turns       []int
		warmup, at  int64 // conversations; lines before the spare one, 0 for none
		concurrency int64
		err         string
	}{
		{[]int{3, 3, 3}, 1, 1, 1, ""},
		{[]int{3, 3, 3}, 2, 2, 8, ""},
		{[]int{3, 1, 3}, 2, 0, 1, ""}, // the last request of the warm-up is the last that is drawn for
		{[]int{1, 1, 3}, 2, 0, 8, ""},
		{[]int{3, 1, 3}, 2, 0, 2, `conversation "b", the last of the warm-up, has one turn`},
		{[]int{3, 3}, 0, 0, 1, ""},
	} {
		plan, requests := plan(c.turns...)
		got, err := spare([]byte(requests), plan, c.warmup, c.concurrency)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v, want %s", c.turns, err, c.err)
			}
			continue
		}
		lines := strings.SplitAfter(requests, "\n")
		want := requests
		if c.at > 0 {
			want = strings.Join(lines[:c.at], "") + extra + strings.Join(lines[c.at:], "")
		}
		if err != nil || string(got) != want {
			t.Errorf("%v, warm-up %d: %s, %v, want %s", c.turns, c.warmup, got, err, want)
		}
	}
	if _, err := spare(nil, []dataset.Planned{{Conversation: spareID}}, 1, 1); err == nil {
		t.Error("the name was there already")
	}
}
