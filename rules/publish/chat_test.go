package publish

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/dataset"
	"assay/rules/internal/history"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/join"
)

// Both reports tell the policy, how far the history was kept, how the answers were
// judged, and what became of each turn.
func TestChat(t *testing.T) {
	six := func(v float64) metrics.Stats { return metrics.Describe([]float64{v, v, v, v, v, v}) }
	r := Row{
		Chat: &join.Chat{
			Licence: "Apache-2.0",
			Facts: dataset.ConversationFacts{
				ThinkTime: "fixed", ThinkTimeMS: 900, ThinkTimeCapMS: 300, Capped: 5, History: dataset.HistoryRemoved, Dependent: 4,
				Context: &dataset.ContextCheck{Context: 2048, LongestPrompt: 77, LongestID: "a"},
			},
			Turns: []join.Turn{
				{Turn: 0, Requests: 6, Counts: map[ledger.Class]int{ledger.Completed: 6}, History: map[ledger.Verdict]int{ledger.Equal: 6},
					LatencyMS: six(10), TTFTMS: six(4), TaskCallMS: six(9), PromptTokens: metrics.Describe([]float64{20, 30}), CachedTokens: six(0)},
				{Turn: 1, Requests: 2, Counts: map[ledger.Class]int{ledger.Failed: 1, ledger.Completed: 1}, Gaps: 1,
					History: map[ledger.Verdict]int{ledger.Different: 1, ledger.Unknown: 1}, Answers: map[string]int{history.Wrong: 1}},
			},
		},
		Samples: []Sample{{ID: "s1", Answers: &join.Answers{Criteria: "sha256:00", Judged: 3, Equal: 1, NearTie: 1, Wrong: 1, OtherHistory: 2}}},
	}
	text := strings.Join(chatText(r), "\n")
	for _, want := range []string{
		"a think time of 900 ms, 300 ms at most (5 were longer); prompt cache off. 4 turns depend on an earlier one.",
		"the history was removed on purpose",
		"the longest prompt has 77 of 2048 tokens (`a`)",
		"in 6 of 8 turns; 1 came behind a turn without a whole reply",
		"sample s1: FAILED. 3 judged: 1 equal, 1 near ties, 1 wrong; 2 to another history than the reference's, 0 without a reference.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for i, want := range [][]string{
		{"0", "6", "6 completed", "6 of 6", "0", "10.0 [10.0, 10.0]", "4.0 [4.0, 4.0]", "9.0 [9.0, 9.0]", "25.0 (20 to 30)", "0.0 (0 to 0)", "none"},
		{"1", "2", "1 completed, 1 failed", "0 of 2", "1", "n too small", "n too small", "n too small", "n/a", "n/a", "0 equal, 0 near ties, 1 wrong"},
	} {
		if got := chatSheet(r.Chat).Rows[i]; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, "chat.html", r); err != nil || !strings.Contains(page.String(), "<td>6 completed</td>") {
		t.Errorf("%s, %v", page.String(), err)
	}
}
