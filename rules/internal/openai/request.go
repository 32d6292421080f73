// Package openai holds the part of OpenAI's HTTP interface that the native
// server speaks: chat completions and completions, buffered and streamed, one
// text answer a request.
//
// A request is checked here for what the server itself must understand — the
// model, the mode, the limits, and that one text can carry the whole answer.
// Everything else, sampling above all, is the engine's business and passes
// through as it came.
package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// Endpoint is one of the two kinds of inference.
type Endpoint string

// The endpoints, at /v1/chat/completions and /v1/completions.
const (
	Chat        Endpoint = "chat"
	Completions Endpoint = "completions"
)

// Request is a checked request body.
type Request struct {
	Model  string
	Stream bool
	// IncludeUsage asks for a last chunk with the token counts.
	IncludeUsage bool
	// Body is what the engine gets: the body as received without model, stream,
	// stream_options, n and best_of, and with the output limit as max_tokens.
	Body map[string]json.RawMessage
}

// Parse checks a request body. maxOutput is the largest number of output tokens
// a request may ask for, and what it gets if it does not ask. All errors are
// the client's (status 400) and name the field.
func Parse(endpoint Endpoint, data []byte, maxOutput int) (*Request, *Error) {
	if !utf8.Valid(data) {
		return nil, Invalid("", "the body is not UTF-8")
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, Invalid("", "the body is not a JSON object: "+err.Error())
	}
	// null means the same as absent everywhere in this interface.
	maps.DeleteFunc(body, func(_ string, v json.RawMessage) bool { return string(v) == "null" })

	p := parser{body: body}
	r := &Request{Body: body}
	p.value("model", "a string", &r.Model)
	if r.Model == "" {
		p.fail("model", "a model name is required")
	}
	p.value("stream", "true or false", &r.Stream)
	p.streamOptions(r)
	p.oneAnswer()
	p.outputLimit(maxOutput)
	switch endpoint {
	case Chat:
		p.messages()
	case Completions:
		p.prompt()
	}
	if p.err != nil {
		return nil, p.err
	}
	for _, handled := range []string{"model", "stream", "stream_options", "n", "best_of"} {
		delete(body, handled)
	}
	return r, nil
}

// parser reads single fields and keeps the first error.
type parser struct {
	body map[string]json.RawMessage
	err  *Error
}

func (p *parser) fail(param, message string) {
	if p.err == nil {
		p.err = Invalid(param, message)
	}
}

// value decodes a field if it is there and says whether it is.
func (p *parser) value(name, kind string, into any) bool {
	raw, ok := p.body[name]
	if !ok {
		return false
	}
	if json.Unmarshal(raw, into) != nil {
		p.fail(name, fmt.Sprintf("%s must be %s", name, kind))
		return false
	}
	return true
}

func (p *parser) streamOptions(r *Request) {
	raw, ok := p.body["stream_options"]
	if !ok {
		return
	}
	if !r.Stream {
		p.fail("stream_options", "stream_options is only allowed when stream is true")
		return
	}
	var options struct {
		IncludeUsage bool `json:"include_usage"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if d.Decode(&options) != nil {
		p.fail("stream_options", "stream_options takes include_usage (true or false) and nothing else")
	}
	r.IncludeUsage = options.IncludeUsage
}

// oneAnswer refuses what one text answer cannot carry. To pass it on and drop
// it from the answer would be to cut it silently.
func (p *parser) oneAnswer() {
	for _, name := range []string{"n", "best_of"} {
		var count float64
		if p.value(name, "1", &count) && count != 1 {
			p.fail(name, name+" must be 1: this server gives one answer a request")
		}
	}
	for _, name := range []string{"logprobs", "echo", "tools", "functions"} {
		switch string(p.body[name]) {
		case "", "false", "[]":
		default:
			p.fail(name, name+" is not supported: this server answers with text alone")
		}
	}
}

// outputLimit resolves the two names of the limit to max_tokens.
func (p *parser) outputLimit(maxOutput int) {
	limit, from := maxOutput, ""
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		var n float64 // clients write 16 and 16.0
		if !p.value(name, "a positive integer", &n) {
			continue
		}
		switch {
		case n < 1 || n != math.Trunc(n):
			p.fail(name, name+" must be a positive integer")
		case n > float64(maxOutput):
			p.fail(name, fmt.Sprintf("%s is %.0f, and this server allows at most %d", name, n, maxOutput))
		case from != "" && int(n) != limit:
			p.fail(name, fmt.Sprintf("%s and %s differ; give one of them", from, name))
		default:
			limit, from = int(n), name
		}
	}
	delete(p.body, "max_completion_tokens")
	p.body["max_tokens"] = fmt.Appendf(nil, "%d", limit)
}

func (p *parser) messages() {
	var messages []map[string]json.RawMessage
	p.value("messages", "an array of objects", &messages)
	if len(messages) == 0 {
		p.fail("messages", "at least one message is required")
	}
	for i, message := range messages {
		var role string
		if json.Unmarshal(message["role"], &role) != nil || role == "" {
			p.fail(fmt.Sprintf("messages[%d].role", i), "every message needs a role")
		}
		switch content := message["content"]; {
		case len(content) == 0, content[0] == '"', content[0] == '[', string(content) == "null":
		default:
			p.fail(fmt.Sprintf("messages[%d].content", i), "content must be a string or an array of parts")
		}
	}
}

// prompt accepts one prompt: a string, an array of token ids, or an array that
// holds one of these.
func (p *parser) prompt() {
	var prompt any
	if !p.value("prompt", "a string", &prompt) {
		p.fail("prompt", "a prompt is required")
		return
	}
	if list, ok := prompt.([]any); ok && len(list) == 1 && !isToken(list[0]) {
		prompt = list[0]
	}
	switch v := prompt.(type) {
	case string:
		return
	case []any:
		if len(v) > 0 && !slices.ContainsFunc(v, func(e any) bool { return !isToken(e) }) {
			return
		}
	}
	p.fail("prompt", "prompt must be one string or one array of token ids: this server gives one answer a request")
}

func isToken(v any) bool {
	n, ok := v.(float64)
	return ok && n >= 0 && n == math.Trunc(n)
}
