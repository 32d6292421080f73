package ledger_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

// judged is what the reference says of a request that the client has.
type judged struct {
	Phase   ledger.Phase
	ID, End string
	Join    ledger.Join
	Retries int
	Server  int // status of the record that is attached, 0 for none
	Latency int64
}

// reference joins and classifies as docs/ledger.md says, for the requests of
// anyRequest, in the plainest way: all in maps, nothing packed, one at a time.
func reference(clients []*aiperf.Request, records []*record.Record) (all []judged) {
	sent, seen := map[string]int{}, map[string][]*record.Record{}
	for _, r := range clients {
		sent[r.ID]++
	}
	for _, r := range records {
		seen[r.RequestID] = append(seen[r.RequestID], r)
	}
	clients = slices.Clone(clients)
	slices.SortStableFunc(clients, func(a, b *aiperf.Request) int {
		return cmp.Or(cmp.Compare(b.Phase, a.Phase), cmp.Compare(a.StartWallNS, b.StartWallNS), cmp.Compare(a.ID, b.ID)) // warmup after profiling, reversed
	})
	for _, r := range clients {
		j := judged{Phase: ledger.Measured, ID: r.ID, End: end(r)}
		if r.Phase == aiperf.Warmup {
			j.Phase = ledger.Warmup
		}
		if c := r.Response.Chunks; len(c) > 0 && c[0].PerfNS >= *r.StartPerfNS {
			j.Latency = c[len(c)-1].PerfNS - *r.StartPerfNS
		}
		switch found := seen[r.ID]; {
		case sent[r.ID] > 1:
			j.Join = ledger.Ambiguous
		case len(found) == 0:
			j.Join = ledger.ClientOnly
		default:
			j.Join, j.Retries = ledger.Matched, len(found)-1
			j.Server = found[len(found)-1].Status
			for _, rec := range found {
				if r.Status != nil && int64(rec.Status) == *r.Status {
					j.Server = rec.Status
				}
			}
		}
		all = append(all, j)
	}
	return all
}

func end(r *aiperf.Request) string {
	switch e := r.Error; {
	case r.Cancelled:
		return "cancelled"
	case e != nil && e.Code != nil:
		return map[int64]string{
			301: "failed/protocol", 400: "invalid", 429: "rejected", 499: "cancelled",
			500: "failed/server_error", 503: "rejected", 504: "failed/timeout", 529: "rejected",
		}[*e.Code]
	case e != nil && e.Type == "TimeoutError":
		return "failed/timeout"
	case e != nil:
		return "failed/transport"
	case r.Status == nil:
		return "incomplete"
	case !r.Response.Done && r.Response.FinishReason == "":
		return "failed/broken_stream"
	case len(r.Response.Chunks) == 0:
		return "empty"
	}
	return "completed"
}

func TestBuildAgreesWithReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var clients []*aiperf.Request
		for i := range rapid.IntRange(0, 40).Draw(t, "clients") {
			clients = append(clients, anyRequest(t, int64(i/2)*3))
		}
		var records []*record.Record
		for range rapid.IntRange(0, 40).Draw(t, "records") {
			rec := anyRecord(t)
			rec.Status = rapid.SampledFrom([]int{200, 429, 503}).Draw(t, "answered")
			records = append(records, rec)
		}
		var got []judged
		_, err := ledger.Build(ledger.Input{Plan: ledger.Plan{Measured: 5}, Client: seq(clients...), Server: seq(records...)}, func(e *ledger.Entry) error {
			if e.Client == nil {
				return nil
			}
			j := judged{Phase: e.Phase, ID: e.RequestID, End: string(e.Class), Join: e.Join, Retries: e.HiddenRetries}
			if e.Reason != "" {
				j.End += "/" + string(e.Reason)
			}
			if e.Server != nil {
				j.Server = e.Server.Status
			}
			if e.Client.LatencyNS != nil {
				j.Latency = *e.Client.LatencyNS
			}
			got = append(got, j)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := gocmp.Diff(reference(clients, records), got); d != "" {
			t.Fatal(fmt.Sprint("reference and ledger differ: ", d))
		}
	})
}
