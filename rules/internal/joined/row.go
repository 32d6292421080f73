package joined

import (
	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

// row is a line of the table. A column has the name of its place in the entry's
// JSON, with _ between the steps. What may be unknown is a pointer, into the entry
// itself where it is not nil.
type row struct {
	Sample string `parquet:"sample,dict"`

	Phase     ledger.Phase   `parquet:"phase,dict"`
	Class     ledger.Class   `parquet:"class,dict"`
	Reason    *ledger.Reason `parquet:"reason,optional,dict"`
	Unplanned bool           `parquet:"unplanned"`

	RequestID         *string `parquet:"request_id,optional"`
	PlaceConversation *string `parquet:"place_conversation,optional,dict"`
	PlaceTurn         int64   `parquet:"place_turn"`
	PlaceOrdinal      *int64  `parquet:"place_ordinal,optional"`
	CorrelationID     *string `parquet:"correlation_id,optional"`

	Join           *ledger.Join   `parquet:"join,optional,dict"`
	HiddenRetries  int            `parquet:"hidden_retries"`
	IdentityText   ledger.Verdict `parquet:"identity_text,dict"`
	IdentityTokens ledger.Verdict `parquet:"identity_tokens,dict"`
	IdentityFinish ledger.Verdict `parquet:"identity_finish,dict"`

	ScheduleDueNS      *int64 `parquet:"schedule_due_ns,optional"`
	ScheduleLagNS      *int64 `parquet:"schedule_lag_ns,optional"`
	ScheduleResponseNS *int64 `parquet:"schedule_response_ns,optional"`

	HistoryMessages *ledger.Verdict `parquet:"history_messages,optional,dict"`
	HistoryGap      *bool           `parquet:"history_gap,optional"`
	HistoryAnswer   *string         `parquet:"history_answer,optional,dict"`

	ClientStatus        *int64              `parquet:"client_status,optional"`
	ClientErrorType     *string             `parquet:"client_error_type,optional,dict"`
	ClientStartWallNS   *int64              `parquet:"client_start_wall_ns,optional"`
	ClientStartNS       *int64              `parquet:"client_start_offset_ns,optional"`
	ClientEndNS         *int64              `parquet:"client_end_offset_ns,optional"`
	ClientLatencyNS     *int64              `parquet:"client_latency_ns,optional"`
	ClientTTFBNS        *int64              `parquet:"client_ttfb_ns,optional"`
	ClientTTFTNS        *int64              `parquet:"client_ttft_ns,optional"`
	ClientTTFONS        *int64              `parquet:"client_ttfo_ns,optional"`
	ClientITLNS         *float64            `parquet:"client_itl_mean_ns,optional"`
	ClientStream        *bool               `parquet:"client_stream,optional"`
	ClientChunks        *int                `parquet:"client_content_chunks,optional"`
	ClientIncremental   *ledger.Incremental `parquet:"client_incremental,optional,dict"`
	ClientFinishReason  *string             `parquet:"client_finish_reason,optional,dict"`
	ClientTextSHA256    *string             `parquet:"client_text_sha256,optional"`
	ClientBodySHA256    *string             `parquet:"client_body_sha256,optional"`
	ClientPromptSHA256  *string             `parquet:"client_prompt_sha256,optional"`
	ClientAIPerfSuccess *bool               `parquet:"client_aiperf_success,optional"`
	ClientDisagrees     *bool               `parquet:"client_disagrees,optional"`

	ServerOutcome          *record.Outcome `parquet:"server_outcome,optional,dict"`
	ServerReason           *record.Reason  `parquet:"server_reason,optional,dict"`
	ServerStatus           *int            `parquet:"server_status,optional"`
	ServerTotalNS          *int64          `parquet:"server_total_ns,optional"`
	ServerQueueNS          *int64          `parquet:"server_queue_ns,optional"`
	ServerTaskCallNS       *int64          `parquet:"server_task_call_ns,optional"`
	ServerScope            *string         `parquet:"server_scope,optional,dict"`
	ServerFirstIncrementNS *int64          `parquet:"server_first_increment_ns,optional"`
	ServerWithheld         *string         `parquet:"server_withheld,optional,dict"`
	ServerPromptSHA256     *string         `parquet:"server_prompt_sha256,optional"`
	ServerTextSHA256       *string         `parquet:"server_text_sha256,optional"`
	ServerFinishReason     *string         `parquet:"server_finish_reason,optional,dict"`

	TokensPrompt                   *int64 `parquet:"tokens_prompt,optional"`
	TokensCompletion               *int64 `parquet:"tokens_completion,optional"`
	TokensCached                   *int64 `parquet:"tokens_cached,optional"`
	TokensReasoning                *int64 `parquet:"tokens_reasoning,optional"`
	TokensClientPromptEstimate     *int64 `parquet:"tokens_client_prompt_estimate,optional"`
	TokensClientCompletionEstimate *int64 `parquet:"tokens_client_completion_estimate,optional"`

	RejectNS     *int64  `parquet:"reject_ns,optional"`
	RejectSource *string `parquet:"reject_source,optional,dict"`
}

func newRow(sample string, e *ledger.Entry) row {
	r := row{
		Sample: sample,
		Phase:  e.Phase, Class: e.Class, Reason: known(&e.Reason), Unplanned: e.Unplanned,
		RequestID: known(&e.RequestID), CorrelationID: known(&e.CorrelationID),
		PlaceConversation: known(&e.Place.Conversation), PlaceTurn: e.Place.Turn, PlaceOrdinal: e.Place.Ordinal,
		Join: known(&e.Join), HiddenRetries: e.HiddenRetries,
		IdentityText: e.Identity.Text, IdentityTokens: e.Identity.Tokens, IdentityFinish: e.Identity.Finish,
		TokensPrompt: e.Tokens.Prompt, TokensCompletion: e.Tokens.Completion, TokensCached: e.Tokens.Cached, TokensReasoning: e.Tokens.Reasoning,
		TokensClientPromptEstimate: e.Tokens.ClientPromptEstimate, TokensClientCompletionEstimate: e.Tokens.ClientCompletionEstimate,
	}
	if s := e.Schedule; s != nil {
		r.ScheduleDueNS, r.ScheduleLagNS, r.ScheduleResponseNS = &s.DueNS, s.LagNS, s.ResponseNS
	}
	if h := e.History; h != nil {
		r.HistoryMessages, r.HistoryGap, r.HistoryAnswer = &h.Messages, &h.Gap, known(&h.Answer)
	}
	if c := e.Client; c != nil {
		r.ClientStatus, r.ClientErrorType, r.ClientFinishReason = c.Status, known(&c.ErrorType), known(&c.FinishReason)
		r.ClientStartWallNS, r.ClientStartNS, r.ClientEndNS = &c.StartWallNS, c.StartNS, c.EndNS
		r.ClientLatencyNS, r.ClientTTFBNS, r.ClientTTFTNS, r.ClientTTFONS, r.ClientITLNS = c.LatencyNS, c.TTFBNS, c.TTFTNS, c.TTFONS, c.ITLNS
		r.ClientStream, r.ClientChunks, r.ClientIncremental = &c.Stream, &c.Chunks, known(&c.Incremental)
		r.ClientTextSHA256, r.ClientBodySHA256, r.ClientPromptSHA256 = known(&c.TextSHA256), known(&c.BodySHA256), known(&c.PromptSHA256)
		r.ClientAIPerfSuccess, r.ClientDisagrees = &c.AIPerfSuccess, &c.Disagrees
	}
	if s := e.Server; s != nil {
		r.ServerOutcome, r.ServerReason, r.ServerStatus = &s.Outcome, known(&s.Reason), &s.Status
		r.ServerTotalNS, r.ServerQueueNS = s.TotalNS, s.QueueNS
		r.ServerTaskCallNS, r.ServerScope, r.ServerFirstIncrementNS = s.TaskCallNS, known(&s.Scope), s.FirstIncrementNS
		r.ServerWithheld, r.ServerFinishReason = known(&s.Withheld), known(&s.FinishReason)
		r.ServerPromptSHA256, r.ServerTextSHA256 = known(&s.PromptSHA256), known(&s.TextSHA256)
	}
	if x := e.Reject; x != nil {
		r.RejectNS, r.RejectSource = &x.NS, &x.Source
	}
	return r
}

// known is nil for a text whose empty form means that it is not known.
func known[S ~string](s *S) *S {
	if *s == "" {
		return nil
	}
	return s
}
