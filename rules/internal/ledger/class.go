package ledger

import "strings"

// Class says how a planned request ended; every one has exactly one.
type Class string

const (
	NotSent         Class = "not_sent"         // planned and never dispatched
	Incomplete      Class = "incomplete"       // dispatched, and no end is known
	Cancelled       Class = "cancelled"        // the client gave up on purpose
	Rejected        Class = "rejected"         // refused for capacity, before any content
	Invalid         Class = "invalid"          // the request itself was refused
	Failed          Class = "failed"           // did not end well; see Reason
	Empty           Class = "empty"            // ended well, without content
	PromptTruncated Class = "prompt_truncated" // ended well, but the server worked on less than was sent
	Completed       Class = "completed"
)

// Classes lists all classes in the order in which they are tried.
var Classes = []Class{NotSent, Incomplete, Cancelled, Rejected, Invalid, Failed, Empty, PromptTruncated, Completed}

// Reason refines Failed.
type Reason string

const (
	Timeout      Reason = "timeout"
	ServerError  Reason = "server_error"
	StreamError  Reason = "stream_error" // an error event after content
	Transport    Reason = "transport"
	Protocol     Reason = "protocol"
	BrokenStream Reason = "broken_stream" // neither a finish reason nor [DONE]
)

// facts is what the client's record of one request says about its end.
type facts struct {
	cancelled bool
	status    int64 // HTTP status; 0 if none arrived
	code      int64 // error status of whatever refused the request: the answer, its first event, or the client's account
	failure   bool  // an error object came in the answer
	after     bool  // ... behind content
	overload  bool  // its code, type or message speaks of too much load
	refusal   bool  // ... or of a request that is wrong
	closed    bool  // ... or of a connection that ended

	clientError string // type of the client's own error, "" for none
	ended       bool   // the record has an end, good or bad

	streamed  bool // a stream was asked for
	finished  bool // finish reason or [DONE]; for a single body, a choice
	malformed bool
	content   bool

	prompt promptSize
}

// order is requirements' table of classes, from the third on: the first that
// holds is the class. (The first two concern requests without a client record
// or without an end.)
var order = []struct {
	class Class
	holds func(*facts) bool
}{
	{Incomplete, func(f *facts) bool { return !f.ended }},
	{Cancelled, func(f *facts) bool { return f.cancelled || f.code == 499 }},
	{Rejected, func(f *facts) bool { return !f.content && f.overloaded() }},
	{Invalid, func(f *facts) bool { return !f.content && f.refused() }},
	{Failed, func(f *facts) bool { return f.reason() != "" }},
	{Empty, func(f *facts) bool { return !f.content }},
	{PromptTruncated, func(f *facts) bool { return f.prompt.truncated() }},
	{Completed, func(*facts) bool { return true }},
}

func (f *facts) class() (Class, Reason) {
	for _, c := range order {
		if c.holds(f) {
			if c.class == Failed {
				return Failed, f.reason()
			}
			return c.class, ""
		}
	}
	panic("the last class holds always")
}

// overloaded: 429 and 529 by themselves; 503, or an error without a status,
// only with words for it, since a server that loads or has crashed says 503
// too.
func (f *facts) overloaded() bool {
	switch f.code {
	case 429, 529:
		return true
	case 503:
		return f.overload
	}
	return f.code == 0 && f.failure && f.overload
}

func (f *facts) refused() bool {
	return f.code >= 400 && f.code < 500 || f.code == 0 && f.failure && f.refusal
}

var (
	overloadWords = []string{"overload", "queue", "busy", "capacity", "too many", "rate limit", "rate_limit", "pending requests", "no free slot", "slots are"}
	closingWords  = []string{"serverdisconnected", "server disconnected", "connection reset", "connectionreset", "broken pipe", "closing transport", "unexpected eof"}
	refusalWords  = []string{"invalid_request", "badrequest", "bad request", "exceed_context", "context_length", "context length"}
)

func speaksOf(words string, any []string) bool {
	for _, w := range any {
		if strings.Contains(words, w) {
			return true
		}
	}
	return false
}

// reasons: as for classes, the first that holds.
var reasons = []struct {
	reason Reason
	holds  func(*facts) bool
}{
	{Timeout, func(f *facts) bool {
		return strings.Contains(strings.ToLower(f.clientError), "timeout") || f.code == 504
	}},
	{StreamError, func(f *facts) bool { return f.failure && f.after }},
	{ServerError, func(f *facts) bool { return f.failure || f.code >= 500 }},
	{Transport, func(f *facts) bool { return f.clientError != "" }},
	{Protocol, func(f *facts) bool { return f.malformed || f.status < 200 || f.status > 299 }},
	{BrokenStream, func(f *facts) bool { return f.streamed && !f.finished }},
	{Protocol, func(f *facts) bool { return !f.finished }},
}

// reason says why the request did not end well, "" if it did.
func (f *facts) reason() Reason {
	for _, r := range reasons {
		if r.holds(f) {
			return r.reason
		}
	}
	return ""
}

// promptSize is what is known of a prompt's length, in tokens; 0 is unknown.
type promptSize struct {
	sent     int64 // the client's estimate: text alone, no template
	worked   int64 // the server's count, template included
	window   int64 // context length of the server
	reserved int64 // asked for the answer
}

// short: the server counts well below what the client sent. Two tokenizers
// differ, and the server's template only adds, so 10 % is generous.
func (p promptSize) short() bool {
	return p.sent > 0 && p.worked > 0 && p.worked*10 < p.sent*9
}

// truncated: short, and the server's count is what a cut leaves — the whole
// window, the window less the room for the answer, or half of it (llama.cpp's
// context shift) — or more was sent than the window holds.
func (p promptSize) truncated() bool {
	if !p.short() || p.window <= 0 {
		return false
	}
	if p.sent > p.window {
		return true
	}
	slack := 8 + p.window/50
	for _, left := range []int64{p.window, p.window - p.reserved, p.window / 2} {
		if d := p.worked - left; -slack <= d && d <= slack {
			return true
		}
	}
	return false
}
