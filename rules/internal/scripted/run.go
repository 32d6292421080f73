package scripted

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// ErrDied is the result of a worker that dies by its script. The program exits
// with DeathStatus.
var ErrDied = errors.New("died as the script says")

// DeathStatus is the exit status of a worker that dies by its script.
const DeathStatus = 3

// Run serves requests from stdin until it ends, a shutdown frame comes or ctx
// ends. The end of stdin means that the gateway is gone.
func Run(ctx context.Context, script *Script, stdin io.Reader, stdout io.Writer) error {
	w := &scripted{script: script, out: stdout}
	return worker.Serve(ctx, stdin, w.serve)
}

type scripted struct {
	script *Script
	out    io.Writer
}

func (w *scripted) serve(ctx context.Context, calls <-chan worker.Call) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	for ordinal := 1; ; {
		select {
		case <-ctx.Done():
			return nil
		case r := <-calls:
			if err := w.answer(ctx, ordinal, r); err != nil {
				return err
			}
			ordinal++
		}
	}
}

func (w *scripted) start(ctx context.Context) error {
	name := w.script.Name
	if name == "" {
		name = "scripted"
	}
	o := w.script.Offers
	hello := &worker.Hello{
		Protocol: worker.Version, Worker: "scripted",
		Engine: worker.Engine{Name: name, Version: "1"},
		Capabilities: worker.Capabilities{
			Endpoints: []string{"chat", "completions"}, Cancel: true,
			MaxContext: o.MaxContext, Logprobs: o.Logprobs, Buffered: o.Buffered, Content: o.Content,
		},
	}
	if o.Protocol != 0 {
		hello.Protocol = o.Protocol
	}
	s := w.script.Start
	if s.Mode == StartBadHello {
		hello.Protocol = worker.Version + 1
	}
	if s.Mode == StartDie {
		return ErrDied
	}
	began := time.Now()
	if err := w.say(hello); err != nil {
		return err
	}
	if s.Mode == StartHang {
		<-ctx.Done()
		return nil
	}
	if !sleep(ctx, milliseconds(s.DelayMS)) {
		return nil
	}
	if s.Mode == StartDieLate {
		return ErrDied
	}
	if s.Mode == StartFatal {
		message := s.Message
		if message == "" {
			message = "the script says that it cannot load"
		}
		return errors.Join(w.say(&worker.Fatal{Message: message}), ErrDied)
	}
	return w.say(&worker.Ready{LoadMS: float64(time.Since(began)) / float64(time.Millisecond)})
}

func (w *scripted) say(frame any) error {
	line, err := worker.Encode(frame)
	if err != nil {
		return err
	}
	return w.raw(line)
}

func (w *scripted) raw(line []byte) error {
	if _, err := w.out.Write(line); err != nil {
		return fmt.Errorf("to the gateway: %w", err)
	}
	return nil
}

// call is one request in progress.
type call struct {
	*worker.Generate
	do       *Behaviour
	prompt   string
	began    time.Time
	first    *int64
	chars    worker.Text
	text     strings.Builder
	tokens   int
	pieces   int // of text
	logprobs bool
	scored   []scored
	offset   int // of the next scored token, in characters of the text
}

func (w *scripted) answer(ctx context.Context, ordinal int, r worker.Call) error {
	generate, ok := r.Request.(*worker.Generate)
	if !ok {
		return fmt.Errorf("%T was not offered", r.Request)
	}
	c := &call{Generate: generate, began: time.Now()}
	var body struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Prompt    json.RawMessage `json:"prompt"`
		MaxTokens *int            `json:"max_tokens"`
		Logprobs  json.RawMessage `json:"logprobs"`
	}
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return w.say(&worker.Error{ID: c.ID, Status: 400, Code: "invalid_request", Type: "invalid_request_error", Message: err.Error()})
	}
	var prompt []string
	for _, m := range body.Messages {
		prompt = append(prompt, plain(m.Content))
	}
	c.prompt = strings.Join(append(prompt, plain(body.Prompt)), "\n")
	c.do = w.script.choose(ordinal, c.prompt)
	c.logprobs = w.script.Offers.Logprobs && body.Logprobs != nil && string(body.Logprobs) != "false"
	if words, most := len(strings.Fields(c.prompt)), w.script.Offers.MaxContext; most > 0 && words > most {
		return w.say(&worker.Error{ID: c.ID, Status: 400, Code: "context_length_exceeded", Type: "invalid_request_error",
			Message: fmt.Sprintf("the prompt has %d words and the context %d", words, most)})
	}

	tokens, finish := c.do.answer(c.prompt), "stop"
	if limit := body.MaxTokens; limit != nil && *limit < len(tokens) {
		tokens, finish = tokens[:*limit], "length"
	}
	if c.do.FinishReason != "" {
		finish = c.do.FinishReason
	}

	patience := r.Context
	if c.do.IgnoreCancel {
		patience = ctx
	}
	for i := 0; ; i++ {
		if !slices.Contains([]Fault{"", DeltaAfterDone, DieAfterDone}, c.do.Fault) && i == min(c.do.After, len(tokens)) {
			if over, err := w.fault(ctx, c); over || err != nil {
				return err
			}
		}
		if i == len(tokens) {
			break
		}
		delay := c.do.TokenDelayMS
		if i == 0 {
			delay = c.do.FirstDelayMS
		}
		if !sleep(patience, milliseconds(delay)) {
			if ctx.Err() != nil {
				return nil
			}
			return w.say(&worker.Error{ID: c.ID, Status: 499, Code: "cancelled", Type: "cancelled", Message: "cancelled", Task: c.task()})
		}
		if err := w.token(c, tokens[i]); err != nil {
			return err
		}
	}
	if err := w.piece(c, c.chars.Rest()); err != nil {
		return err
	}
	if err := w.say(c.done(&finish)); err != nil {
		return err
	}
	switch c.do.Fault {
	case DeltaAfterDone:
		return w.say(&worker.Delta{ID: c.ID, Text: "too late"})
	case DieAfterDone:
		return ErrDied
	}
	return nil
}

