package upstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// unreported is the finish reason of an engine that never gives one.
const unreported = "unreported"

// maxID bounds an engine's own id of a request, in bytes.
const maxID = 256

// answer is what is known of the engine's answer to a request.
type answer struct {
	adapter  Adapter
	id       string // of the request
	stream   bool
	engineID string
	began    time.Time
	wall     time.Duration
	first    *int64 // ns
	text     strings.Builder
	logprobs json.RawMessage // of a buffered answer
	sum      hash.Hash
	bytes    int64
	pieces   int
	finish   *string
	usage    worker.Usage
	figures  map[string]float64
	form     form
}

func newAnswer(a Adapter, r *worker.Generate) *answer {
	return &answer{adapter: a, id: r.ID, stream: r.Stream, began: time.Now(), sum: sha256.New(), figures: map[string]float64{}}
}

// piece is what one chunk adds.
type piece struct {
	text     string
	logprobs json.RawMessage
}

// message is the part of a chunk or a whole answer that matters here.
type message struct {
	ID      string `json:"id"`
	Choices []struct {
		Text         string          `json:"text"`
		Message      content         `json:"message"`
		Delta        content         `json:"delta"`
		Logprobs     json.RawMessage `json:"logprobs"`
		FinishReason *string         `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens        *int64 `json:"prompt_tokens"`
		CompletionTokens    *int64 `json:"completion_tokens"`
		PromptTokensDetails struct {
			CachedTokens *int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	errorBody
}

type content struct {
	Content string `json:"content"`
	// Reasoning is text beside the answer. It is counted, so that nobody takes its
	// tokens for the answer's.
	Reasoning string `json:"reasoning_content"`
}

// take takes in a chunk or a whole answer.
func (a *answer) take(data []byte) (piece, error) {
	if text, ok := a.form.text(data); ok {
		p := piece{text: text}
		a.add(p)
		return p, nil
	}
	// encoding/json replaces what is not UTF-8, which would change the text.
	if !utf8.Valid(data) {
		return piece{}, broken("the upstream server's answer is not UTF-8")
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return piece{}, broken("the upstream server's answer is not of the interface: %v", err)
	}
	if e := m.info(); e != nil {
		return piece{}, e.refused(http.StatusInternalServerError)
	}
	if a.adapter.ReplyID == "" {
		a.note(m.ID)
	}
	if u := m.Usage; u != nil && a.adapter.Usage {
		a.usage = worker.Usage{PromptTokens: count(u.PromptTokens), CompletionTokens: count(u.CompletionTokens), CachedTokens: count(u.PromptTokensDetails.CachedTokens)}
	}
	a.takeTimings(data)
	if len(m.Choices) == 0 {
		return piece{}, nil
	}
	choice := m.Choices[0]
	textAlone := a.stream && m.Usage == nil && !a.hasTimings(data)
	switch {
	case choice.FinishReason != nil && *choice.FinishReason != "":
		a.finish, textAlone = choice.FinishReason, false
	case a.adapter.NoFinish:
		reason := unreported
		a.finish, textAlone = &reason, false
	}
	if n := len(choice.Message.Reasoning) + len(choice.Delta.Reasoning); n > 0 {
		a.figures["reasoning_bytes"] += float64(n)
		textAlone = false
	}
	p := piece{text: m.text()}
	if len(choice.Logprobs) > 0 && string(choice.Logprobs) != "null" {
		p.logprobs, textAlone = choice.Logprobs, false
	}
	if textAlone {
		a.form.learn(data, p.text)
	}
	a.add(p)
	return p, nil
}

// text is that of the first choice, in whichever member the endpoint and mode have it.
func (m *message) text() string {
	c := m.Choices[0]
	return c.Text + c.Message.Content + c.Delta.Content
}

// form is what the chunks of a stream have in common, which often is all but the
// text: to take such a chunk apart costs as much as the rest of its way.
type form struct {
	before, after []byte // around the text, without its quotes
	learned       int
}

// maxForms is how often a form is learned: an engine may write the time, or
// something of its own, into each chunk.
const maxForms = 32

// text returns the text of a chunk that differs from the form's only in it.
func (f *form) text(data []byte) (text string, ok bool) {
	if f.before == nil {
		return "", false
	}
	rest, starts := bytes.CutPrefix(data, f.before)
	quoted, ends := bytes.CutSuffix(rest, f.after)
	ok = starts && ends && utf8.Valid(quoted) && json.Unmarshal(quoted, &text) == nil
	return text, ok
}

// learn takes the form of a chunk that does nothing but add this text.
func (f *form) learn(data []byte, text string) {
	quoted := []byte(`"` + text + `"`)
	at := bytes.Index(data, quoted)
	if text == "" || at < 0 || f.learned == maxForms {
		return
	}
	f.learned++
	before, after := bytes.Clone(data[:at]), bytes.Clone(data[at+len(quoted):])
	// Another member may hold the same. With another value there, only the text
	// must be another.
	const other = "\u2026"
	var m message
	probe := slices.Concat(before, []byte(`"`+other+`"`), after)
	if json.Unmarshal(probe, &m) == nil && len(m.Choices) > 0 && m.text() == other {
		f.before, f.after = before, after
	}
}

// count is a count of tokens. One below zero is how an engine says that it has none.
func count(n *int64) *int64 {
	if n != nil && *n < 0 {
		return nil
	}
	return n
}

func (a *answer) add(p piece) {
	if !a.stream {
		a.text.WriteString(p.text)
		a.logprobs = p.logprobs
	}
	if p.text == "" {
		return
	}
	if a.first == nil {
		since := time.Since(a.began).Nanoseconds()
		a.first = &since
	}
	a.pieces++
	a.bytes += int64(len(p.text))
	io.WriteString(a.sum, p.text)
}

// note keeps the engine's own id of the request; the first it gives counts.
func (a *answer) note(id string) {
	if a.engineID != "" || len(id) > maxID {
		return
	}
	for _, prefix := range a.adapter.Prefixes {
		if rest, ok := strings.CutPrefix(id, prefix); ok {
			id = rest
			break
		}
	}
	a.engineID = id
}

// hasTimings says whether there may be some of the engine's own figures.
func (a *answer) hasTimings(data []byte) bool {
	return a.adapter.Timings != "" && bytes.Contains(data, []byte(a.adapter.Timings))
}

// takeTimings takes in the engine's own figures: what are numbers there.
func (a *answer) takeTimings(data []byte) {
	if !a.hasTimings(data) { // as most chunks, which are not to be read twice
		return
	}
	var members map[string]json.RawMessage
	var figures map[string]any
	if json.Unmarshal(data, &members) != nil || json.Unmarshal(members[a.adapter.Timings], &figures) != nil {
		return // they are not there
	}
	for name, value := range figures {
		if n, ok := value.(float64); ok {
			a.figures[name] = n
		}
	}
}

func (a *answer) task() *worker.Task {
	t := &worker.Task{
		Scope: record.ScopeHTTPCall, Source: record.SourceGateway, WallNS: a.wall.Nanoseconds(), Increments: a.pieces,
		TextSHA256: hex.EncodeToString(a.sum.Sum(nil)), TextBytes: a.bytes, Engine: a.figures, EngineRequestID: a.engineID,
	}
	if a.stream {
		t.Scope, t.FirstIncrementNS = record.ScopeHTTPStream, a.first
	}
	return t
}

func (a *answer) done() *worker.Done {
	d := &worker.Done{ID: a.id, FinishReason: a.finish, Usage: a.usage, Task: a.task()}
	if !a.stream {
		text := a.text.String()
		d.Text, d.Logprobs = &text, a.logprobs
	}
	return d
}

// refused is an error of the upstream server, or about it.
type refused struct {
	status              int
	code, kind, message string
}

func (r *refused) Error() string { return r.message }

// broken is the error for an upstream server that did not keep to the interface.
func broken(format string, args ...any) *refused {
	return &refused{http.StatusBadGateway, "upstream_error", "server_error", fmt.Sprintf(format, args...)}
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

// refusal reads the answer of a status other than 200.
func refusal(resp *http.Response) error {
	data, err := read(resp.Body)
	if err != nil {
		return err
	}
	// 499 answers a cancel, and there was none.
	if resp.StatusCode < 400 || resp.StatusCode == 499 || resp.StatusCode > 599 {
		return broken("the upstream server answered with status %d", resp.StatusCode)
	}
	info := &errorInfo{}
	var body errorBody
	if json.Unmarshal(data, &body) == nil && body.info() != nil {
		info = body.info()
	}
	r := info.refused(resp.StatusCode)
	r.status = resp.StatusCode
	return r
}

// refused is the error with the status that its code names, or else this one.
func (e *errorInfo) refused(status int) *refused {
	code := strings.Trim(string(e.Code), `"`)
	if n, err := strconv.Atoi(code); err == nil && n >= 400 && n <= 599 && n != 499 {
		status = n
	}
	r := &refused{status: status, code: code, kind: e.Type, message: e.Message}
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
