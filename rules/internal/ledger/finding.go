package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// Code names a kind of finding.
type Code string

const (
	AIPerfExit           Code = "aiperf_exit"
	AmbiguousID          Code = "ambiguous_id"
	CacheAcross          Code = "cache_across_conversations"
	CachedTokens         Code = "cached_tokens"
	ClientOnlyRequest    Code = "client_only"
	ClientSaturated      Code = "client_saturated"
	ClockMismatch        Code = "clock_mismatch"
	ClockStep            Code = "clock_step"
	ConnectionClosed     Code = "connection_closed"
	DispatchLag          Code = "dispatch_lag"
	EmptyAnswers         Code = "empty_answers"
	FasterRepeats        Code = "faster_repeats"
	HiddenRetry          Code = "hidden_retry"
	HistoryAnswers       Code = "history_answers"
	HistoryDiffers       Code = "history_differs"
	HistoryGap           Code = "history_gap"
	IdentityMismatch     Code = "identity_mismatch"
	DisagreesWithAIPerf  Code = "ledger_disagrees_with_aiperf"
	NegativeDuration     Code = "negative_duration"
	NoisyHost            Code = "noisy_host"
	OutcomeMismatch      Code = "outcome_mismatch"
	PlanMismatch         Code = "plan_mismatch"
	PromptTokensLow      Code = "prompt_tokens_low"
	TruncatedPrompt      Code = "prompt_truncated"
	RateNotMet           Code = "rate_not_met"
	ReasoningOnly        Code = "reasoning_only"
	ReasoningTokens      Code = "reasoning_tokens"
	RepeatedPrompt       Code = "repeated_prompt"
	ServerOnlyRequest    Code = "server_only"
	StreamNotIncremental Code = "stream_not_incremental"
	SummaryMismatch      Code = "summary_mismatch"
	TokenCountsDiffer    Code = "token_counts_differ"
	TornExport           Code = "torn_export"
	TurnOrder            Code = "turn_order"
	WallClocksDiffer     Code = "wall_clocks_differ"
	WrongRun             Code = "wrong_run"
)

// Severity says what a finding does to a qualification.
type Severity string

const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Blocking Severity = "blocking"
)

var ranks = map[Severity]int{Info: 0, Warning: 1, Blocking: 2}

// Finding is something that does not fit, or that a reader of the numbers must
// know: one for each code, with all requests it concerns.
type Finding struct {
	Code        Code     `json:"code"`
	Severity    Severity `json:"severity"` // the worst of its evidence
	Message     string   `json:"message"`
	Consequence string   `json:"consequence"`
	Count       int      `json:"count"`
	// Evidence is in the order of the ledger and holds MaxEvidence items at
	// most; Count is of all.
	Evidence []Evidence `json:"evidence"`
}

// MaxEvidence bounds the evidence of one finding.
const MaxEvidence = 20

// Evidence is one instance. RequestID is empty if it concerns the whole run.
type Evidence struct {
	RequestID string `json:"request_id,omitempty"`
	Detail    string `json:"detail"`
}

// Kind is what holds for all findings of a code.
type Kind struct {
	Code Code
	// Severities are those that its evidence can have, the worst first.
	Severities  []Severity
	Message     string
	Consequence string
}

