// Package client sends single requests to a server that speaks OpenAI's HTTP
// interface and keeps exactly what came back. Validation and the probes of a
// sample use it; load comes from AIPerf.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"assay/rules/internal/sse"
)

// maxBody bounds a buffered answer, in bytes.
const maxBody = 64 << 20

// Client talks to one server. One request is one attempt: nothing is retried.
type Client struct {
	base string
	http *http.Client
}

// New returns a Client for a base URL such as http://127.0.0.1:8000.
func New(base string) *Client {
	// A connection for each request: a pooled one that the server closes at the
	// wrong moment would be a failure that nobody caused.
	return &Client{strings.TrimSuffix(base, "/"), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Request is a request to an inference endpoint.
type Request struct {
	ID       string // X-Request-ID
	Endpoint string // "chat" or "completions"
	Body     map[string]any
	Stream   bool
	// StopAfter closes the connection after this many increments of text; 0
	// reads to the end.
	StopAfter int
}

// Answer is what came back.
type Answer struct {
	Status   int
	EchoedID string
	// Text is the answer, Increments the pieces of it in a stream.
	Text         string
	Increments   []string
	FinishReason string
	Done         bool // the stream ended with [DONE]
	// PromptTokens and CompletionTokens are the server's counts, nil if it gave
	// none.
	PromptTokens, CompletionTokens *int64
	// LogProbs are those of the answer's tokens, nil if none were asked for or given.
	LogProbs []TokenLogProb
	// Error is the server's refusal or its error event.
	Error *Error
	// InvalidUTF8 says where the stream was not valid UTF-8, "" if nowhere.
	InvalidUTF8 string

	// Sent is the wall clock at dispatch; First and Last are the times from there
	// to the first and last content, zero if there was none; End to the end.
	Sent             time.Time
	First, Last, End time.Duration
}

// Error is an error in OpenAI's form.
type Error struct {
	Code    string `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
	Param   string `json:"param"` // the field of the request that it is about
}

var paths = map[string]string{"chat": "/v1/chat/completions", "completions": "/v1/completions"}

// Do sends the request. The error tells of a transport that failed; a refusal is
// an Answer.
func (c *Client) Do(ctx context.Context, r Request) (*Answer, error) {
	path, ok := paths[r.Endpoint]
	if !ok {
		return nil, fmt.Errorf("request %s: there is no endpoint %q", r.ID, r.Endpoint)
	}
	body := map[string]any{}
	for name, value := range r.Body {
		body[name] = value
	}
	if r.Stream {
		body["stream"] = true
		body["stream_options"] = map[string]any{"include_usage": true}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, sent, err := c.post(ctx, path, r.ID, body)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", r.ID, err)
	}
	defer resp.Body.Close()
	a := &Answer{Status: resp.StatusCode, EchoedID: resp.Header.Get("X-Request-ID"), Sent: sent}
	if resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		err = a.stream(resp.Body, r.StopAfter)
	} else {
		err = a.whole(resp.Body)
	}
	a.End = time.Since(sent)
	if err != nil {
		return a, fmt.Errorf("request %s: %w", r.ID, err)
	}
	return a, nil
}

func (c *Client) post(ctx context.Context, path, id string, body any) (*http.Response, time.Time, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, time.Time{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(data))
	if err != nil {
		return nil, time.Time{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-ID", id)
	sent := time.Now()
	resp, err := c.http.Do(req)
	return resp, sent, err
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
		FinishReason *string   `json:"finish_reason"`
		LogProbs     *logProbs `json:"logprobs"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     *int64 `json:"prompt_tokens"`
		CompletionTokens *int64 `json:"completion_tokens"`
	} `json:"usage"`
	Error *Error `json:"error"`
}

// take adds a chunk or a whole answer, and returns its text.
func (a *Answer) take(data []byte) (string, error) {
	if !utf8.Valid(data) && a.InvalidUTF8 == "" {
		a.InvalidUTF8 = fmt.Sprintf("%q", data)
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return "", fmt.Errorf("the server's answer is no JSON: %w", err)
	}
	text := ""
	if len(m.Choices) > 0 {
		choice := m.Choices[0]
		text = choice.Text + choice.Message.Content + choice.Delta.Content
		if choice.FinishReason != nil {
			a.FinishReason = *choice.FinishReason
		}
		a.LogProbs = append(a.LogProbs, choice.LogProbs.tokens()...)
	}
	if m.Usage != nil {
		a.PromptTokens, a.CompletionTokens = m.Usage.PromptTokens, m.Usage.CompletionTokens
	}
	if m.Error != nil {
		a.Error = m.Error
	}
	a.Text += text
	return text, nil
}

func (a *Answer) whole(r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, maxBody))
	if err != nil {
		return err
	}
	a.Last = time.Since(a.Sent)
	_, err = a.take(data)
	return err
}

func (a *Answer) stream(r io.Reader, stopAfter int) error {
	events := sse.NewReader(r, 0)
	for {
		event, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case string(event.Data) == "[DONE]":
			a.Done = true
			continue
		}
		text, err := a.take(event.Data)
		if err != nil {
			return err
		}
		if text == "" {
			continue
		}
		a.Last = time.Since(a.Sent)
		if len(a.Increments) == 0 {
			a.First = a.Last
		}
		a.Increments = append(a.Increments, text)
		if len(a.Increments) == stopAfter {
			return nil
		}
	}
}

// ErrNoTokenizer says that the server does not offer its engine's tokenizer.
var ErrNoTokenizer = errors.New("the server does not tokenize")

// Tokenize returns the engine's token ids of a text, without special tokens
// around it.
func (c *Client) Tokenize(ctx context.Context, id, text string) ([]int64, error) {
	resp, _, err := c.post(ctx, "/tokenize", id, map[string]any{"content": text})
	if err != nil {
		return nil, fmt.Errorf("tokenize %s: %w", id, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("tokenize %s: %w", id, err)
	}
	var answer struct {
		Tokens []int64 `json:"tokens"`
		Error  *Error  `json:"error"`
	}
	err = json.Unmarshal(data, &answer)
	switch {
	case resp.StatusCode == http.StatusNotImplemented || resp.StatusCode == http.StatusNotFound:
		return nil, ErrNoTokenizer
	case err != nil:
		return nil, fmt.Errorf("tokenize %s: status %d, no JSON: %w", id, resp.StatusCode, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("tokenize %s: status %d: %+v", id, resp.StatusCode, answer.Error)
	}
	return answer.Tokens, nil
}
