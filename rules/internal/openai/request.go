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
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/gowebpki/jcs"

	"assay/rules/internal/jsonl"
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
	// Logprobs says that log-probabilities are asked for, by the field of that name.
	Logprobs bool
	// Parts are the content parts that are not text.
	Parts []Part
	// Body is what the engine gets: the body as received without model, stream,
	// stream_options, n and best_of, and with the output limit as max_tokens.
	Body map[string]json.RawMessage
}

// Part is a content part of a message that is not text.
type Part struct {
	Kind  string // its type, such as "image_url"
	Param string // where it is, such as "messages[0].content[1]"
}

// Limits bound a request.
type Limits struct {
	// OutputTokens is the most a request may ask for, and what it gets if it does
	// not ask.
	OutputTokens int
	// PromptBytes bounds the text of the prompt, or of all messages together.
	PromptBytes int
}

// Parse checks a request body. All errors are the client's (status 400) and name
// the field.
func Parse(endpoint Endpoint, data []byte, limits Limits) (*Request, *Error) {
	body, err := members(data)
	if err == nil {
		err = bounded(data)
	}
	if err != nil {
		return nil, Invalid("", "the body is not a JSON object in UTF-8: "+err.Error())
	}
	r := &Request{Body: body}
	p := parser{body: body, request: r, promptBytes: limits.PromptBytes}
	p.value("model", "a string", &r.Model)
	if r.Model == "" {
		p.fail("model", "a model name is required")
	}
	p.value("stream", "true or false", &r.Stream)
	p.streamOptions(r)
	p.oneAnswer()
	p.logprobs(endpoint)
	p.outputLimit(limits.OutputTokens)
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

// PromptSHA256 is the hex digest of the prompt: of its text if it is one string,
// else of the canonical form (RFC 8785) of messages or prompt. So the same messages
// in different JSON have the same. It is "" if there is no such form, as of a number
// that float64 cannot hold.
func (r *Request) PromptSHA256() string {
	prompt, ok := r.Body["messages"]
	if !ok {
		prompt = r.Body["prompt"]
	}
	var text string
	form := []byte(nil)
	if json.Unmarshal(prompt, &text) == nil {
		form = []byte(text)
	} else {
		var err error
		if form, err = jcs.Transform(prompt); err != nil {
			return ""
		}
	}
	sum := sha256.Sum256(form)
	return hex.EncodeToString(sum[:])
}

// JSON is the body that the engine gets, its members in the order of their names.
func (r *Request) JSON() []byte {
	body := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(r.Body)) {
		if i > 0 {
			body = append(body, ',')
		}
		quoted, _ := json.Marshal(name) // a string always encodes
		body = append(append(append(body, quoted...), ':'), r.Body[name]...)
	}
	return append(body, '}')
}

// maxNumber is the most digits of a number: a body is passed on to parsers of other
// languages, and Python's gives up at integers of 4,300. The largest float64 has 309.
const maxNumber = 400

// bounded refuses numbers that another parser may not take.
func bounded(data []byte) error {
	number, inString := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case inString && c == '\\':
			i++
		case c == '"':
			inString, number = !inString, 0
		case inString:
		case c >= '0' && c <= '9', c == '.':
			if number++; number > maxNumber {
				return fmt.Errorf("a number in the body has more than %d digits", maxNumber)
			}
		default:
			number = 0
		}
	}
	return nil
}

// members takes an object apart. A name that is there twice, at any depth, is
// refused: two readers may choose differently between its values. null means the same
// as absent everywhere in this interface.
func members(data []byte) (map[string]json.RawMessage, error) {
	var s jsonl.Scanner
	s.Reset(data)
	body := make(map[string]json.RawMessage, 8)
	err := s.Object(nil, func(key []byte) error {
		if s.Null() {
			return nil
		}
		value, err := s.Raw()
		body[string(key)] = value
		return err
	})
	if err == nil {
		err = s.End()
	}
	return body, err
}