// Kinds lists what the ledger can find, by code. docs/findings has a page for
// each.
var Kinds = []Kind{
	{AIPerfExit, []Severity{Blocking}, "AIPerf did not end a whole run", "the run is not evidence of a complete workload"},
	{AmbiguousID, []Severity{Blocking}, "several client records share a request id", "no server record is attached to any of them"},
	{CacheAcross, []Severity{Warning}, "prompt tokens came from other conversations, out of a cache", "times are those of this order of prompts, not of a conversation alone"},
	{CachedTokens, []Severity{Blocking, Info}, "the server took prompt tokens from its cache", "times are not those of a cold prompt"},
	{ClientOnlyRequest, []Severity{Blocking, Warning, Info}, "requests of the client that the server has no record of", "they have no native time and no identity check"},
	{ClientSaturated, []Severity{Warning}, "the CPUs of the load generator were busy", "the client's times hold the load generator's own delay"},
	{ClockMismatch, []Severity{Warning}, "server times that cannot be right beside the client's", "the server times of these requests are withheld"},
	{ClockStep, []Severity{Warning}, "the client's wall clock moved against its monotonic clock", "durations are monotonic and stand; places in time do not"},
	{ConnectionClosed, []Severity{Warning}, "connections that were kept open were closed under a request", "the requests failed without reaching the server"},
	{DispatchLag, []Severity{Warning}, "requests were dispatched later than they were due", "the load was not the one that was asked for"},
	{EmptyAnswers, []Severity{Blocking}, "requests ended well without content", "they are in no latency or throughput figure"},
	{FasterRepeats, []Severity{Warning, Info}, "repeated prompts had their first token much sooner than the first time", "a prompt cache answered; times are not those of a cold prompt"},
	{HiddenRetry, []Severity{Blocking}, "the server saw a request id more often than the client sent it", "the run breaks the rule of one attempt for each request"},
	{HistoryAnswers, []Severity{Blocking, Warning}, "answers that depend on earlier turns are not those of the family's reference", "nothing shows that the history was taken into account"},
	{HistoryDiffers, []Severity{Blocking, Warning}, "the server did not receive the history that the conversation had", "these answers are not those of the conversation"},
	{HistoryGap, []Severity{Warning}, "turns came after one that has no whole reply", "their prompts are not those of an undisturbed conversation"},
	{IdentityMismatch, []Severity{Blocking}, "the native answer is not the one that the client received", "the run cannot be qualified"},
	{DisagreesWithAIPerf, []Severity{Warning}, "AIPerf and the ledger judge requests differently", "AIPerf's own figures are over another set of requests"},
	{NegativeDuration, []Severity{Blocking}, "time stamps run backwards", "the durations of these requests are withheld"},
	{NoisyHost, []Severity{Warning}, "others used the machine during the sample", "times hold what others did; counts and answers stand"},
	{OutcomeMismatch, []Severity{Blocking, Warning}, "client and server tell different ends of a request", "the class follows the client's record"},
	{PlanMismatch, []Severity{Blocking}, "what was dispatched is not what was planned", "the run does not cover its plan"},
	{PromptTokensLow, []Severity{Warning}, "the server counts far fewer prompt tokens than the client", "the prompt may have been cut; the context window gives no proof"},
	{TruncatedPrompt, []Severity{Blocking}, "the server worked on less of the prompt than was sent", "these requests are in no figure"},
	{RateNotMet, []Severity{Warning}, "requests were sent more slowly than the rate that was asked for", "the offered load is the achieved rate, not the one that was asked for"},
	{ReasoningOnly, []Severity{Warning}, "answers hold reasoning and no text", "time to first token is of reasoning; there is no time to first output"},
	{ReasoningTokens, []Severity{Warning, Info}, "the tokens of reasoning do not fit what arrived", "figures per token are over another set of tokens than the text"},
	{RepeatedPrompt, []Severity{Warning}, "a prompt was sent more than once in warm-up and measurement", "a prompt cache may have answered the repetition"},
	{ServerOnlyRequest, []Severity{Blocking, Warning}, "requests in the server's records that the client's export does not have", "the export does not account for all that was served"},
	{StreamNotIncremental, []Severity{Warning}, "streams did not arrive as they were generated", "time to first token and inter-token latency are withheld"},
	{SummaryMismatch, []Severity{Warning}, "AIPerf's summary does not say what its records hold", "the summary is not used"},
	{TokenCountsDiffer, []Severity{Info}, "the client's token estimate is more than 10 % off the server's count", "the server's count is used; the estimate stands beside it"},
	{TornExport, []Severity{Blocking, Warning}, "records that could not be read whole", "what they would have told is incomplete; the others are not lost"},
	{TurnOrder, []Severity{Blocking}, "turns were not sent one after the other, in their own conversation", "these requests are no conversation"},
	{WallClocksDiffer, []Severity{Warning}, "the wall clocks of client and server do not fit each other", "durations stand; events of the two cannot be put in one order"},
	{WrongRun, []Severity{Blocking}, "records that are not of this run", "nothing that rests on them is evidence of this run"},
}

// findings gathers evidence by code.
type findings map[Code]*Finding

func (f findings) add(code Code, severity Severity, requestID, detail string, args ...any) {
	x := f[code]
	if x == nil {
		kind := Kinds[slices.IndexFunc(Kinds, func(k Kind) bool { return k.Code == code })]
		x = &Finding{Code: code, Severity: severity, Message: kind.Message, Consequence: kind.Consequence}
		f[code] = x
	}
	if ranks[severity] > ranks[x.Severity] {
		x.Severity = severity
	}
	if x.Count++; x.Count <= MaxEvidence {
		x.Evidence = append(x.Evidence, Evidence{RequestID: requestID, Detail: fmt.Sprintf(detail, args...)})
	}
}

// merge adds what was found later.
func (f findings) merge(later findings) {
	for code, y := range later {
		x := f[code]
		if x == nil {
			f[code] = y
			continue
		}
		if ranks[y.Severity] > ranks[x.Severity] {
			x.Severity = y.Severity
		}
		x.Count += y.Count
		x.Evidence = append(x.Evidence, y.Evidence[:min(len(y.Evidence), MaxEvidence-len(x.Evidence))]...)
	}
}

// list sorts by severity, the worst first, then by code.
func (f findings) list() []Finding {
	all := make([]Finding, 0, len(f))
	for _, x := range f {
		all = append(all, *x)
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(ranks[b.Severity], ranks[a.Severity]), cmp.Compare(a.Code, b.Code))
	})
	return all
}
