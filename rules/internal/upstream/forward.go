package upstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"assay/rules/internal/record"
	"assay/rules/internal/sse"
	"assay/rules/internal/worker"
)

// maxBody bounds a buffered answer and an event, in bytes: more would not fit a
// frame.
const maxBody = worker.MaxReply

var paths = map[string]string{"chat": "/v1/chat/completions", "completions": "/v1/completions"}

// call is one request in progress, and what is known of the answer.
type call struct {
	worker.Call
	began  time.Time
	wall   time.Duration
	first  *int64 // ns
	text   strings.Builder
	sum    hash.Hash
	bytes  int64
	pieces int
	finish *string
	usage  worker.Usage
	engine map[string]float64
}

// refusal is an error of the upstream server, or about it.
type refusal struct {
	status              int
	code, kind, message string
}

func (r *refusal) Error() string { return r.message }

// broken is the refusal for an upstream server that did not keep to the interface.
func broken(format string, args ...any) *refusal {
	return &refusal{http.StatusBadGateway, "upstream_error", "server_error", fmt.Sprintf(format, args...)}
}

// forward sends a request on and relays the answer. The error tells of the way to
// the gateway.
func (w *forwarder) forward(r worker.Call) error {
	c := &call{Call: r, sum: sha256.New()}
	c.began = time.Now()
	err := w.exchange(c)
	c.wall = time.Since(c.began)
	var lost *frameError
	var refused *refusal
	switch {
	case errors.As(err, &lost):
		return lost.err
	case r.Context.Err() != nil && c.finish == nil:
		return w.say(&worker.Error{ID: c.ID, Status: 499, Code: "cancelled", Type: "cancelled", Message: "cancelled", Task: c.task()})
	case errors.As(err, &refused):
		return w.say(&worker.Error{ID: c.ID, Status: refused.status, Code: refused.code, Type: refused.kind, Message: refused.message, Task: c.task()})
	case err != nil:
		// A transport's error names the server's address.
		w.log.Error("upstream", "id", c.ID, "err", err)
		r := broken("the upstream server could not be reached, or cut the connection")
		return w.say(&worker.Error{ID: c.ID, Status: r.status, Code: r.code, Type: r.kind, Message: r.message, Task: c.task()})
	}
	done := &worker.Done{ID: c.ID, FinishReason: c.finish, Usage: c.usage, Task: c.task()}
	if !c.Stream {
		text := c.text.String()
		done.Text = &text
	}
	return w.say(done)
}

// frameError is an error of the way to the gateway, not of the upstream server.
type frameError struct{ err error }

func (e *frameError) Error() string { return e.err.Error() }

func (w *forwarder) exchange(c *call) error {
	body := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return &refusal{http.StatusBadRequest, "invalid_request", "invalid_request_error", err.Error()}
	}
	model, err := json.Marshal(w.to.Model)
	if err != nil {
		return err
	}
	body["model"] = model
	if c.Stream {
		body["stream"], body["stream_options"] = json.RawMessage("true"), json.RawMessage(`{"include_usage":true}`)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(c.Context, http.MethodPost, w.base+paths[c.Endpoint], bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-ID", c.ID)
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode != http.StatusOK:
		return refused(resp)
	case c.Stream:
		return w.relay(c, resp.Body)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return err
	}
	_, err = c.take(answer)
	return err
}

// relay passes on a stream as it comes. One that ends without a finish reason ends
// so for the gateway too.
func (w *forwarder) relay(c *call, r io.Reader) error {
	events := sse.NewReader(r, maxBody)
	for {
		event, err := events.Next()
		switch {
		case errors.Is(err, io.EOF), err == nil && string(event.Data) == "[DONE]":
			return nil
		case err != nil && c.pieces > 0 && c.Context.Err() == nil:
			w.log.Error("stream", "id", c.ID, "err", err)
			return nil // broken off, and the missing finish reason says so
		case err != nil:
			return err
		}
		text, err := c.take(event.Data)
		if err != nil {
			return err
		}
		if text == "" {
			continue
		}
		if err := w.say(&worker.Delta{ID: c.ID, Text: text}); err != nil {
			return &frameError{err}
		}
	}
}

