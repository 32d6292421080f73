package ledger_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

// anyRequest draws a client record of any ending; ids repeat now and then.
func anyRequest(t *rapid.T, at int64) *aiperf.Request {
	r := sent(fmt.Sprint("r", rapid.IntRange(0, 30).Draw(t, "id")), at)
	if rapid.Bool().Draw(t, "warm") {
		r.Phase = aiperf.Warmup
	}
	switch rapid.IntRange(0, 6).Draw(t, "ending") {
	case 0:
		refused(r, int64(rapid.SampledFrom([]int{301, 400, 429, 499, 500, 503, 504, 529}).Draw(t, "status")), "busy")
	case 1:
		r.Error = &aiperf.Error{Type: rapid.SampledFrom([]string{"TimeoutError", "ClientOSError", ""}).Draw(t, "type")}
	case 2:
		r.Cancelled = true
	case 3: // nothing is known
	case 4:
		streamed(r, 10, 1, 0)
	default:
		streamed(r, rapid.Int64Range(-3, 50).Draw(t, "ttft"), rapid.Int64Range(0, 5).Draw(t, "gap"), rapid.IntRange(1, 12).Draw(t, "chunks"))
		r.Response.Done = rapid.Bool().Draw(t, "done")
		if rapid.Bool().Draw(t, "unfinished") {
			r.Response.FinishReason = ""
		}
	}
	return r
}

func anyRecord(t *rapid.T) *record.Record {
	id := fmt.Sprint("r", rapid.IntRange(0, 35).Draw(t, "server id"))
	rec := served(id, rapid.IntRange(0, 12).Draw(t, "tokens"), rapid.Int64Range(-5, 100).Draw(t, "wall"))
	rec.Outcome = rapid.SampledFrom([]record.Outcome{record.Completed, record.Rejected, record.Invalid, record.Failed, record.Cancelled}).Draw(t, "outcome")
	rec.IDSource = rapid.SampledFrom([]string{"client", "client", "server"}).Draw(t, "source")
	return rec
}

// Whatever plan, client and server say: every planned request has one entry
// with one class, every server record has one place, and what does not fit is
// a finding.
func TestBooksClose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := ledger.Plan{Warmup: rapid.IntRange(0, 15).Draw(t, "warmup"), Measured: rapid.IntRange(0, 15).Draw(t, "measured")}
		var clients []*aiperf.Request
		for i := range rapid.IntRange(0, 25).Draw(t, "clients") {
			clients = append(clients, anyRequest(t, int64(i)*3))
		}
		gaps := rapid.IntRange(0, 3).Draw(t, "gaps")
		client := func(yield func(*aiperf.Request, error) bool) {
			for _, r := range clients {
				if !yield(r, nil) {
					return
				}
			}
			for i := range gaps {
				if !yield(nil, &aiperf.Gap{ID: []string{"", "r33", "lost"}[i], Err: fmt.Errorf("torn")}) {
					return
				}
			}
		}
		var records []*record.Record
		for range rapid.IntRange(0, 30).Draw(t, "records") {
			records = append(records, anyRecord(t))
		}
		in := ledger.Input{Plan: plan, Client: client, Server: seq(records...)}
		l, err := closeBooks(in)
		if err != nil {
			t.Fatal(err) // the sums are part of Build
		}

		planned, extra := 0, 0
		for _, e := range l.Entries {
			if e.Unplanned {
				extra++
			} else {
				planned++
			}
			if !slices.Contains(ledger.Classes, e.Class) || (e.Class == ledger.Failed) != (e.Reason != "") {
				t.Fatalf("class %q, reason %q", e.Class, e.Reason)
			}
			if e.Server != nil && e.Join != ledger.Matched && e.Join != ledger.ServerOnly {
				t.Fatalf("a server record on a request that is %q", e.Join)
			}
		}
		if planned != plan.Warmup+plan.Measured || extra != l.Summary.Unplanned {
			t.Fatalf("%d entries for %d planned requests, %d beyond", planned, plan.Warmup+plan.Measured, extra)
		}
		fits := map[ledger.Code]bool{}
		for _, f := range l.Summary.Findings {
			fits[f.Code] = true
			if f.Message == "" || f.Consequence == "" || f.Count == 0 || len(f.Evidence) == 0 {
				t.Fatalf("empty finding %+v", f)
			}
		}
		if err := l.checkKinds(); err != nil {
			t.Fatal(err)
		}
		r := l.Summary.ServerRecords
		for code, must := range map[ledger.Code]bool{
			ledger.PlanMismatch:      extra > 0,
			ledger.ServerOnlyRequest: r.ServerOnly > 0,
			ledger.HiddenRetry:       r.Retries > 0,
			ledger.AmbiguousID:       l.Summary.Quality.Ambiguous > 0,
			ledger.TornExport:        gaps > 0,
		} {
			if must && !fits[code] {
				t.Fatalf("no finding %s", code)
			}
		}

		// The order of the files does not matter.
		slices.Reverse(clients)
		again, err := closeBooks(in)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := l.file(t), again.file(t); !bytes.Equal(a, b) {
			t.Fatalf("the order of the export shows:\n%s\n%s", a, b)
		}
	})
}

func FuzzReadServer(f *testing.F) {
	f.Add([]byte(`{"schema":1,"request_id":"a","outcome":"completed","status":200}` + "\n{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for range ledger.ReadServer(bytes.NewReader(b), "f", 1<<16) {
		}
		for range ledger.Read(bytes.NewReader(b), "f") {
		}
	})
}
