package publish

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"assay/rules/internal/dataset"
	"assay/rules/internal/history"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
	"assay/rules/join"
)

// chatText says in sentences what was sent, and how far the history was kept.
func chatText(r Row) []string {
	f := r.Chat.Facts
	think := "no think time"
	switch f.ThinkTime {
	case "recorded":
		think = "think times as the data set has them"
	case "fixed":
		think = fmt.Sprintf("a think time of %d ms", f.ThinkTimeMS)
	}
	if f.ThinkTimeCapMS > 0 {
		think += fmt.Sprintf(", %d ms at most (%d were longer)", f.ThinkTimeCapMS, f.Capped)
	}
	with := "each turn with all turns before it and their live replies"
	if f.History == dataset.HistoryRemoved {
		with = "each turn alone: the history was removed on purpose, and the answers that depend on it must be wrong"
	}
	lines := []string{fmt.Sprintf("Conversations (%s): %s; %s; prompt cache %s. %d turns depend on an earlier one.", r.Chat.Licence, with, think, onOff(r.Server.PromptCache), f.Dependent)}
	if c := f.Context; c != nil {
		lines = append(lines, fmt.Sprintf("Checked before the load, with empty replies: the longest prompt has %d of %d tokens (`%s`).", c.LongestPrompt, c.Context, c.LongestID))
	}
	equal, all, gaps := 0, 0, 0
	for _, t := range r.Chat.Turns {
		equal, gaps = equal+t.History[ledger.Equal], gaps+t.Gaps
		for _, n := range t.History {
			all += n
		}
	}
	lines = append(lines, fmt.Sprintf("What the server received is, message for message, what it must have been in %d of %d turns; %d came behind a turn without a whole reply.", equal, all, gaps))
	for _, s := range r.Samples {
		if s.Answers != nil {
			lines = append(lines, answersText(s.ID, s.Answers))
		}
	}
	return lines
}

func answersText(sample string, a *join.Answers) string {
	verdict := "FAILED"
	if a.Passed {
		verdict = "passed"
	}
	return fmt.Sprintf("Answers that depend on the history, by the family's criteria (`%s`) and its reference, sample %s: %s. %d judged: %d equal, %d near ties, %d wrong; %d to another history than the reference's, %d without a reference.",
		a.Criteria, sample, verdict, a.Judged, a.Equal, a.NearTie, a.Wrong, a.OtherHistory, a.Unreferenced)
}

// chatSheet is the table of the turns.
func chatSheet(c *join.Chat) sheet {
	s := sheet{Title: "By turn, times in ms", Header: []string{"turn", "requests", "classes", "history right", "behind a gap", "client latency p50", "TTFT p50", "task call p50", "prompt tokens", "cached tokens", "answers judged"}}
	for _, t := range c.Turns {
		all := 0
		for _, n := range t.History {
			all += n
		}
		s.Rows = append(s.Rows, []string{
			strconv.FormatInt(t.Turn, 10), strconv.Itoa(t.Requests), tally(t.Counts), fmt.Sprintf("%d of %d", t.History[ledger.Equal], all), strconv.Itoa(t.Gaps),
			brief(t.LatencyMS.P50), brief(t.TTFTMS.P50), brief(t.TaskCallMS.P50), spread(t.PromptTokens), spread(t.CachedTokens), answersOf(t),
		})
	}
	return s
}

// spread is a mean with the least and the most.
func spread(s metrics.Stats) string {
	if s.Mean == nil || s.Min == nil || s.Max == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.1f (%.0f to %.0f)", *s.Mean, *s.Min, *s.Max)
}

func answersOf(t join.Turn) string {
	n := t.Answers
	if len(n) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d equal, %d near ties, %d wrong", n[history.Equal], n[history.NearTie], n[history.Wrong])
}

func writeChat(w io.Writer, r Row) {
	fmt.Fprintf(w, "\n### Turns\n\n%s\n", strings.Join(chatText(r), "\n"))
	s := chatSheet(r.Chat)
	fmt.Fprintf(w, "\n%s:\n\n| %s |\n|%s\n", s.Title, strings.Join(s.Header, " | "), strings.Repeat("---|", len(s.Header)))
	for _, row := range s.Rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}
