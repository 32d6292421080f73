package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/host"
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

func TestCleanRunHasNoFindings(t *testing.T) {
	if l := clean().build(t); len(l.Summary.Findings) > 0 {
		t.Errorf("%+v", l.Summary.Findings)
	}
}

// Every code has runs that have it, and runs that just miss it.
func TestFindings(t *testing.T) {
	const none = ledger.Severity("")
	last := fmt.Sprintf("r%03d", warmups+measured-1)
	tested := map[ledger.Code][2]bool{}
	for _, c := range []struct {
		code     ledger.Code
		name     string
		spoil    func(*run)
		severity ledger.Severity // none if it must not be found
		about    []string        // request ids of the evidence; "" is the run
	}{
		{ledger.AIPerfExit, "status 1", func(r *run) { r.in.Exit.Code = 1 }, ledger.Blocking, []string{""}},
		{ledger.AIPerfExit, "a signal", func(r *run) { r.in.Exit.Signal = "SIGINT" }, ledger.Blocking, []string{""}},
		{ledger.AIPerfExit, "status 0 after an interrupt", func(r *run) { r.in.Summary.WasCancelled = true }, ledger.Blocking, []string{""}},
		{ledger.AIPerfExit, "complete", func(r *run) { r.in.Summary.IsComplete = ptr(true) }, none, nil},

		{ledger.AmbiguousID, "one id twice", func(r *run) { r.clients[5].ID = "r004" }, ledger.Blocking, []string{"r004", "r004"}},
		{ledger.AmbiguousID, "no records of the server", func(r *run) { r.clients[5].ID, r.records = "r004", nil }, ledger.Blocking, []string{"r004", "r004"}},
		{ledger.AmbiguousID, "no id twice", func(r *run) { r.clients[5].ID, r.clients[6].ID = "", "" }, none, nil},

		{ledger.CacheAcross, "more than half of a first turn", func(r *run) { r.in.PromptCache = true; r.clients[9].Response.Usage.Cached = ptr(int64(11)) }, ledger.Warning, []string{"r009"}},
		{ledger.CacheAcross, "no more than the template", func(r *run) {
			r.in.PromptCache = true
			r.clients[9].Response.Usage.Cached = ptr(int64(11))
			r.figures[9].InputTokens = ptr(int64(8)) // so 12 of the 20 are the template's
		}, none, nil},
		{ledger.CacheAcross, "half of a first turn", func(r *run) { r.in.PromptCache = true; r.clients[9].Response.Usage.Cached = ptr(int64(10)) }, none, nil},
		{ledger.CacheAcross, "its own earlier turn", func(r *run) { r.converse(32) }, none, nil},
		{ledger.CacheAcross, "its own and others'", func(r *run) { r.converse(32 + 21) }, ledger.Warning, []string{last}},

		{ledger.CachedTokens, "one, not declared", func(r *run) { r.clients[9].Response.Usage.Cached = ptr(int64(1)) }, ledger.Blocking, []string{"r009"}},
		{ledger.CachedTokens, "by the server's record alone", func(r *run) { r.records[9].Task.CachedTokens = ptr(int64(1)) }, ledger.Blocking, []string{"r009"}},
		{ledger.CachedTokens, "declared", func(r *run) { r.in.PromptCache = true; r.clients[9].Response.Usage.Cached = ptr(int64(1)) }, ledger.Info, []string{"r009"}},
		{ledger.CachedTokens, "0", func(r *run) { r.clients[9].Response.Usage.Cached = ptr(int64(0)) }, none, nil},

		{ledger.ClientOnlyRequest, "an answer that nobody gave", func(r *run) { r.records = r.records[:len(r.records)-1] }, ledger.Blocking, []string{last}},
		{ledger.ClientOnlyRequest, "no status came", func(r *run) { r.fail("ClientOSError", "") }, ledger.Info, []string{last}},
		{ledger.ClientOnlyRequest, "no records at all", func(r *run) { r.records = nil }, ledger.Warning, []string{""}},
		{ledger.ClientOnlyRequest, "a record of an attempt", func(r *run) { r.records[9].Outcome, r.records[9].Status = record.Cancelled, 499 }, none, nil},

		{ledger.ClientSaturated, "91 %", func(r *run) { r.busy(.91) }, ledger.Warning, []string{""}},
		{ledger.ClientSaturated, "90 %", func(r *run) { r.busy(.90) }, none, nil},
		{ledger.ClientSaturated, "91 % of one of two", func(r *run) { r.busy(.91); r.in.Conditions.ClientCPUs = 2 }, none, nil},
		{ledger.ClientSaturated, "one reading", func(r *run) { r.busy(1); r.in.Conditions.ClientBusy = r.in.Conditions.ClientBusy[6:7] }, none, nil},

		{ledger.ClockMismatch, "20 ms and a bit longer than the client waited", func(r *run) { r.records[9].TotalNS = 125*msec + 1 }, ledger.Warning, []string{"r009"}},
		{ledger.ClockMismatch, "20 ms longer", func(r *run) { r.records[9].TotalNS = 125 * msec }, none, nil},
		{ledger.ClockMismatch, "negative", func(r *run) { r.records[9].Task.WallNS = -1 }, ledger.Warning, []string{"r009"}},
		{ledger.ClockMismatch, "zero", func(r *run) { r.records[9].Task.WallNS, r.records[9].Task.FirstIncrementNS = 0, nil }, none, nil},

		{ledger.ClockStep, "by 1 ms and a bit", func(r *run) { r.step(msec + 1) }, ledger.Warning, []string{""}},
		{ledger.ClockStep, "back", func(r *run) { r.step(-3600_000 * msec) }, ledger.Warning, []string{""}},
		{ledger.ClockStep, "by 1 ms", func(r *run) { r.step(msec) }, none, nil},

		{ledger.ConnectionClosed, "disconnected", func(r *run) { r.fail("ServerDisconnectedError", "Server disconnected") }, ledger.Warning, []string{last}},
		{ledger.ConnectionClosed, "reset", func(r *run) { r.fail("ClientOSError", "[Errno 104] Connection reset by peer") }, ledger.Warning, []string{last}},
		{ledger.ConnectionClosed, "refused", func(r *run) { r.fail("ClientConnectorError", "Cannot connect to host 127.0.0.1:1") }, none, nil},
		{ledger.ConnectionClosed, "the server has a record", func(r *run) {
			lost := r.records[len(r.records)-1]
			r.fail("ServerDisconnectedError", "")
			r.records = append(r.records, lost)
		}, none, nil},
		{ledger.ConnectionClosed, "nothing was answered before", func(r *run) {
			r.clients, r.records = r.clients[:1], r.records[:1]
			r.fail("ServerDisconnectedError", "")
			r.records = append(r.records, served("else", 1, 1))
		}, none, nil},

		{ledger.ConnectionClosed, "the records are of another server", func(r *run) {
			r.fail("ServerDisconnectedError", "")
			for _, s := range r.records {
				s.RequestID = "other-" + s.RequestID
			}
		}, none, nil},

		{ledger.DispatchLag, "over half later than 10 ms", func(r *run) { r.lag(11, 10*msec+1) }, ledger.Warning, ids(warmups + 11)[warmups:]},
		{ledger.DispatchLag, "half", func(r *run) { r.lag(10, 10*msec+1) }, none, nil},
		{ledger.DispatchLag, "all by 10 ms", func(r *run) { r.lag(20, 10*msec) }, none, nil},
		{ledger.DispatchLag, "one of twenty by over 100 ms", func(r *run) { r.lag(1, 100*msec+1) }, ledger.Warning, []string{"r002"}},
		{ledger.DispatchLag, "one by 100 ms", func(r *run) { r.lag(1, 100*msec) }, none, nil},
		{ledger.DispatchLag, "in the warm-up", func(r *run) { r.clients[0].CreditWallNS = ptr(r.clients[0].StartWallNS - 900*msec) }, none, nil},

		{ledger.EmptyAnswers, "no content", func(r *run) { streamed(r.clients[9], 0, 0, 0) }, ledger.Blocking, []string{"r009"}},
		{ledger.EmptyAnswers, "one byte", func(r *run) { streamed(r.clients[9], 10, 0, 1) }, none, nil},

		{ledger.FasterRepeats, "in under half the time", func(r *run) { r.repeat(3, 24) }, ledger.Warning, []string{"r019", "r020", "r021"}},
		{ledger.FasterRepeats, "declared", func(r *run) { r.in.PromptCache = true; r.repeat(3, 24) }, ledger.Info, []string{"r019", "r020", "r021"}},
		{ledger.FasterRepeats, "in half the time", func(r *run) { r.repeat(3, 25) }, none, nil},
		{ledger.FasterRepeats, "only two", func(r *run) { r.repeat(2, 5) }, none, nil},
		{ledger.FasterRepeats, "only a slow warm-up", func(r *run) {
			r.repeat(3, 24)
			for _, c := range r.clients[warmups : warmups+measured-3] {
				for k := range c.Response.Chunks {
					c.Response.Chunks[k].PerfNS -= 2 * msec // the firsts themselves take 48
				}
			}
			for _, c := range r.clients[warmups : warmups+3] {
				c.Phase = aiperf.Warmup
			}
			r.in.Plan = ledger.Plan{Warmup: warmups + 3, Measured: measured - 3}
		}, none, nil},

		{ledger.HiddenRetry, "two attempts", func(r *run) { r.records = append(r.records, answered("r009", 503, record.Rejected)) }, ledger.Blocking, []string{"r009"}},
		{ledger.HiddenRetry, "the server says so", func(r *run) { r.records[9].Repeated = true }, ledger.Blocking, []string{"r009"}},
		{ledger.HiddenRetry, "a record of another id", func(r *run) { r.records = append(r.records, answered("R009", 503, record.Rejected)) }, none, nil},

		{ledger.IdentityMismatch, "another text", func(r *run) { r.records[9].Task.TextSHA256 = digest("other") }, ledger.Blocking, []string{"r009"}},
		{ledger.IdentityMismatch, "another count", func(r *run) { r.records[9].Task.CompletionTokens = ptr(int64(13)) }, ledger.Blocking, []string{"r009"}},
		{ledger.IdentityMismatch, "another finish reason", func(r *run) { r.records[9].Task.FinishReason = "length" }, ledger.Blocking, []string{"r009"}},
		{ledger.IdentityMismatch, "in the warm-up", func(r *run) { r.records[0].Task.FinishReason = "length" }, ledger.Blocking, []string{"r000"}},
		{ledger.IdentityMismatch, "digits in upper case", func(r *run) { r.records[9].Task.TextSHA256 = strings.ToUpper(r.records[9].Task.TextSHA256) }, none, nil},

		{ledger.DisagreesWithAIPerf, "a broken stream", func(r *run) { r.clients[9].Response.Done, r.clients[9].Response.FinishReason = false, "" }, ledger.Warning, []string{"r009"}},
		{ledger.DisagreesWithAIPerf, "a stream with one of the two ends", func(r *run) { r.clients[9].Response.Done = false }, none, nil},

		{ledger.NegativeDuration, "a first token before the start", func(r *run) { r.clients[9].Response.Chunks[0].PerfNS = *r.clients[9].StartPerfNS - 1 }, ledger.Blocking, []string{"r009"}},
		{ledger.NegativeDuration, "chunks in disorder", func(r *run) { r.clients[9].Response.Chunks[5].PerfNS = r.clients[9].Response.Chunks[4].PerfNS - 1 }, ledger.Blocking, []string{"r009"}},
		{ledger.NegativeDuration, "at the start", func(r *run) { r.clients[9].Response.Chunks[0].PerfNS = *r.clients[9].StartPerfNS }, none, nil},

		{ledger.NoisyHost, "others, over a tenth", func(r *run) { r.in.Conditions.Quiet.OtherCPUSeconds = ptr(10.1) }, ledger.Warning, []string{""}},
		{ledger.NoisyHost, "others, a tenth", func(r *run) { r.in.Conditions.Quiet.OtherCPUSeconds = ptr(10.0) }, none, nil},
		{ledger.NoisyHost, "stolen, over 2 %", func(r *run) { r.in.Conditions.Quiet.StealSeconds = ptr(2.1) }, ledger.Warning, []string{""}},
		{ledger.NoisyHost, "stolen, 2 %", func(r *run) { r.in.Conditions.Quiet.StealSeconds = ptr(2.0) }, none, nil},
		{ledger.NoisyHost, "not observed", func(r *run) { r.in.Conditions.Quiet = host.Quiet{WallSeconds: 50} }, none, nil},

		{ledger.OutcomeMismatch, "failed, and the client got it whole", func(r *run) { r.records[9].Outcome = record.Failed }, ledger.Blocking, []string{"r009"}},
		{ledger.OutcomeMismatch, "completed, and the client lost it", func(r *run) { r.clients[9].Response.Done, r.clients[9].Response.FinishReason = false, "" }, ledger.Warning, []string{"r009"}},
		{ledger.OutcomeMismatch, "cancelled, and the client timed out", func(r *run) {
			r.clients[9].Error = &aiperf.Error{Type: "TimeoutError"}
			r.records[9].Outcome = record.Cancelled
		}, none, nil},

		{ledger.PlanMismatch, "one less", func(r *run) { r.in.Plan.Measured++ }, ledger.Blocking, []string{""}},
		{ledger.PlanMismatch, "one more", func(r *run) { r.in.Plan.Measured-- }, ledger.Blocking, []string{last}},
		{ledger.PlanMismatch, "as planned", func(r *run) { slices.Reverse(r.clients) }, none, nil},

		{ledger.TruncatedPrompt, "half the window", func(r *run) { r.prompt(7900, 2050) }, ledger.Blocking, []string{"r009"}},
		{ledger.TruncatedPrompt, "as near as counts", func(r *run) { r.prompt(4000, 2048+89) }, ledger.Blocking, []string{"r009"}},
		{ledger.TruncatedPrompt, "not near half the window", func(r *run) { r.prompt(4000, 2048+90) }, none, nil},
		{ledger.TruncatedPrompt, "more than nine tenths", func(r *run) { r.prompt(4100, 4000) }, none, nil},

		{ledger.PromptTokensLow, "below nine tenths", func(r *run) { r.prompt(1000, 899) }, ledger.Warning, []string{"r009"}},
		{ledger.PromptTokensLow, "nine tenths", func(r *run) { r.prompt(1000, 900) }, none, nil},
		{ledger.PromptTokensLow, "unknown", func(r *run) { r.figures[9].InputTokens, r.clients[9].Response.Usage.Prompt = ptr(int64(1000)), nil }, none, nil},

		{ledger.RateNotMet, "98.8 %", func(r *run) { r.in.Conditions.Rate = 5.06 }, ledger.Warning, []string{""}},
		{ledger.RateNotMet, "99.01 %", func(r *run) { r.in.Conditions.Rate = 5.05 }, none, nil},
		{ledger.RateNotMet, "too few", func(r *run) {
			r.in.Conditions.Rate = 50
			r.clients, r.records = r.clients[:warmups+19], r.records[:warmups+19]
		}, none, nil},

		{ledger.ReasoningOnly, "no text", func(r *run) { r.think(12) }, ledger.Warning, []string{last}},
		{ledger.ReasoningOnly, "a tool call", func(r *run) { r.think(12).Response.Chunks[11].ToolSize = 1 }, none, nil},
		{ledger.ReasoningOnly, "one byte of text", func(r *run) { r.think(11) }, none, nil},

		{ledger.ReasoningTokens, "not counted", func(r *run) { r.think(5) }, ledger.Info, []string{last}},
		{ledger.ReasoningTokens, "more than all", func(r *run) { r.think(5).Response.Usage.Reasoning = ptr(int64(13)) }, ledger.Warning, []string{last}},
		{ledger.ReasoningTokens, "all of them", func(r *run) { r.think(12).Response.Usage.Reasoning = ptr(int64(12)) }, none, nil},
		{ledger.ReasoningTokens, "counted and not sent", func(r *run) { r.clients[9].Response.Usage.Reasoning = ptr(int64(1)) }, ledger.Warning, []string{"r009"}},
		{ledger.ReasoningTokens, "none", func(r *run) { r.clients[9].Response.Usage.Reasoning = ptr(int64(0)) }, none, nil},

		{ledger.RepeatedPrompt, "of a warm-up", func(r *run) { r.clients[9].Payload.PromptSHA256 = r.clients[0].Payload.PromptSHA256 }, ledger.Warning, []string{"r009"}},
		{ledger.RepeatedPrompt, "no digest", func(r *run) {
			r.clients[8].Payload.PromptSHA256, r.clients[9].Payload.PromptSHA256 = aiperf.Digest{}, aiperf.Digest{}
		}, none, nil},

		{ledger.ServerOnlyRequest, "one more than was sent", func(r *run) { r.records = append(r.records, served("more", 1, 1)) }, ledger.Blocking, []string{"more"}},
		{ledger.ServerOnlyRequest, "after an interrupt", func(r *run) {
			r.in.Exit.Signal = "SIGINT"
			r.clients = r.clients[:len(r.clients)-1]
		}, ledger.Warning, []string{last}},
		{ledger.ServerOnlyRequest, "a second record of a request", func(r *run) { r.records = append(r.records, served("r009", 12, 100)) }, none, nil},

		{ledger.StreamNotIncremental, "nine gaps of eleven below 1 ms", func(r *run) { r.squeeze(9, 120*msec) }, ledger.Warning, []string{"r009"}},
		{ledger.StreamNotIncremental, "eight of eleven", func(r *run) { r.squeeze(8, 120*msec) }, none, nil},
		{ledger.StreamNotIncremental, "decoded in ten times the spread", func(r *run) { r.squeeze(9, 10*(2*msec+9)) }, none, nil},
		{ledger.StreamNotIncremental, "and a bit more", func(r *run) { r.squeeze(9, 10*(2*msec+9)+1) }, ledger.Warning, []string{"r009"}},
		{ledger.StreamNotIncremental, "generated in 1 ms a gap", func(r *run) { r.squeeze(11, 11*msec) }, none, nil},
		{ledger.StreamNotIncremental, "in a bit more", func(r *run) { r.squeeze(11, 11*msec+1) }, ledger.Warning, []string{"r009"}},
		{ledger.StreamNotIncremental, "seven chunks", func(r *run) { r.squeeze(9, 120*msec); r.clients[9].Response.Chunks = r.clients[9].Response.Chunks[:7] }, none, nil},

		{ledger.SummaryMismatch, "one success more", func(r *run) { *r.in.Summary.Successes++ }, ledger.Warning, []string{""}},
		{ledger.SummaryMismatch, "an error more", func(r *run) { r.in.Summary.Errors = ptr(int64(1)) }, ledger.Warning, []string{""}},
		{ledger.SummaryMismatch, "of another run", func(r *run) { *r.in.Summary.MinLatencyMS, *r.in.Summary.MaxLatencyMS = 104.9, 105.1 }, ledger.Warning, []string{""}},
		{ledger.SummaryMismatch, "one extreme is off", func(r *run) { *r.in.Summary.MinLatencyMS = 104.9 }, none, nil},
		{ledger.SummaryMismatch, "rounded to 1 µs", func(r *run) { *r.in.Summary.MinLatencyMS, *r.in.Summary.MaxLatencyMS = 105.0005, 104.9995 }, none, nil},

		{ledger.TokenCountsDiffer, "by over a tenth", func(r *run) { r.figures[9].OutputTokens = ptr(int64(14)) }, ledger.Info, []string{"r009"}},
		{ledger.TokenCountsDiffer, "by less", func(r *run) { r.figures[9].OutputTokens = ptr(int64(13)) }, none, nil},

		{ledger.TornExport, "of the records", func(r *run) {
			r.clients = r.clients[:len(r.clients)-1]
			r.torn = &aiperf.Gap{ID: last, Err: fmt.Errorf("torn")}
		}, ledger.Blocking, []string{last}},
		{ledger.TornExport, "of AIPerf's figures", func(r *run) { r.in.Figures = failing[aiperf.Figures](&aiperf.Gap{Err: fmt.Errorf("torn")}) }, ledger.Warning, []string{""}},
		{ledger.TornExport, "of a record of the server", func(r *run) {
			r.in.Server = func(yield func(*record.Record, error) bool) {
				for _, s := range r.records {
					if !yield(s, nil) {
						return
					}
				}
				yield(nil, &aiperf.Gap{Err: fmt.Errorf("damaged")})
			}
			r.records = nil
		}, ledger.Blocking, []string{""}},
		{ledger.TornExport, "no figures", func(r *run) { r.figures = nil }, none, nil},

		{ledger.WallClocksDiffer, "received before it was sent", func(r *run) { r.records[9].ReceivedWallNS = r.clients[9].StartWallNS - 20*msec - 1 }, ledger.Warning, nil},
		{ledger.WallClocksDiffer, "20 ms before", func(r *run) { r.records[9].ReceivedWallNS = r.clients[9].StartWallNS - 20*msec }, none, nil},
		{ledger.WallClocksDiffer, "another machine, an hour off", func(r *run) { r.elsewhere(3600_000 * msec) }, none, nil},
		{ledger.WallClocksDiffer, "another machine, and its clock moved", func(r *run) {
			r.elsewhere(3600_000 * msec)
			r.records[9].ReceivedWallNS += 126 * msec
		}, ledger.Warning, nil},

		{ledger.WrongRun, "records of another boot", func(r *run) { r.records[9].BootID = "that boot" }, ledger.Blocking, []string{"r009"}},
		{ledger.WrongRun, "two boots, which is ours not known", func(r *run) { r.in.Conditions = ledger.Conditions{}; r.records[9].BootID = "that boot" }, ledger.Blocking, []string{"r009"}},
		{ledger.WrongRun, "another model", func(r *run) { r.records[9].Model = "n" }, ledger.Blocking, []string{"r009"}},
		{ledger.WrongRun, "a request for a model that is not there", func(r *run) { r.records[9].Model, r.records[9].Outcome = "n", record.Invalid }, none, nil},
		{ledger.WrongRun, "an export older than the sample", func(r *run) { r.in.Conditions.Started = time.Unix(0, r.clients[0].StartWallNS+1000*msec+1) }, ledger.Blocking, []string{"r000"}},
		{ledger.WrongRun, "a second before the sample", func(r *run) {
			r.in.Conditions.Started = time.Unix(0, r.clients[0].StartWallNS+1000*msec)
		}, none, nil},
		{ledger.WrongRun, "records of another day", func(r *run) { r.records[9].ReceivedWallNS += 24 * 3600_000 * msec }, ledger.Blocking, []string{"r009"}},
		{ledger.WrongRun, "no id in common", func(r *run) {
			for _, s := range r.records {
				s.RequestID = "other-" + s.RequestID
			}
		}, ledger.Blocking, []string{""}},
		{ledger.WrongRun, "one id in common", func(r *run) {
			for _, s := range r.records[1:] {
				s.RequestID = "other-" + s.RequestID
			}
		}, none, nil},
	} {
		t.Run(string(c.code)+"/"+c.name, func(t *testing.T) {
			r := clean()
			c.spoil(r)
			l := r.build(t)
			at := tested[c.code]
			i := slices.IndexFunc(l.Summary.Findings, func(f ledger.Finding) bool { return f.Code == c.code })
			if c.severity == none {
				tested[c.code] = [2]bool{at[0], true}
				if i >= 0 {
					t.Errorf("found: %+v", l.Summary.Findings[i])
				}
				return
			}
			tested[c.code] = [2]bool{true, at[1]}
			f := finding(t, l, c.code)
			if f.Severity != c.severity {
				t.Errorf("%s, want %s", f.Severity, c.severity)
			}
			var about []string
			for _, e := range f.Evidence {
				about = append(about, e.RequestID)
			}
			if c.about != nil && !slices.Equal(about, c.about) {
				t.Errorf("evidence of %q, want %q: %+v", about, c.about, f.Evidence)
			}
		})
	}
	// An inspector's are tested where it is.
	inspected := []ledger.Code{ledger.HistoryAnswers, ledger.HistoryDiffers, ledger.HistoryGap, ledger.TurnOrder}
	for _, k := range ledger.Kinds {
		if slices.Contains(inspected, k.Code) {
			continue
		}
		if tested[k.Code] != [2]bool{true, true} {
			t.Errorf("%s is not tested both ways", k.Code)
		}
	}
}

// The clean one of AIPerf's real exports has no finding of what servers,
// networks and hosts do wrong.
func TestRealExportsHaveOnlyWhatWasDone(t *testing.T) {
	for name, want := range map[string][]ledger.Code{
		"mixed":     {ledger.EmptyAnswers, ledger.DisagreesWithAIPerf, ledger.ReasoningTokens, ledger.TokenCountsDiffer},
		"buffered":  {ledger.EmptyAnswers},
		"cancelled": {ledger.TokenCountsDiffer},
		"refused":   {ledger.AIPerfExit},
	} {
		if got := codes(build(t, load(t, name))); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
