// Package aiperf reads what AIPerf leaves behind: the raw export with every
// request and response, the export with its own figures per request, and the
// summary of a run. The forms are those of AIPerf 0.13.0; keys that are not
// known are passed over.
//
// AIPerf's judgement is kept beside the facts and never used in their place: it
// books a stream that broke off after its first token as a success. So the
// responses are read from the recorded packets.
//
// A key that is absent and one that is null mean the same and give nil, unless
// said otherwise; neither is ever zero. Times called WallNS are Unix time in
// ns and only place events. Times called PerfNS are AIPerf's perf_counter_ns,
// a monotonic clock that its processes on one Linux host share; durations come
// from these alone.
package aiperf

import "encoding/hex"

// Phases as AIPerf writes them.
const (
	Warmup    = "warmup"
	Profiling = "profiling"
)

// Request is one record of the raw export: a request as sent and all that came
// back.
type Request struct {
	File string // the export
	Line int64  // from 1

	ID             string // X-Request-ID; "" if the record has none
	CorrelationID  string // one for each instance of a conversation
	ConversationID string
	Turn           int64  // from 0
	SessionNum     int64  // an ordinal of the phase, from 0, in spite of its name
	Phase          string // Warmup or Profiling

	CreditWallNS *int64 // the scheduler let it go
	StartWallNS  int64
	AckWallNS    *int64 // status line and headers were there
	EndWallNS    *int64 // equals the start for a refused request: no duration
	StartPerfNS  *int64

	Status     *int64  // HTTP status; nil if none arrived
	EchoedID   *string // response headers: AIPerf 0.13.0 exports none
	RetryAfter *string

	Cancelled bool
	Error     *Error // AIPerf's verdict; nil is what it counts as a success

	Payload  Payload
	Response Response
}

// Error is AIPerf's account of a failure. Code is an HTTP status, absent for
// errors of its own; Type is the reason phrase or the name of an exception.
type Error struct {
	Code    *int64
	Type    string
	Message string
}

// Payload describes the body that was sent. The body itself is not kept.
type Payload struct {
	Model     string
	Stream    bool
	MaxTokens *int64 // max_completion_tokens, else max_tokens
	// SHA256 is the digest of the body in canonical form (RFC 8785).
	SHA256 Digest
	// PromptSHA256 is the digest of the prompt: of its text if it is one string,
	// else of the canonical form of messages or prompt.
	PromptSHA256 Digest
}

// Response is what the client received.
type Response struct {
	Stream bool // events, not a single body
	Bodies int  // bodies or events with data

	// FirstPerfNS and LastPerfNS are the first and last thing that arrived,
	// content or not.
	FirstPerfNS, LastPerfNS *int64

	Chunks     []Chunk // those with content, in order
	RoleChunks int     // deltas that only name the role
	Comments   int     // keep-alives of the stream

	// Text and Reasoning are the answer's two channels. SHA256 is the digest of
	// Text in UTF-8, as the server's record has it of the native text.
	Text, Reasoning string
	SHA256          Digest

	Choice       bool // there was a choice 0, even if empty
	FinishReason string
	Done         bool // [DONE] was seen
	Usage        Usage

	// Failure is the first error object in the stream or body, AfterContent
	// whether content came before it.
	Failure      *Failure
	AfterContent bool
	// Malformed says what could not be understood, "" if nothing.
	Malformed string
}

// Chunk is one event, or the body, that carried content: text, reasoning or
// the name and arguments of a tool call. Sizes are in bytes.
type Chunk struct {
	PerfNS                  int64
	TextSize, ReasoningSize int
	ToolSize                int
}

// Usage is the server's token count as the client received it. A prompt of 0
// tokens stands for "unknown" and is nil.
type Usage struct {
	Prompt, Completion, Cached, Reasoning *int64
}

// Failure is an error in OpenAI's form, as a server puts it in a body or
// stream. Status is its code if that is an HTTP error status, else nil.
type Failure struct {
	Status              *int64
	Code, Type, Message string
}

// Digest is a SHA-256; zero is none. As text it is in hex, none is empty.
type Digest [32]byte

// String returns the digest in hex.
func (d Digest) String() string {
	text, _ := d.MarshalText()
	return string(text)
}

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) {
	if d == (Digest{}) {
		return nil, nil
	}
	return hex.AppendEncode(nil, d[:]), nil
}
