package ledger_test

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/host"
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

// run is a run in which nothing is wrong, to be spoiled by a test: two warm-ups
// and twenty measured streams of 12 tokens, five a second, first token after 50
// ms, last after 105. Client i is request "r00i", and so is record i.
type run struct {
	in      ledger.Input
	clients []*aiperf.Request
	records []*record.Record
	figures []aiperf.Figures
	torn    error // an error that the export ends with
}

const (
	warmups  = 2
	measured = 20
)

func clean() *run {
	r := &run{in: ledger.Input{
		Plan: ledger.Plan{Warmup: warmups, Measured: measured}, ContextWindow: 4096,
		Summary: &aiperf.Summary{Successes: ptr(int64(measured)), MinLatencyMS: ptr(105.0), MaxLatencyMS: ptr(105.0)},
	}}
	for i, id := range ids(warmups + measured) {
		c := streamed(sent(id, int64(i)*200), 50, 5, 12)
		if i < warmups {
			c = warm(c)
		}
		c.CreditWallNS = ptr(c.StartWallNS - 2*msec)
		s := served(id, 12, 100)
		s.Model, s.BootID, s.ReceivedWallNS = "m", "this boot", c.StartWallNS+msec
		s.Task.FirstIncrementNS = ptr(45 * msec)
		r.clients, r.records = append(r.clients, c), append(r.records, s)
		r.figures = append(r.figures, aiperf.Figures{ID: id, InputTokens: ptr(int64(20)), OutputTokens: ptr(int64(12))})
	}
	r.in.Conditions = ledger.Conditions{
		Model: "m", BootID: "this boot", Rate: 5, CPUs: 2, ClientCPUs: 1,
		Started:  time.Unix(0, r.clients[0].StartWallNS-4*msec),
		Finished: time.Unix(0, r.clients[0].StartWallNS+6000*msec),
		Quiet:    host.Quiet{WallSeconds: 50, OtherCPUSeconds: ptr(1.0), StealSeconds: ptr(0.1)},
	}
	r.busy(0.2)
	return r
}

// busy is what the readings say of the load generator's one CPU while requests
// were measured; before and after that it had nothing else to do.
func (r *run) busy(share float64) {
	r.in.Conditions.ClientBusy = nil
	first := r.clients[warmups].StartWallNS
	last := r.clients[len(r.clients)-1].StartWallNS
	busy := int64(0)
	for at := first - 3000*msec; at < last+3000*msec; at += 500 * msec {
		r.in.Conditions.ClientBusy = append(r.in.Conditions.ClientBusy, host.Busy{WallNS: at, BusyNS: busy})
		if at < first || at > last {
			busy += 500 * msec
		} else {
			busy += int64(share * 500 * float64(msec))
		}
	}
}

func (r *run) build(t *testing.T) *closed {
	t.Helper()
	client := seq(r.clients...)
	r.in.Client = func(yield func(*aiperf.Request, error) bool) {
		for c := range client {
			if !yield(c, nil) {
				return
			}
		}
		if r.torn != nil {
			yield(nil, r.torn)
		}
	}
	if r.records != nil {
		r.in.Server = seq(r.records...)
	}
	if r.in.Figures == nil {
		r.in.Figures = seq(r.figures...)
	}
	return build(t, r.in)
}

// fail makes the last request end with an error of the client's own, and the
// server know nothing of it.
func (r *run) fail(kind, message string) {
	last := len(r.clients) - 1
	c := r.clients[last]
	c.Status, c.Response, c.Error = nil, aiperf.Response{}, &aiperf.Error{Type: kind, Message: message}
	r.records = r.records[:last]
}

// repeat sends the prompts of the first n measured requests again, as the last
// ones, with their first token after ttft ms instead of 50.
func (r *run) repeat(n int, ttft int64) {
	last := len(r.clients) - n
	for i := range n {
		c := r.clients[last+i]
		c.Payload.PromptSHA256 = r.clients[warmups+i].Payload.PromptSHA256
		for k := range c.Response.Chunks {
			c.Response.Chunks[k].PerfNS -= (50 - ttft) * msec
		}
	}
}

// think makes the answer of the last request have n chunks of reasoning first.
func (r *run) think(n int) *aiperf.Request {
	c := r.clients[len(r.clients)-1]
	for i := range n {
		c.Response.Chunks[i].ReasoningSize, c.Response.Chunks[i].TextSize = 1, 0
	}
	c.Response.Reasoning, c.Response.Text = strings.Repeat("y", n), strings.Repeat("x", 12-n)
	c.Response.SHA256 = sha256.Sum256([]byte(c.Response.Text))
	r.records[len(r.records)-1].Task.TextSHA256 = digest(c.Response.Text)
	return c
}

// failing yields an error alone.
func failing[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// step moves the client's wall clock from the middle of the run on.
func (r *run) step(by int64) {
	for i := len(r.clients) / 2; i < len(r.clients); i++ {
		r.clients[i].StartWallNS += by
		*r.clients[i].CreditWallNS += by
	}
}

// lag delays the first n measured requests.
func (r *run) lag(n int, by int64) {
	for _, c := range r.clients[warmups : warmups+n] {
		c.CreditWallNS = ptr(c.StartWallNS - by)
	}
}

// prompt is what client and server count of request 9.
func (r *run) prompt(client, server int64) {
	r.figures[9].InputTokens, r.clients[9].Response.Usage.Prompt = &client, &server
}

// converse makes the last two requests the turns of a conversation, of which the
// second has so many tokens from a declared cache.
func (r *run) converse(cached int64) {
	r.in.PromptCache = true
	n := len(r.clients)
	r.clients[n-2].CorrelationID, r.clients[n-1].CorrelationID = "talk", "talk"
	r.clients[n-1].Response.Usage.Prompt, r.clients[n-1].Response.Usage.Cached = ptr(int64(40)), &cached
}

// squeeze makes n of the eleven gaps of request 9 one ns, the others 1 ms, and
// the server decode for so long.
func (r *run) squeeze(n int, decode int64) {
	chunks := r.clients[9].Response.Chunks
	for i := 1; i < len(chunks); i++ {
		gap := msec
		if i <= n {
			gap = 1
		}
		chunks[i].PerfNS = chunks[i-1].PerfNS + gap
	}
	r.records[9].Task.WallNS = *r.records[9].Task.FirstIncrementNS + decode
	r.records[9].TotalNS = r.records[9].Task.WallNS
	*r.clients[9].Response.LastPerfNS = *r.clients[9].StartPerfNS + r.records[9].TotalNS
}

// elsewhere puts the server on a machine of its own, with its own clock.
func (r *run) elsewhere(ahead int64) {
	r.in.Conditions.BootID, r.in.Conditions.Started, r.in.Conditions.Finished = "", time.Time{}, time.Time{}
	for _, s := range r.records {
		s.ReceivedWallNS += ahead
	}
}

// Every finding that arises anywhere is of a kind, with one of its severities.
func (l *closed) checkKinds() error {
	for _, f := range l.Summary.Findings {
		i := slices.IndexFunc(ledger.Kinds, func(k ledger.Kind) bool { return k.Code == f.Code })
		if i < 0 || !slices.Contains(ledger.Kinds[i].Severities, f.Severity) {
			return fmt.Errorf("%s is %s, which its kind does not have", f.Code, f.Severity)
		}
	}
	return nil
}
