// Package worker speaks the worker protocol with the processes that hold a
// model, and keeps a pool of them. The protocol is described for authors of
// workers in docs/worker-protocol.md.
//
// A worker reads requests from its standard input and writes replies to its
// standard output, one JSON object a line. It serves one request at a time. A
// worker that breaks the protocol is retired with the reason and replaced;
// nothing it does can hold a lane for longer than the request's deadline and the
// grace after a cancel. A Handler is a worker inside this process: the same
// frames in the same order, without the bytes.
package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Versions of the protocol. A worker of the buffered one gives whole answers
// only: it gets no streams, no cancels and no texts to tokenize.
const (
	Version         = 2
	BufferedVersion = 1
)

// Limits of one line in bytes, its newline included. Requests carry media.
const (
	MaxRequest = 64 << 20
	MaxReply   = 4 << 20
)

// A Request is a frame from the gateway to the worker: *Generate, *Tokenize,
// *Cancel or *Shutdown.
type Request interface{ request() }

// A Reply is a frame from the worker to the gateway: *Hello, *Ready, *Delta,
// *Done, *Tokens, *Error or *Fatal.
type Reply interface{ check() error }

// Generate asks for one answer.
type Generate struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"` // "chat" or "completions"
	Stream   bool   `json:"stream"`
	// Body is the request's body without what the gateway handles itself.
	Body json.RawMessage `json:"body"`
	// Traceparent and Tracestate are the caller's trace context (W3C), as it came.
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
}

// Tokenize asks for the engine's token ids of a text, without special tokens
// around it. Only workers with the capability get it.
type Tokenize struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Cancel asks the worker to end the request early.
type Cancel struct {
	ID string `json:"id"`
}

// Shutdown asks the worker to end.
type Shutdown struct{}

func (*Generate) request() {}
func (*Tokenize) request() {}
func (*Cancel) request()   {}
func (*Shutdown) request() {}

// Hello is the first frame: who the worker is, before it loads anything.
type Hello struct {
	Protocol     int          `json:"protocol"`
	Worker       string       `json:"worker"`
	Engine       Engine       `json:"engine"`
	Capabilities Capabilities `json:"capabilities"`
}

// Engine names what does the work.
type Engine struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Capabilities says what a worker can do.
type Capabilities struct {
	Endpoints  []string `json:"endpoints"`
	Cancel     bool     `json:"cancel"`             // it can stop early when asked
	MaxContext int      `json:"max_context"`        // tokens; 0 means unknown
	Tokenize   bool     `json:"tokenize,omitempty"` // it takes tokenize frames
	Logprobs   bool     `json:"logprobs,omitempty"` // it gives log-probabilities
	Buffered   bool     `json:"buffered,omitempty"` // it gives whole answers only
	// Content lists the kinds of content parts that it takes beside "text", such
	// as "image_url".
	Content []string `json:"content,omitempty"`
}

// Ready says that the worker has loaded and takes requests.
type Ready struct {
	LoadMS float64 `json:"load_ms"`
}

// Delta is a piece of a streamed answer: valid UTF-8 by itself, and empty only
// if it carries log-probabilities.
type Delta struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	// Logprobs is the member of that name of a choice, in OpenAI's form.
	Logprobs json.RawMessage `json:"logprobs,omitempty"`
}

// Done ends a request that the engine answered.
type Done struct {
	ID string `json:"id"`
	// FinishReason is null if the engine's answer broke off without one.
	FinishReason *string `json:"finish_reason"`
	Usage        Usage   `json:"usage"`
	Task         *Task   `json:"task"`
	// Text is the whole answer of a buffered request, and absent otherwise. So are
	// its log-probabilities.
	Text     *string         `json:"text,omitempty"`
	Logprobs json.RawMessage `json:"logprobs,omitempty"`
}

// Usage holds the engine's token counts; null means that it does not say.
type Usage struct {
	PromptTokens     *int64 `json:"prompt_tokens"`
	CompletionTokens *int64 `json:"completion_tokens"`
	CachedTokens     *int64 `json:"cached_tokens"`
}

