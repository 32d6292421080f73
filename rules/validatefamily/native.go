package validatefamily

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"

	"assay/rules/internal/client"
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

// maxRecord bounds a line of the server's records, in bytes.
const maxRecord = 1 << 20

// received is an answer that was read to its end.
type received struct {
	request, prompt string // ids
	answer          *client.Answer
}

// native compares what was received over HTTP with what the server's records say of
// the engine's own answer: text, token counts and finish reason. One case a prompt.
func (v *validator) native(records string) error {
	f, err := os.Open(records)
	if err != nil {
		return err
	}
	defer f.Close()
	byID := map[string]*record.Record{}
	for r, err := range ledger.ReadServer(f, "records.jsonl", maxRecord) {
		if err != nil {
			return err
		}
		byID[r.RequestID] = r
	}
	for _, p := range v.book.prompts {
		if p.Refused {
			continue
		}
		var wrong []string
		compared := 0
		for _, got := range v.received {
			if got.prompt != p.ID {
				continue
			}
			compared++
			if why := differs(byID[got.request], got.answer); why != "" {
				wrong = append(wrong, got.request+": "+why)
			}
		}
		switch {
		case !v.selected(kindNative, p.ID):
			v.skip(kindNative, p.ID)
		case compared == 0:
			said := func(c Case) bool { return c.ID == p.ID && (c.Outcome == Fail || c.Outcome == Unsupported) }
			if !slices.ContainsFunc(v.verdict.Cases, said) {
				v.add(Case{ID: p.ID, Kind: kindNative, Outcome: Fail, Prompt: p.asked(), Detail: "there is no answer to compare"})
			}
		default:
			c := Case{ID: p.ID, Kind: kindNative, Outcome: Pass, Detail: fmt.Sprintf("%d answers are what the engine gave", compared)}
			if len(wrong) > 0 {
				c.Outcome, c.Detail = Fail, strings.Join(wrong, "; ")
			}
			v.add(c)
		}
	}
	return nil
}

// differs says how an answer is another than the engine's; empty if it is not.
func differs(r *record.Record, a *client.Answer) string {
	if r == nil || r.Task == nil {
		return "the server has no record of the engine's answer"
	}
	sum := sha256.Sum256([]byte(a.Text))
	count := func(n *int64) string {
		if n == nil {
			return "no"
		}
		return fmt.Sprint(*n)
	}
	var wrong []string
	for _, c := range []struct{ what, native, http string }{
		{"text (SHA-256)", r.Task.TextSHA256, hex.EncodeToString(sum[:])},
		{"prompt tokens", count(r.Task.PromptTokens), count(a.PromptTokens)},
		{"completion tokens", count(r.Task.CompletionTokens), count(a.CompletionTokens)},
		{"finish reason", r.Task.FinishReason, a.FinishReason},
	} {
		if c.native != c.http {
			wrong = append(wrong, fmt.Sprintf("%s: %s by the engine, %s received", c.what, c.native, c.http))
		}
	}
	return strings.Join(wrong, ", ")
}
