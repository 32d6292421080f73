// Package ledger closes the books on a run: it joins what the load generator
// recorded with what the server recorded, by request id, and gives every
// planned request exactly one entry with exactly one class.
//
// Nothing is matched by position or time, nothing is estimated, and what does
// not fit is a Finding, never silently left out. The same input gives the same
// bytes.
package ledger

import "assay/rules/internal/record"

// Phase is the part of a run a request belongs to.
type Phase string

const (
	Probe    Phase = "probe" // sent before the load, to compare with the validation
	Warmup   Phase = "warmup"
	Measured Phase = "measured"
)

// Phases lists the phases in their order in a run.
var Phases = []Phase{Probe, Warmup, Measured}

// Join says how a request was matched with the server's records.
type Join string

const (
	Matched    Join = "matched"
	ClientOnly Join = "client_only" // the server has no record of it
	ServerOnly Join = "server_only" // the client has no record of it, or only a part
	Ambiguous  Join = "ambiguous"   // several client records with this id: no server record is attached
	Unjoined   Join = ""            // never sent, or no server records were given
)

// Verdict is the outcome of a comparison.
type Verdict string

const (
	Equal     Verdict = "equal"
	Different Verdict = "different"
	Unknown   Verdict = "unknown" // one side is not known
)

// Entry is one planned request. Durations are in ns from one monotonic clock
// each; what is not known is absent. Offsets count from the client's first
// dispatch in the run.
type Entry struct {
	Phase     Phase  `json:"phase"`
	Class     Class  `json:"class"`
	Reason    Reason `json:"reason,omitempty"`
	Unplanned bool   `json:"unplanned,omitempty"` // beyond the plan
	RequestID string `json:"request_id,omitempty"`
	Place     Place  `json:"place"`
	// CorrelationID is the instance of the conversation.
	CorrelationID string `json:"correlation_id,omitempty"`

	Join          Join     `json:"join,omitempty"`
	HiddenRetries int      `json:"hidden_retries,omitempty"`
	Identity      Identity `json:"identity"`
	// History is set for a turn of a conversation.
	History *History `json:"history,omitempty"`
	// Schedule is set for a request that was due at a time of its own.
	Schedule *Scheduled `json:"schedule,omitempty"`
	Client   *Client    `json:"client,omitempty"`
	Server   *Server    `json:"server,omitempty"`
	Tokens   Tokens     `json:"tokens"`
	// Reject is set for Rejected, if the time is known.
	Reject *Reject `json:"reject,omitempty"`
}

// Place is where a request stands in the plan: turn of a conversation, or its
// ordinal in the phase, from 0, where the plan is only a count.
type Place struct {
	Conversation string `json:"conversation,omitempty"`
	Turn         int64  `json:"turn"`
	Ordinal      *int64 `json:"ordinal,omitempty"`
}

// Identity compares the native answer with the one that the client received:
// SHA-256 of the text, completion tokens, finish reason. It is unknown unless
// the request ended well on the client's side.
type Identity struct {
	Text   Verdict `json:"text"`
	Tokens Verdict `json:"tokens"`
	Finish Verdict `json:"finish"`
}

// Client is the load generator's side.
type Client struct {
	Status      *int64 `json:"status,omitempty"`
	ErrorType   string `json:"error_type,omitempty"`
	StartWallNS int64  `json:"start_wall_ns"`
	// StartNS and EndNS are offsets of the dispatch and of the last thing that
	// arrived.
	StartNS *int64 `json:"start_offset_ns,omitempty"`
	EndNS   *int64 `json:"end_offset_ns,omitempty"`

	// LatencyNS is dispatch to last content, TTFBNS dispatch to status line and
	// headers, TTFTNS dispatch to first content
	// (streams only), TTFONS dispatch to first text behind reasoning (absent if
	// there was no reasoning, or only that), ITLNS the mean gap between tokens, (last-first)/(n-1)
	// with the server's n; absent below two tokens or two chunks.
	LatencyNS *int64   `json:"latency_ns,omitempty"`
	TTFBNS    *int64   `json:"ttfb_ns,omitempty"`
	TTFTNS    *int64   `json:"ttft_ns,omitempty"`
	TTFONS    *int64   `json:"ttfo_ns,omitempty"`
	ITLNS     *float64 `json:"itl_mean_ns,omitempty"`

	Stream      bool        `json:"stream"`
	Chunks      int         `json:"content_chunks"`
	Incremental Incremental `json:"incremental,omitempty"`

	FinishReason string `json:"finish_reason,omitempty"`
	TextSHA256   string `json:"text_sha256,omitempty"`
	BodySHA256   string `json:"body_sha256,omitempty"`
	PromptSHA256 string `json:"prompt_sha256,omitempty"`

	// AIPerfSuccess is AIPerf's own verdict, Disagrees that it is not the
	// ledger's.
	AIPerfSuccess bool `json:"aiperf_success"`
	Disagrees     bool `json:"disagrees,omitempty"`
}

// Server is the native server's side.
type Server struct {
	Outcome record.Outcome `json:"outcome"`
	Reason  record.Reason  `json:"reason,omitempty"`
	Status  int            `json:"status"`
	TotalNS *int64         `json:"total_ns,omitempty"`
	QueueNS *int64         `json:"queue_ns,omitempty"`
	// TaskCallNS is the wall time of the native call, Scope says of what.
	TaskCallNS       *int64 `json:"task_call_ns,omitempty"`
	Scope            string `json:"scope,omitempty"`
	FirstIncrementNS *int64 `json:"first_increment_ns,omitempty"`
	// Withheld says why the times are absent, "" if they are not.
	Withheld string `json:"withheld,omitempty"`

	PromptSHA256 string `json:"prompt_sha256,omitempty"`
	TextSHA256   string `json:"text_sha256,omitempty"`
	FinishReason string `json:"finish_reason,omitempty"`
}

// History compares the messages that the server received with those that the
// conversation must have had by then: see package history.
type History struct {
	Messages Verdict `json:"messages"`
	// Gap says that an earlier turn has no whole reply.
	Gap bool `json:"gap"`
	// Answer says what the answer is worth by the family's reference for this
	// history: equal, near_tie, wrong; absent if it was not judged.
	Answer string `json:"answer,omitempty"`
}

// Tokens are the server's counts, as the client received them or else from the
// server's record, and apart from them the client's estimates.
type Tokens struct {
	Prompt     *int64 `json:"prompt,omitempty"`
	Completion *int64 `json:"completion,omitempty"`
	Cached     *int64 `json:"cached,omitempty"`
	// Reasoning is the part of Completion that the server says is of reasoning.
	Reasoning *int64 `json:"reasoning,omitempty"`

	ClientPromptEstimate     *int64 `json:"client_prompt_estimate,omitempty"`
	ClientCompletionEstimate *int64 `json:"client_completion_estimate,omitempty"`
}

// Reject is the time to a refusal. Source is "client", or "server" where the
// client's record has no duration (AIPerf 0.13.0 gives none for HTTP errors).
type Reject struct {
	NS     int64  `json:"ns"`
	Source string `json:"source"`
}
