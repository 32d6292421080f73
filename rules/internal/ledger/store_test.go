package ledger

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
	"assay/rules/internal/record"
)

// texts are ids as clients make them, and all that only looks like one.
func texts(t *rapid.T) []string {
	return rapid.SliceOf(rapid.OneOf(
		rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
		rapid.StringMatching(`[0-9a-fA-Fg-]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
		rapid.String(),
	)).Draw(t, "texts")
}

// A text has one symbol, and a symbol has its text to the byte.
func TestSymbolsKeepTheirTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s symbols
		known := map[string]symbol{}
		all := texts(t)
		for _, text := range append(all, all...) {
			x := symbolOf(&s, text)
			if y := symbolOf(&s, []byte(text)); y != x {
				t.Fatalf("%q is %d and %d", text, x, y)
			}
			if before, again := known[text]; again && before != x || !again && int(x) != len(known) {
				t.Fatalf("%q is %d after %d others", text, x, len(known))
			}
			if known[text] = x; s.text(x) != text {
				t.Fatalf("%q came back as %q", text, s.text(x))
			}
		}
	})
}

// What is packed comes back, whatever its size, with more behind it.
func TestCodecGivesBackWhatItGot(t *testing.T) {
	number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-300, 300), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, 0}))
	rapid.Check(t, func(t *rapid.T) {
		maybe := func(name string) *int64 {
			if rapid.Bool().Draw(t, name+" is known") {
				n := number.Draw(t, name)
				return &n
			}
			return nil
		}
		all := append(texts(t), strings.Repeat("x", 3*most), "")
		text := rapid.SampledFrom(all)
		var s store
		var places []place
		var want []string
		names := names{number: map[string]int{}}
		pack := codec{names: &names}
		describe := func(d *draft, r *record.Record) string {
			return fmt.Sprint(d.facts, d.client.StartWallNS, d.CorrelationID, d.Place, show(d.client.Status), show(d.perf.start), show(d.client.LatencyNS), show(d.seen.lag), d.stream, d.text, d.body, d.prompt,
				r.IDSource, r.Repeated, r.Outcome, r.Reason, r.Status, r.ReceivedWallNS, r.TotalNS, show(r.QueueNS), show(r.FirstWriteNS), r.PromptSHA256, r.Task != nil)
		}
		for range rapid.IntRange(1, 5).Draw(t, "requests") {
			d := draft{kept: &kept{}}
			d.facts = facts{cancelled: rapid.Bool().Draw(t, "cancelled"), closed: rapid.Bool().Draw(t, "closed"), status: number.Draw(t, "status"), clientError: text.Draw(t, "error")}
			d.CorrelationID, d.Place = text.Draw(t, "correlation"), Place{Conversation: text.Draw(t, "conversation"), Turn: number.Draw(t, "turn")}
			d.client.StartWallNS, d.client.Status, d.client.LatencyNS = number.Draw(t, "wall"), maybe("code"), maybe("latency")
			d.perf.start, d.seen.lag = maybe("start"), maybe("lag")
			d.stream.spread, d.body = number.Draw(t, "spread"), aiperf.Digest{1, 2}
			r := record.Record{Outcome: record.Completed, Reason: record.Reason(text.Draw(t, "reason")), Status: 200, TotalNS: number.Draw(t, "total"), QueueNS: maybe("queue"), PromptSHA256: text.Draw(t, "digest")}
			want = append(want, describe(&d, &r))
			pack.at = 0
			pack.draft(&d)
			places = append(places, s.put(pack.packed()))
			pack.at = 0
			pack.record(&r, nil)
			places = append(places, s.put(pack.packed()))
		}
		for i, w := range want {
			d, r := draft{kept: &kept{}}, unpacked{}
			c := codec{b: s.at(places[2*i]), unpacking: true, names: &names, texts: &jsonl.Texts{}, numbers: d.numbers[:0]}
			c.draft(&d)
			c = codec{b: s.at(places[2*i+1]), unpacking: true, names: &names, texts: &jsonl.Texts{}, numbers: r.numbers[:0]}
			c.record(&r.Record, &r.task)
			if got := describe(&d, &r.Record); got != w {
				t.Fatalf("packed   %s\nunpacked %s", w, got)
			}
		}
	})
}

func show(n *int64) string {
	if n == nil {
		return "absent"
	}
	return fmt.Sprint(*n)
}
