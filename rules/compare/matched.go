package compare

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"assay/rules/internal/jsonfile"
	"assay/rules/internal/ledger"
	"assay/rules/join"
)

// Reason is one way in which the work of two runs is not the same.
type Reason struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// A and B are the values where the sides differ, Count of Of the requests it
	// concerns.
	A     any `json:"a,omitempty"`
	B     any `json:"b,omitempty"`
	Count int `json:"count,omitempty"`
	Of    int `json:"of,omitempty"`
}

// Codes of reasons.
const (
	Streamed        = "streamed"        // a side streams its answers
	Mode            = "mode"            // one side streams, the other does not
	Concurrent      = "concurrency"     // a side has several requests in flight
	OpenLoop        = "open_loop"       // a side sends at a rate
	Workload        = "workload"        // the load differs
	BlockingFinding = "blocking"        // a side has a finding that blocks a qualification
	RepeatedPrompt  = "repeated_prompt" // requests cannot be paired by their prompt
	Payloads        = "payloads"        // other requests
	Sequence        = "order"           // the same requests in another order
	Classes         = "class"
	Statuses        = "status"
	Texts           = "text"
	TokenCounts     = "token_counts"
	NothingToTime   = "nothing_to_time" // no request completed with this duration
	PartlyTimed     = "partly_timed"    // a duration is known in some samples only
	Scopes          = "scope"           // the sides time different things
	Doubted         = "doubted"         // the join withholds the figure
)

// side is one of the two runs: what was asked for, and what became of it.
type side struct {
	name    string
	joined  join.Joined
	ledgers [][]ledger.Entry // of each sample: warm-up and measured requests
}

func (s side) mode() string {
	if s.joined.Samples[0].Facts.Workload.Streaming {
		return "streamed"
	}
	return "buffered"
}

// read reads a join's output.
func read(ctx context.Context, name, dir string) (side, error) {
	s := side{name: name}
	if err := jsonfile.Read(filepath.Join(dir, join.File), &s.joined); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	if len(s.joined.Samples) == 0 {
		return s, fmt.Errorf("%s: a join without samples cannot be compared", name)
	}
	for _, sample := range s.joined.Samples {
		if err := ctx.Err(); err != nil {
			return s, context.Cause(ctx)
		}
		entries, err := readLedger(dir, filepath.Join(join.LedgerDir, sample.ID+".jsonl"))
		if err != nil {
			return s, fmt.Errorf("%s: %w", name, err)
		}
		s.ledgers = append(s.ledgers, entries)
	}
	return s, nil
}

// readLedger leaves out the probes: they are the validation's, not the workload's.
func readLedger(dir, name string) ([]ledger.Entry, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var entries []ledger.Entry
	for e, err := range ledger.Read(f, name) {
		if err != nil {
			return nil, err
		}
		if e.Phase != ledger.Probe {
			entries = append(entries, *e)
		}
	}
	return entries, nil
}

// mismatch lists every reason why the work of two sides is not the same.
func mismatch(a, b side, streams bool) []Reason {
	reasons := append(sequential(a, streams), sequential(b, streams)...)
	if x, y := a.mode(), b.mode(); streams && x != y {
		reasons = append(reasons, Reason{Code: Mode, Message: fmt.Sprintf("a is %s and b is %s", x, y), A: x, B: y})
	}
	reasons = append(reasons, sameLoad(a, b)...)
	for _, s := range []side{a, b} {
		reasons = append(reasons, sound(s)...)
	}
	return append(reasons, sameRequests(a, b)...)
}

// sequential holds a side to one request at a time, buffered unless streams are
// admitted.
func sequential(s side, streams bool) []Reason {
	var reasons []Reason
	w := s.joined.Samples[0].Facts.Workload
	if w.Streaming && !streams {
		reasons = append(reasons, Reason{Code: Streamed, Message: s.name + " streams its answers"})
	}
	switch w.Concurrency {
	case 1:
	case 0: // of an imported run
		reasons = append(reasons, Reason{Code: Concurrent, Message: s.name + ": how many requests were in flight is not known"})
	default:
		reasons = append(reasons, Reason{Code: Concurrent, Message: fmt.Sprintf("%s has %d requests in flight, not 1", s.name, w.Concurrency)})
	}
	if w.RequestRate != 0 {
		reasons = append(reasons, Reason{Code: OpenLoop, Message: fmt.Sprintf("%s sends %g requests per second, not in a closed loop", s.name, w.RequestRate)})
	}
	return reasons
}

func sameLoad(a, b side) []Reason {
	x, y := a.joined.Samples[0].Facts.Workload, b.joined.Samples[0].Facts.Workload
	var reasons []Reason
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"endpoint", x.Endpoint, y.Endpoint},
		{"input_tokens", x.InputTokens, y.InputTokens},
		{"output_tokens", x.OutputTokens, y.OutputTokens},
		{"requests", x.Requests, y.Requests},
		{"warmup_requests", x.Warmup, y.Warmup},
		{"seed", x.Seed, y.Seed},
	} {
		if f.a != f.b {
			reasons = append(reasons, Reason{Code: Workload, Message: fmt.Sprintf("%s is %v for a and %v for b", f.name, f.a, f.b), A: f.a, B: f.b})
		}
	}
	return reasons
}

