// Package record defines the terminal record of a request: what the native
// server itself says about one request that arrived. The gateway writes one
// JSON object a line; the join reads them back and matches them with the load
// generator's export by request id.
//
// Times are monotonic durations in nanoseconds, measured in one process; the
// one wall-clock value (ReceivedWallNS) only places the request among events.
// What is not known is absent, never zero.
package record

// Schema is the version of the record's form. A new field that may be absent
// leaves it as it is; readers ignore fields they do not know.
const Schema = 1

// Outcome says how a request ended, in the words of the server.
type Outcome string

const (
	Completed Outcome = "completed" // the engine finished; an answer may still be empty
	Rejected  Outcome = "rejected"  // refused for capacity, before any content
	Invalid   Outcome = "invalid"   // the request itself was refused (4xx)
	Failed    Outcome = "failed"    // anything else that did not end well; see Reason
	Cancelled Outcome = "cancelled" // the client went away first (status 499)
)

// Reason refines Failed.
type Reason string

const (
	Timeout      Reason = "timeout"       // the request's deadline passed
	ServerError  Reason = "server_error"  // the engine failed before any content, or the server failed or was stopped
	BrokenStream Reason = "broken_stream" // the engine's answer ended without a finish reason
	StreamError  Reason = "stream_error"  // an error after content had been sent
	Protocol     Reason = "protocol"      // the worker broke its protocol or died
)

// Scopes of the task-call time.
const (
	// ScopeCall is the wall time of one buffered in-process call to the engine.
	ScopeCall = "public_task_call_wall"
	// ScopeStream is the wall time of one streaming call. The engine's callback
	// waits for the pipe to the gateway, so back-pressure is inside.
	ScopeStream = "public_task_stream_wall_including_backpressure"
	// ScopeHTTPCall is the wall time of one buffered request to an engine's own
	// HTTP server, from before the connection is made to the end of the answer.
	ScopeHTTPCall = "upstream_http_call_wall"
	// ScopeHTTPStream is the same of a streamed request. Nothing more is read while
	// a client is behind by 64 increments, so back-pressure is inside.
	ScopeHTTPStream = "upstream_http_stream_wall_including_backpressure"
)

// Sources of the task-call time: whose clock measured it.
const (
	SourceWorker  = "worker"  // the process that called the engine
	SourceGateway = "gateway" // the gateway, around a call to an upstream server
)

// Record is the terminal record of one request.
type Record struct {
	Schema int `json:"schema"`

	RequestID string `json:"request_id"`
	// IDSource is "client" if the request carried the id, else "server".
	IDSource string `json:"id_source"`
	// Repeated is set when this server has seen the id before.
	Repeated bool `json:"repeated,omitempty"`

	// Endpoint is "chat" or "completions".
	Endpoint string `json:"endpoint"`
	Stream   bool   `json:"stream"`
	Model    string `json:"model,omitempty"`
	// PromptSHA256 is the hex digest of the prompt as it arrived: of its text if it
	// is one string, else of the canonical form (RFC 8785) of messages or prompt.
	PromptSHA256 string `json:"prompt_sha256,omitempty"`

	// Status is the HTTP status that was sent, 499 when the client left first.
	Status  int     `json:"status"`
	Outcome Outcome `json:"outcome"`
	Reason  Reason  `json:"reason,omitempty"`
	// Error is what the client was told, or would have been told.
	Error *Error `json:"error,omitempty"`

	// Traceparent is the caller's trace context (W3C Trace Context, level 1), as
	// it was passed on to the engine.
	Traceparent string `json:"traceparent,omitempty"`

	// Lane and Worker name who served the request; Worker counts the starts of
	// the lane's worker, from 1.
	Lane   *int `json:"lane,omitempty"`
	Worker *int `json:"worker,omitempty"`

	// ReceivedWallNS is Unix time in ns; ReceivedNS is monotonic since the
	// gateway's start, in the boot named by BootID.
	ReceivedWallNS int64  `json:"received_wall_ns"`
	ReceivedNS     int64  `json:"received_ns"`
	BootID         string `json:"boot_id"`

	// QueueNS is the time between arrival and the lane's acceptance: reading and
	// checking the request, and waiting. Absent if no lane accepted it.
	QueueNS *int64 `json:"queue_ns,omitempty"`
	// QueueDepth is the number of requests that waited when this one came to the
	// queue, without it; absent if no queue is configured or it did not get there.
	QueueDepth *int `json:"queue_depth,omitempty"`
	// WaitNS is the time in the queue alone, also of a request that left it
	// without a lane; absent if the request did not wait.
	WaitNS *int64 `json:"wait_ns,omitempty"`
	// FirstWriteNS and TotalNS count from arrival to the first and the last
	// write to the client.
	FirstWriteNS *int64 `json:"first_write_ns,omitempty"`
	TotalNS      int64  `json:"total_ns"`
	// ClientWriteNS is the time spent in all writes to the client, so it holds
	// what a slow reader makes the server wait; absent if nothing was written.
	ClientWriteNS *int64 `json:"client_write_ns,omitempty"`

	// Task is the native call; absent if the request never reached the engine.
	Task *Task `json:"task,omitempty"`
}

// Error is an error in OpenAI's form.
type Error struct {
	Code    string `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

// Task is the account of one call to the engine, by the process that made it.
type Task struct {
	// Scope is one of the Scope constants; it says what WallNS covers.
	Scope string `json:"scope"`
	// Source is one of the Source constants; it says who measured WallNS and
	// FirstIncrementNS. Records of earlier versions lack it.
	Source string `json:"source,omitempty"`
	// EngineRequestID is the engine's own id of the request, where it has one of its
	// own: the key to the engine's log.
	EngineRequestID string `json:"engine_request_id,omitempty"`
	// WallNS is the wall time of the call to the engine, FirstIncrementNS the time
	// from its start to the first increment; both by one clock.
	WallNS           int64  `json:"wall_ns"`
	FirstIncrementNS *int64 `json:"first_increment_ns,omitempty"`
	// Increments counts the pieces of text the engine delivered.
	Increments int `json:"increments"`

	PromptTokens     *int64 `json:"prompt_tokens,omitempty"`
	CompletionTokens *int64 `json:"completion_tokens,omitempty"`
	CachedTokens     *int64 `json:"cached_tokens,omitempty"`

	FinishReason string `json:"finish_reason,omitempty"`

	// TextSHA256 is the hex digest of the native text in UTF-8, TextBytes its
	// length; of the part that was produced when the call did not finish.
	TextSHA256 string `json:"text_sha256"`
	TextBytes  int64  `json:"text_bytes"`

	// Engine holds the engine's own figures under the engine's own names
	// (llama.cpp: prompt_ms, predicted_ms, cache_n, …).
	Engine map[string]float64 `json:"engine,omitempty"`
}
