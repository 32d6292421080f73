package openai

import (
	"encoding/json"
	"time"
)

// Error is an error as the interface gives it, and a Go error.
type Error struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func (e *Error) Error() string { return e.Message }

// ErrorBody wraps an error, as a body and as an event of a stream.
type ErrorBody struct {
	Error *Error `json:"error"`
}

// InvalidRequest is the type of an error that the request itself caused.
const InvalidRequest = "invalid_request_error"

// Invalid is an error about a field of the request, or about the request as a
// whole if param is empty.
func Invalid(param, message string) *Error {
	e := &Error{Message: message, Type: InvalidRequest, Code: "invalid_request"}
	if param != "" {
		e.Param, e.Code = &param, "invalid_value"
	}
	return e
}

// Usage holds token counts.
type Usage struct {
	PromptTokens        int64               `json:"prompt_tokens"`
	CompletionTokens    int64               `json:"completion_tokens"`
	TotalTokens         int64               `json:"total_tokens"`
	PromptTokensDetails *PromptTokensDetail `json:"prompt_tokens_details,omitempty"`
}

// PromptTokensDetail says how many prompt tokens came out of a cache.
type PromptTokensDetail struct {
	CachedTokens int64 `json:"cached_tokens"`
}

// NewUsage returns the usage, or nil unless the engine counts both: the interface
// has no form for one of them.
func NewUsage(prompt, completion, cached *int64) *Usage {
	if prompt == nil || completion == nil {
		return nil
	}
	u := &Usage{PromptTokens: *prompt, CompletionTokens: *completion, TotalTokens: *prompt + *completion}
	if cached != nil {
		u.PromptTokensDetails = &PromptTokensDetail{CachedTokens: *cached}
	}
	return u
}

// Response is a whole answer, or one chunk of a streamed one.
type Response struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
}

// Choice carries the answer's text in the member that belongs to the endpoint
// and mode: Message or Delta for chat, Text for completions.
type Choice struct {
	Index   int      `json:"index"`
	Message *Message `json:"message,omitempty"`
	Delta   *Message `json:"delta,omitempty"`
	Text    *string  `json:"text,omitempty"`
	// Logprobs is as the engine gave it.
	Logprobs     json.RawMessage `json:"logprobs,omitempty"`
	FinishReason *string         `json:"finish_reason"`
}

// Message is an assistant's message, or a part of it.
type Message struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// Answer makes the responses to one request.
type Answer struct {
	Endpoint Endpoint
	ID       string // of the request; the response's id is derived from it
	Model    string
	Created  time.Time
}

// Whole is the buffered response.
func (a Answer) Whole(text, finish string, logprobs json.RawMessage, usage *Usage) Response {
	c := Choice{FinishReason: &finish, Logprobs: logprobs}
	if a.Endpoint == Chat {
		c.Message = &Message{Role: "assistant", Content: &text}
	} else {
		c.Text = &text
	}
	r := a.response("chat.completion", c)
	r.Usage = usage
	return r
}

// Opening is the chunk that opens a chat stream: the role, and no content yet.
// Completions have none.
func (a Answer) Opening() (Response, bool) {
	empty := ""
	return a.chunk(Choice{Delta: &Message{Role: "assistant", Content: &empty}}), a.Endpoint == Chat
}

// Increment is a chunk with a piece of the text, and its log-probabilities if there
// are any.
func (a Answer) Increment(text string, logprobs json.RawMessage) Response {
	c := Choice{Logprobs: logprobs}
	if a.Endpoint == Chat {
		c.Delta = &Message{Content: &text}
	} else {
		c.Text = &text
	}
	return a.chunk(c)
}

// Finish is the chunk that says why the text ends.
func (a Answer) Finish(reason string) Response {
	if a.Endpoint == Chat {
		return a.chunk(Choice{Delta: &Message{}, FinishReason: &reason})
	}
	empty := ""
	return a.chunk(Choice{Text: &empty, FinishReason: &reason})
}

// Counts is the chunk without choices that carries the token counts.
func (a Answer) Counts(usage *Usage) Response {
	r := a.chunk()
	r.Usage = usage
	return r
}

func (a Answer) chunk(choices ...Choice) Response {
	return a.response("chat.completion.chunk", choices...)
}

// response fills in what all responses share; object is chat's name of it.
func (a Answer) response(object string, choices ...Choice) Response {
	prefix := "chatcmpl-"
	if a.Endpoint == Completions {
		prefix, object = "cmpl-", "text_completion"
	}
	if choices == nil {
		choices = []Choice{} // [] and not null
	}
	return Response{ID: prefix + a.ID, Object: object, Created: a.Created.Unix(), Model: a.Model, Choices: choices}
}

// ModelList answers /v1/models.
type ModelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// Model is one entry of a ModelList.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}