// sound refuses books that do not bear a claim, and prompts that are not unique.
func sound(s side) []Reason {
	var reasons []Reason
	for i, sample := range s.joined.Samples {
		for _, f := range sample.Ledger.Findings {
			if f.Severity == ledger.Blocking {
				reasons = append(reasons, Reason{Code: BlockingFinding, Count: f.Count,
					Message: fmt.Sprintf("%s, sample %s has the blocking finding %s: %s", s.name, sample.ID, f.Code, f.Message)})
			}
		}
		seen, repeated := map[string]bool{}, 0
		for _, e := range s.ledgers[i] {
			if prompt := promptOf(e); prompt == "" || seen[prompt] {
				repeated++
			} else {
				seen[prompt] = true
			}
		}
		if repeated > 0 {
			reasons = append(reasons, Reason{Code: RepeatedPrompt, Count: repeated, Of: len(s.ledgers[i]),
				Message: fmt.Sprintf("%s, sample %s: %d of %d requests have no prompt of their own", s.name, sample.ID, repeated, len(s.ledgers[i]))})
		}
	}
	return reasons
}

// sameRequests holds every sample of both sides against the first of a, request
// by request by its place in the plan: the n-th of one with the n-th of the other,
// whatever their times.
func sameRequests(a, b side) []Reason {
	want := a.ledgers[0]
	checks := []struct {
		code, what string
		same       func(x, y ledger.Entry) bool
	}{
		{Classes, "end in another class", func(x, y ledger.Entry) bool { return x.Class == y.Class && x.Reason == y.Reason }},
		{Statuses, "have another status", func(x, y ledger.Entry) bool { return equal(x.Client.Status, y.Client.Status) }},
		{Texts, "have another answer", func(x, y ledger.Entry) bool { return x.Client.TextSHA256 == y.Client.TextSHA256 }},
		{TokenCounts, "have other token counts, or none", sameTokens},
	}
	var reasons []Reason
	for _, s := range []side{a, b} {
		for i, got := range s.ledgers {
			where := fmt.Sprintf("%s, sample %s, against the first of a", s.name, s.joined.Samples[i].ID)
			if n := differing(want, got, func(x, y ledger.Entry) bool { return bodyOf(x) != "" && bodyOf(x) == bodyOf(y) }); n > 0 {
				code, what := Payloads, "are not the same bytes in the same place"
				if maps.Equal(payloads(want), payloads(got)) {
					code, what = Sequence, "are the same bytes in another place"
				}
				reasons = append(reasons, Reason{Code: code, Count: n, Of: max(len(want), len(got)),
					Message: fmt.Sprintf("%s: %d of %d requests %s", where, n, max(len(want), len(got)), what)})
				continue // answers to other requests say nothing more
			}
			for _, c := range checks {
				if n := differing(want, got, c.same); n > 0 {
					reasons = append(reasons, Reason{Code: c.code, Count: n, Of: len(want),
						Message: fmt.Sprintf("%s: %d of %d requests %s", where, n, len(want), c.what)})
				}
			}
		}
	}
	return reasons
}

// payload is a request's part of the run and its bytes.
type payload struct {
	phase ledger.Phase
	body  string
}

// payloads counts how often each payload was sent.
func payloads(entries []ledger.Entry) map[payload]int {
	sent := map[payload]int{}
	for _, e := range entries {
		sent[payload{e.Phase, bodyOf(e)}]++
	}
	return sent
}

// differing counts the places at which two ledgers are not the same.
func differing(x, y []ledger.Entry, same func(x, y ledger.Entry) bool) int {
	n := max(len(x), len(y)) - min(len(x), len(y))
	for i := range min(len(x), len(y)) {
		if x[i].Phase != y[i].Phase || !same(x[i], y[i]) {
			n++
		}
	}
	return n
}

// sameTokens needs the counts of every request that completed; the others may lack
// them on both sides.
func sameTokens(x, y ledger.Entry) bool {
	known := x.Tokens.Prompt != nil && x.Tokens.Completion != nil
	return equal(x.Tokens.Prompt, y.Tokens.Prompt) && equal(x.Tokens.Completion, y.Tokens.Completion) &&
		(known || x.Class != ledger.Completed)
}

func equal(x, y *int64) bool { return x == nil && y == nil || x != nil && y != nil && *x == *y }

func bodyOf(e ledger.Entry) string {
	if e.Client == nil {
		return ""
	}
	return e.Client.BodySHA256
}

func promptOf(e ledger.Entry) string {
	if e.Client == nil {
		return ""
	}
	return e.Client.PromptSHA256
}