// Task is the worker's account of the call to the engine.
type Task struct {
	// Scope says what WallNS covers; one of record's scopes.
	Scope            string `json:"scope"`
	WallNS           int64  `json:"wall_ns"`
	FirstIncrementNS *int64 `json:"first_increment_ns,omitempty"`
	Increments       int    `json:"increments"`
	// TextSHA256 (hex) and TextBytes are of the text in UTF-8 as the engine gave it.
	TextSHA256 string `json:"text_sha256"`
	TextBytes  int64  `json:"text_bytes"`
	// Engine holds the engine's own figures under its own names.
	Engine map[string]float64 `json:"engine,omitempty"`
	// Source says whose clock WallNS is by, one of record's sources; empty means
	// the worker's.
	Source string `json:"source,omitempty"`
	// EngineRequestID is the engine's own id of the request, where it has one.
	EngineRequestID string `json:"engine_request_id,omitempty"`
}

// Tokens answers a Tokenize and ends it.
type Tokens struct {
	ID     string  `json:"id"`
	Tokens []int64 `json:"tokens"`
}

// Error ends a request that got no answer, or none to its end.
type Error struct {
	ID      string `json:"id"`
	Status  int    `json:"status"` // as HTTP would say it, 400 to 599; 499 answers a cancel
	Code    string `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
	Task    *Task  `json:"task,omitempty"`
}

// Fatal is the last frame of a worker that cannot load.
type Fatal struct {
	Message string `json:"message"`
}

// Encode returns the frame as one line with its newline.
func Encode(frame any) ([]byte, error) {
	kind := ""
	switch frame.(type) {
	case *Generate:
		kind = "generate"
	case *Tokenize:
		kind = "tokenize"
	case *Cancel:
		kind = "cancel"
	case *Shutdown:
		kind = "shutdown"
	case *Hello:
		kind = "hello"
	case *Ready:
		kind = "ready"
	case *Delta:
		kind = "delta"
	case *Done:
		kind = "done"
	case *Tokens:
		kind = "tokens"
	case *Error:
		kind = "error"
	case *Fatal:
		kind = "fatal"
	default:
		return nil, fmt.Errorf("%T is not a frame", frame)
	}
	var members bytes.Buffer
	e := json.NewEncoder(&members)
	e.SetEscapeHTML(false) // it would swell a body of markup sixfold
	if err := e.Encode(frame); err != nil {
		return nil, fmt.Errorf("%s frame: %w", kind, err)
	}
	line := append(make([]byte, 0, members.Len()+24), `{"frame":"`+kind+`"`...)
	if members.Len() > len("{}\n") {
		line = append(line, ',')
	}
	return append(line, members.Bytes()[1:]...), nil
}

// DecodeRequest reads one line from the gateway.
func DecodeRequest(line []byte) (Request, error) {
	return decode(line, func(kind string) (Request, bool) {
		switch kind {
		case "generate":
			return new(Generate), true
		case "tokenize":
			return new(Tokenize), true
		case "cancel":
			return new(Cancel), true
		case "shutdown":
			return new(Shutdown), true
		}
		return nil, false
	})
}

// DecodeReply reads one line from a worker and checks the frame by itself;
// Sequence checks its place.
func DecodeReply(line []byte) (Reply, error) {
	if d, ok := plainDelta(line); ok {
		return d, nil
	}
	if d, ok := plainDone(line); ok {
		return d, d.check()
	}
	r, err := decode(line, func(kind string) (Reply, bool) {
		switch kind {
		case "delta":
			return new(Delta), true
		case "done":
			return new(Done), true
		case "tokens":
			return new(Tokens), true
		case "error":
			return new(Error), true
		case "hello":
			return new(Hello), true
		case "ready":
			return new(Ready), true
		case "fatal":
			return new(Fatal), true
		}
		return nil, false
	})
	if err != nil {
		return nil, err
	}
	return r, r.check()
}

// plainDelta reads a delta frame as workers write it, which is nearly every frame:
// its members in order, and no escapes. All other lines are for the general reader.
func plainDelta(line []byte) (*Delta, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"frame":"delta","id":"`))
	if !ok {
		return nil, false
	}
	id, rest, ok := bytes.Cut(rest, []byte(`","text":"`))
	if !ok {
		return nil, false
	}
	text, ok := bytes.CutSuffix(rest, []byte(`"}`))
	if !ok || len(text) == 0 || !plain(id) || !plain(text) || !utf8.Valid(line) {
		return nil, false
	}
	return &Delta{ID: string(id), Text: string(text)}, true
}

