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
	CachedTokens         Code = "cached_tokens"
	ClientOnlyRequest    Code = "client_only"
	ClockMismatch        Code = "clock_mismatch"
	ClockStep            Code = "clock_step"
	EmptyAnswers         Code = "empty_answers"
	HiddenRetry          Code = "hidden_retry"
	IdentityMismatch     Code = "identity_mismatch"
	DisagreesWithAIPerf  Code = "ledger_disagrees_with_aiperf"
	NegativeDuration     Code = "negative_duration"
	OutcomeMismatch      Code = "outcome_mismatch"
	PlanMismatch         Code = "plan_mismatch"
	TruncatedPrompt      Code = "prompt_truncated"
	PromptTokensLow      Code = "prompt_tokens_low"
	RepeatedPrompt       Code = "repeated_prompt"
	ServerOnlyRequest    Code = "server_only"
	StreamNotIncremental Code = "stream_not_incremental"
	SummaryMismatch      Code = "summary_mismatch"
	TokenCountsDiffer    Code = "token_counts_differ"
	TornExport           Code = "torn_export"
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

var meaning = map[Code]struct{ message, consequence string }{
	AIPerfExit:           {"AIPerf did not end a whole run", "the run is not evidence of a complete workload"},
	AmbiguousID:          {"several client records share a request id", "no server record is attached to any of them"},
	CachedTokens:         {"the server took prompt tokens from its cache", "times are not those of a cold prompt"},
	ClientOnlyRequest:    {"requests of the client that the server has no record of", "they have no native time and no identity check"},
	ClockMismatch:        {"server times that cannot be right beside the client's", "the server times of these requests are withheld"},
	ClockStep:            {"the client's wall clock moved against its monotonic clock", "durations are monotonic and stand; places in time do not"},
	EmptyAnswers:         {"requests ended well without content", "they are in no latency or throughput figure"},
	HiddenRetry:          {"the server saw a request id more often than the client sent it", "the run breaks the rule of one attempt for each request"},
	IdentityMismatch:     {"the native answer is not the one that the client received", "the run cannot be qualified"},
	DisagreesWithAIPerf:  {"AIPerf and the ledger judge requests differently", "AIPerf's own figures are over another set of requests"},
	NegativeDuration:     {"time stamps run backwards", "the durations of these requests are withheld"},
	OutcomeMismatch:      {"client and server tell different ends of a request", "the class follows the client's record"},
	PlanMismatch:         {"what was dispatched is not what was planned", "the run does not cover its plan"},
	TruncatedPrompt:      {"the server worked on less of the prompt than was sent", "these requests are in no figure"},
	PromptTokensLow:      {"the server counts far fewer prompt tokens than the client", "the prompt may have been cut; the context window gives no proof"},
	RepeatedPrompt:       {"a prompt was sent more than once in warm-up and measurement", "a prompt cache may have answered the repetition"},
	ServerOnlyRequest:    {"requests in the server's records that the client's export does not have", "the export does not account for all that was served"},
	StreamNotIncremental: {"streams did not arrive as they were generated", "time to first token and inter-token latency are withheld"},
	SummaryMismatch:      {"AIPerf's summary does not count what its records hold", "the summary is not used"},
	TokenCountsDiffer:    {"the client's token estimate is more than 10 % off the server's count", "the server's count is used; the estimate stands beside it"},
	TornExport:           {"records could not be read to their end", "what they would have told is incomplete, not lost"},
}

// findings gathers evidence by code.
type findings map[Code]*Finding

func (f findings) add(code Code, severity Severity, requestID, detail string, args ...any) {
	x := f[code]
	if x == nil {
		m := meaning[code]
		x = &Finding{Code: code, Severity: severity, Message: m.message, Consequence: m.consequence}
		f[code] = x
	}
	if ranks[severity] > ranks[x.Severity] {
		x.Severity = severity
	}
	if x.Count++; x.Count <= MaxEvidence {
		x.Evidence = append(x.Evidence, Evidence{RequestID: requestID, Detail: fmt.Sprintf(detail, args...)})
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