// parser reads single fields and keeps the first error.
type parser struct {
	body        map[string]json.RawMessage
	request     *Request
	promptBytes int // that are left
	scan        jsonl.Scanner
	inner       jsonl.Scanner // of a value inside that of scan
	text        []byte        // that was counted last
	err         *Error
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
	p.scan.Reset(raw)
	var err error
	switch into := into.(type) {
	case *string:
		*into, err = p.scan.Text()
	case *bool:
		*into, err = p.scan.Bool()
	case *float64:
		*into, err = p.scan.Float()
	default:
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
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
		IncludeUsage       bool `json:"include_usage"`
		IncludeObfuscation bool `json:"include_obfuscation"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if d.Decode(&options) != nil || options.IncludeObfuscation {
		p.fail("stream_options", "stream_options takes include_usage (true or false); nothing is obfuscated here")
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
	for _, name := range []string{"echo", "tools", "functions"} {
		switch string(p.body[name]) {
		case "", "false", "[]":
		default:
			p.fail(name, name+" is not supported: this server answers with text alone")
		}
	}
}

// logprobs are true or false for chat, and a number of alternatives, 0 too, for
// completions.
func (p *parser) logprobs(endpoint Endpoint) {
	if endpoint == Chat {
		p.value("logprobs", "true or false", &p.request.Logprobs)
		return
	}
	var alternatives float64
	if string(p.body["logprobs"]) != "false" && p.value("logprobs", "a number of alternatives", &alternatives) {
		p.request.Logprobs = true
		if alternatives < 0 || alternatives != math.Trunc(alternatives) {
			p.fail("logprobs", "logprobs must be a number of alternatives, 0 or more")
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
	p.body["max_tokens"] = strconv.AppendInt(nil, int64(limit), 10)
}

// count counts text against the limit of the prompt.
func (p *parser) count(param string, n int) {
	if p.promptBytes -= n; p.promptBytes < 0 {
		p.fail(param, "the prompt has more text than this server takes")
	}
}

var roles = []string{"developer", "system", "user", "assistant", "tool"}

var messageMembers = jsonl.NewFields("role", "content")

func (p *parser) messages() {
	s, n := &p.scan, 0
	s.Reset(p.body["messages"])
	err := s.Array(func() (err error) {
		at := "messages[" + strconv.Itoa(n) + "]"
		n++
		var role string
		var content []byte
		if s.Peek() == '{' {
			err = s.Object(messageMembers, func(key []byte) (err error) {
				switch {
				case string(key) == "content":
					content, err = s.Raw()
				case string(key) == "role" && s.Peek() == '"':
					role, err = s.Name()
				}
				return err
			})
		}
		if !slices.Contains(roles, role) {
			p.fail(at+".role", fmt.Sprintf("every message needs a role, one of %q", roles))
		}
		p.content(at+".content", content)
		return err
	})
	if err != nil && p.body["messages"] != nil {
		p.fail("messages", "messages must be an array of objects")
	}
	if n == 0 {
		p.fail("messages", "at least one message is required")
	}
}

// content accepts a text, or an array of parts.
func (p *parser) content(param string, raw json.RawMessage) {
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	switch {
	case len(raw) == 0, string(raw) == "null":
	case raw[0] == '"':
		p.inner.Reset(raw)
		p.text, _ = p.inner.AppendText(p.text[:0]) // it was read once
		p.count(param, len(p.text))
	case json.Unmarshal(raw, &parts) != nil:
		p.fail(param, "content must be a string or an array of parts, each with a type")
	}
	for i, part := range parts {
		at := fmt.Sprintf("%s[%d]", param, i)
		switch {
		case part.Type == "":
			p.fail(at+".type", "every content part needs a type")
		case part.Type != "text":
			p.request.Parts = append(p.request.Parts, Part{Kind: part.Type, Param: at})
		case part.Text == nil:
			p.fail(at+".text", "a text part needs a text")
		default:
			p.count(at, len(*part.Text))
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
		p.count("prompt", len(v))
		return
	case []any:
		p.count("prompt", len(v)) // a token stands for a byte at least
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