// message is the part of a chunk or a whole answer that matters here.
type message struct {
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens        *int64 `json:"prompt_tokens"`
		CompletionTokens    *int64 `json:"completion_tokens"`
		PromptTokensDetails struct {
			CachedTokens *int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	// Timings are llama.cpp's own figures.
	Timings map[string]any `json:"timings"`
	errorBody
}

// errorBody is an error in OpenAI's form, or in the older form of vLLM and SGLang
// without the outer member.
type errorBody struct {
	Object string     `json:"object"`
	Error  *errorInfo `json:"error"`
	errorInfo
}

type errorInfo struct {
	Code    json.RawMessage `json:"code"` // a word, or the status
	Type    string          `json:"type"`
	Message string          `json:"message"`
}

func (e errorBody) info() *errorInfo {
	if e.Error == nil && e.Object == "error" {
		return &e.errorInfo
	}
	return e.Error
}

// take takes in a chunk or a whole answer and returns its text.
func (c *call) take(data []byte) (string, error) {
	// encoding/json replaces what is not UTF-8, which would change the text.
	if !utf8.Valid(data) {
		return "", broken("the upstream server's answer is not UTF-8")
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return "", broken("the upstream server's answer is not of the interface: %v", err)
	}
	if e := m.info(); e != nil {
		return "", e.refusal(http.StatusInternalServerError)
	}
	if u := m.Usage; u != nil {
		c.usage = worker.Usage{PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, CachedTokens: u.PromptTokensDetails.CachedTokens}
	}
	for name, value := range m.Timings {
		if n, ok := value.(float64); ok {
			if c.engine == nil {
				c.engine = map[string]float64{}
			}
			c.engine[name] = n
		}
	}
	if len(m.Choices) == 0 {
		return "", nil
	}
	choice := m.Choices[0]
	if choice.FinishReason != nil && *choice.FinishReason != "" {
		c.finish = choice.FinishReason
	}
	text := choice.Text + choice.Message.Content + choice.Delta.Content
	if text == "" {
		return "", nil
	}
	if c.first == nil {
		since := time.Since(c.began).Nanoseconds()
		c.first = &since
	}
	c.pieces++
	c.bytes += int64(len(text))
	io.WriteString(c.sum, text)
	if !c.Stream {
		c.text.WriteString(text)
	}
	return text, nil
}

// refused reads the answer of a status other than 200.
func refused(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return err
	}
	// 499 answers a cancel, and there was none.
	if resp.StatusCode < 400 || resp.StatusCode == 499 || resp.StatusCode > 599 {
		return broken("the upstream server answered with status %d", resp.StatusCode)
	}
	var body errorBody
	if json.Unmarshal(data, &body) == nil {
		if e := body.info(); e != nil {
			r := e.refusal(resp.StatusCode)
			r.status = resp.StatusCode
			return r
		}
	}
	return (&errorInfo{}).refusal(resp.StatusCode)
}

// refusal is the error with the status that its code names, or else this one.
func (e *errorInfo) refusal(status int) *refusal {
	code := strings.Trim(string(e.Code), `"`)
	if n, err := strconv.Atoi(code); err == nil && n >= 400 && n <= 599 && n != 499 {
		status = n
	}
	r := &refusal{status: status, code: code, kind: e.Type, message: e.Message}
	if r.code == "" || r.code == "null" {
		r.code = "upstream_error"
	}
	if r.kind == "" {
		r.kind = "server_error"
		if status < 500 {
			r.kind = "invalid_request_error"
		}
	}
	if r.message == "" {
		r.message = fmt.Sprintf("the upstream server answered with status %d", status)
	}
	return r
}

func (c *call) task() *worker.Task {
	t := &worker.Task{
		Scope: record.ScopeHTTPCall, WallNS: c.wall.Nanoseconds(), Increments: c.pieces,
		TextSHA256: hex.EncodeToString(c.sum.Sum(nil)), TextBytes: c.bytes, Engine: c.engine,
	}
	if c.Stream {
		t.Scope, t.FirstIncrementNS = record.ScopeHTTPStream, c.first
	}
	return t
}