func (w *scripted) token(c *call, token string) error {
	c.tokens++
	if c.logprobs {
		c.scored = append(c.scored, score(token))
	}
	return w.piece(c, c.chars.Add([]byte(token)))
}

// piece passes on what has become text.
func (w *scripted) piece(c *call, text string) error {
	if text == "" {
		return nil
	}
	if c.first == nil {
		since := time.Since(c.began).Nanoseconds()
		c.first = &since
	}
	c.text.WriteString(text)
	c.pieces++
	if !c.Stream {
		return nil
	}
	return w.say(&worker.Delta{ID: c.ID, Text: text, Logprobs: c.scores()})
}

// fault misbehaves and says whether that was the end of the request.
func (w *scripted) fault(ctx context.Context, c *call) (over bool, err error) {
	e := &worker.Error{ID: c.ID, Status: c.do.Error.Status, Code: c.do.Error.Code, Message: c.do.Error.Message}
	if c.tokens > 0 {
		e.Task = c.task()
	}
	fill := func(status int, code, kind, message string) {
		e.Type = kind
		if e.Status == 0 {
			e.Status = status
		}
		if e.Code == "" {
			e.Code = code
		}
		if e.Message == "" {
			e.Message = message
		}
	}
	switch c.do.Fault {
	case Reject:
		fill(429, "capacity_exceeded", "rate_limit_error", "the engine has no capacity, as the script says")
		return true, w.say(e)
	case ContextExceeded:
		fill(400, "context_length_exceeded", "invalid_request_error", "the prompt is too long, as the script says")
		return true, w.say(e)
	case Fail:
		fill(500, "engine_error", "server_error", "the engine failed, as the script says")
		return true, w.say(e)
	case Break:
		return true, w.say(c.done(nil))
	case Die:
		return true, ErrDied
	case Hang:
		<-ctx.Done()
		return true, nil
	case Malformed:
		return false, w.raw([]byte("this is not a frame\n"))
	case Oversize:
		return false, w.say(&worker.Delta{ID: c.ID, Text: strings.Repeat("x", worker.MaxReply)})
	case WrongID:
		return false, w.say(&worker.Delta{ID: c.ID + "-other", Text: "x"})
	}
	return false, nil
}

func (c *call) task() *worker.Task {
	sum := sha256.Sum256([]byte(c.text.String()))
	t := &worker.Task{
		Scope: record.ScopeCall, WallNS: time.Since(c.began).Nanoseconds(), Increments: c.pieces,
		TextSHA256: hex.EncodeToString(sum[:]), TextBytes: int64(c.text.Len()),
	}
	if c.do.WallMS != nil {
		t.WallNS = *c.do.WallMS * int64(time.Millisecond)
	}
	if c.Stream {
		t.Scope, t.FirstIncrementNS = record.ScopeStream, c.first
	}
	return t
}

func (c *call) done(finish *string) *worker.Done {
	d := &worker.Done{ID: c.ID, FinishReason: finish, Task: c.task()}
	if !c.Stream {
		text := c.text.String()
		d.Text, d.Logprobs = &text, c.scores()
	}
	if !c.do.NoUsage {
		prompt, completion := c.do.PromptTokens, int64(c.tokens)
		if prompt == nil {
			words := int64(len(strings.Fields(c.prompt)))
			prompt = &words
		}
		d.Usage = worker.Usage{PromptTokens: prompt, CompletionTokens: &completion, CachedTokens: c.do.CachedTokens}
	}
	return d
}

// words has characters of one to four bytes.
var words = strings.Fields("the quick brown fox jumps over lazy dogs größer naïve мир 中文 日本 😀 🧪 end")

// answer returns the tokens of the behaviour's answer.
func (b *Behaviour) answer(prompt string) []string {
	if b.Tokens != nil {
		return b.Tokens
	}
	if b.TokensHex != nil {
		tokens := make([]string, len(b.TokensHex))
		for i, digits := range b.TokensHex {
			token, _ := hex.DecodeString(digits) // Parse has checked it
			tokens[i] = string(token)
		}
		return tokens
	}
	count := 16
	if b.Count != nil {
		count = *b.Count
	}
	tokens := make([]string, count)
	state := sha256.Sum256([]byte(prompt))
	for i := range tokens {
		binary.LittleEndian.PutUint64(state[24:], uint64(i))
		pick := sha256.Sum256(state[:])
		tokens[i] = " " + words[int(pick[0])%len(words)]
	}
	return tokens
}

// plain returns the text of a prompt or of a message's content: a string, or
// the strings and text parts of an array.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return ""
	}
	var parts []string
	for _, item := range list {
		var part struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(item, &text) == nil {
			parts = append(parts, text)
		} else if json.Unmarshal(item, &part) == nil && part.Text != "" {
			parts = append(parts, part.Text)
		} else if len(item) > 0 && item[0] != '{' {
			parts = append(parts, string(item)) // a token id
		}
	}
	return strings.Join(parts, " ")
}

// sleep waits and says whether ctx left it alone.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