// plain says that a JSON string is what stands between its quotes.
func plain(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func decode[F any](line []byte, blank func(kind string) (F, bool)) (F, error) {
	var none F
	// encoding/json replaces what is not UTF-8, which would change the text.
	if !utf8.Valid(line) {
		return none, fmt.Errorf("not UTF-8: %s", excerpt(line))
	}
	kind, err := kindOf(line)
	if err != nil {
		return none, fmt.Errorf("not a frame (%w): %s", err, excerpt(line))
	}
	frame, ok := blank(kind)
	if !ok {
		return none, fmt.Errorf("unknown frame %q: %s", kind, excerpt(line))
	}
	if err := json.Unmarshal(line, frame); err != nil {
		return none, fmt.Errorf("%s frame: %w: %s", kind, err, excerpt(line))
	}
	return frame, nil
}

// kindOf finds the kind of a frame, which is usually written first.
func kindOf(line []byte) (string, error) {
	if rest, ok := bytes.CutPrefix(line, []byte(`{"frame":"`)); ok {
		if kind, _, ok := bytes.Cut(rest, []byte(`"`)); ok && plain(kind) {
			return string(kind), nil
		}
	}
	var head struct {
		Frame string `json:"frame"`
	}
	err := json.Unmarshal(line, &head)
	return head.Frame, err
}

// excerpt quotes the start of a line for an error.
func excerpt(line []byte) string {
	const most = 120
	if len(line) > most {
		return fmt.Sprintf("%q… (%d bytes)", line[:most], len(line))
	}
	return fmt.Sprintf("%q", line)
}

// describe tells engine and capabilities as the worker wrote them.
func (h *Hello) describe() string {
	capabilities, _ := json.Marshal(h.Capabilities) // strings and numbers always encode
	return fmt.Sprintf("%s %s with %s", h.Engine.Name, h.Engine.Version, capabilities)
}

func (h *Hello) check() error {
	switch {
	case h.Protocol != Version && h.Protocol != BufferedVersion:
		return fmt.Errorf("hello: the worker speaks protocol %d, this gateway speaks %d and %d", h.Protocol, BufferedVersion, Version)
	case h.Worker == "" || h.Engine.Name == "":
		return errors.New("hello: worker and engine.name are required")
	case len(h.Capabilities.Endpoints) == 0:
		return errors.New("hello: capabilities.endpoints is empty")
	}
	return nil
}

func (*Ready) check() error { return nil }

func (d *Delta) check() error {
	if d.Text == "" && d.Logprobs == nil {
		return errors.New("delta: text is empty")
	}
	return nil
}

func (d *Done) check() error {
	if d.Task == nil {
		return errors.New("done: task is required")
	}
	if d.FinishReason != nil && *d.FinishReason == "" {
		return errors.New("done: finish_reason is empty; a broken-off answer has null")
	}
	for _, n := range []*int64{d.Usage.PromptTokens, d.Usage.CompletionTokens, d.Usage.CachedTokens} {
		if n != nil && *n < 0 {
			return errors.New("done: usage has a negative count")
		}
	}
	return d.Task.check()
}

func (t *Tokens) check() error {
	if t.Tokens == nil {
		return errors.New("tokens: tokens is required")
	}
	return nil
}

func (e *Error) check() error {
	if e.Status < 400 || e.Status > 599 {
		return fmt.Errorf("error: status %d is not between 400 and 599", e.Status)
	}
	if e.Message == "" {
		return errors.New("error: message is required")
	}
	if e.Task != nil {
		return e.Task.check()
	}
	return nil
}

func (f *Fatal) check() error {
	if f.Message == "" {
		return errors.New("fatal: message is required")
	}
	return nil
}

func (t *Task) check() error {
	switch {
	case t.Scope == "":
		return errors.New("task: scope is required")
	case t.WallNS < 0 || t.Increments < 0 || t.TextBytes < 0 || t.FirstIncrementNS != nil && *t.FirstIncrementNS < 0:
		return errors.New("task: a figure is negative")
	case len(t.TextSHA256) != 64 || strings.Trim(t.TextSHA256, "0123456789abcdef") != "":
		return fmt.Errorf("task: text_sha256 %q is not 64 hex digits", t.TextSHA256)
	}
	return nil
}
