package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"assay/rules/internal/jsonl"
	"assay/rules/internal/sse"
	"assay/rules/internal/worker"
)

// deaf is the error of a reply that nobody takes any more.
type deaf struct{ error }

// forward sends a request on and relays the answer. Its error ends the handler.
func (l *lane) forward(ctx context.Context, r *worker.Generate) error {
	a := newAnswer(l.adapter, r)
	err := l.exchange(ctx, a, r)
	a.wall = time.Since(a.began)
	var lost deaf
	var refusal *refused
	switch {
	case errors.As(err, &lost):
		return lost.error
	case ctx.Err() != nil && a.finish == nil:
		return l.say(&worker.Error{ID: r.ID, Status: 499, Code: "cancelled", Type: "cancelled", Message: "cancelled", Task: a.task()})
	case errors.As(err, &refusal):
		return l.refuse(r.ID, refusal, a.task())
	case err != nil:
		l.log.Error("upstream", "id", r.ID, "err", err) // it may name the address
		if died := l.died(); died != nil {
			return died
		}
		if a.pieces == 0 {
			return l.refuse(r.ID, broken("the upstream server could not be reached, or cut the connection"), a.task())
		}
		// The answer broke off, and the missing finish reason says so.
	}
	return l.say(a.done())
}

func (l *lane) refuse(id string, e *refused, task *worker.Task) error {
	for _, known := range l.adapter.Refusals {
		if known.matches(e) {
			e.code = known.As.Code
			if known.As.Status != 0 {
				e.status, e.kind = known.As.Status, "invalid_request_error"
			}
			break
		}
	}
	return l.say(&worker.Error{ID: id, Status: e.status, Code: e.code, Type: e.kind, Message: l.redact(e.message), Task: task})
}

// exchange takes the engine's answer in.
func (l *lane) exchange(ctx context.Context, a *answer, r *worker.Generate) error {
	request, err := l.body(r)
	if err != nil {
		return err
	}
	header := map[string]string{l.adapter.SendID: r.ID, "traceparent": r.Traceparent, "tracestate": r.Tracestate}
	a.began = time.Now()
	resp, err := l.post(ctx, paths[r.Endpoint], header, request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if name := l.adapter.ReplyID; name != "" {
		a.note(resp.Header.Get(name))
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		return refusal(resp)
	case r.Stream:
		return l.relay(a, resp.Body.(*body))
	}
	data, err := read(resp.Body)
	if err != nil {
		return err
	}
	_, err = a.take(data)
	return err
}

// body is the request as the engine gets it: the gateway's, with members of ours
// in front.
func (l *lane) body(r *worker.Generate) ([]byte, error) {
	model, err := json.Marshal(l.config.Model)
	if err != nil {
		return nil, err
	}
	body := append([]byte(`{"model":`), model...)
	ours := []string{"model", "stream", "stream_options"} // which the gateway takes out
	if name := l.adapter.CacheMember; name != "" {
		ours = append(ours, name)
		body = fmt.Appendf(body, `,%q:%t`, name, l.config.PromptCache)
	}
	if r.Stream {
		body = append(body, `,"stream":true`...)
		if l.adapter.Usage {
			body = append(body, `,"stream_options":{"include_usage":true}`...)
		}
	}
	var s jsonl.Scanner
	s.Reset(r.Body)
	err = s.Object(nil, func(key []byte) error {
		value, err := s.Raw()
		if err != nil || slices.Contains(ours, string(key)) {
			return err
		}
		name, err := json.Marshal(string(key))
		body = append(append(append(append(body, ','), name...), ':'), value...)
		return err
	})
	if err != nil {
		return nil, &refused{http.StatusBadRequest, "invalid_request", "invalid_request_error", err.Error()}
	}
	return append(body, '}'), nil
}

// relay passes on a stream as it comes. One that ends without a finish reason ends
// so for the gateway too.
func (l *lane) relay(a *answer, r *body) error {
	events := sse.NewReader(r, maxBody)
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) || err == nil && string(event.Data) == "[DONE]" {
			r.done = true
			return nil
		}
		if err != nil {
			return err
		}
		piece, err := a.take(event.Data)
		if err != nil {
			return err
		}
		if piece.text == "" && piece.logprobs == nil {
			continue
		}
		if err := l.say(&worker.Delta{ID: a.id, Text: piece.text, Logprobs: piece.logprobs}); err != nil {
			return deaf{err}
		}
	}
}

// tokenize asks the engine for the token ids of a text.
func (l *lane) tokenize(ctx context.Context, r *worker.Tokenize) error {
	ids, err := l.tokens(ctx, r.Text)
	var refusal *refused
	switch {
	case err == nil:
		return l.say(&worker.Tokens{ID: r.ID, Tokens: ids})
	case ctx.Err() != nil:
		refusal = &refused{499, "cancelled", "cancelled", "cancelled"}
	case !errors.As(err, &refusal):
		l.log.Error("upstream", "id", r.ID, "err", err)
		if died := l.died(); died != nil {
			return died
		}
		refusal = broken("the upstream server did not tokenize")
	}
	return l.refuse(r.ID, refusal, nil)
}

func (l *lane) tokens(ctx context.Context, text string) ([]int64, error) {
	body, err := json.Marshal(l.adapter.Tokenizer.Body(text))
	if err != nil {
		return nil, err
	}
	resp, err := l.post(ctx, l.adapter.Tokenizer.Path, nil, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp)
	}
	data, err := read(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Tokens []int64 `json:"tokens"`
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.Tokens == nil {
		return nil, broken("the upstream server's answer has no tokens")
	}
	return answer.Tokens, nil
}
