package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	stdimage "image"
	"image/png"
	"slices"
	"strings"

	"assay/rules/internal/worker"
)

func limited(ctx context.Context, s *session) error {
	const most = 3
	counted := false
	for _, endpoint := range s.hello.Capabilities.Endpoints {
		for _, stream := range s.modes() {
			_, done, err := s.answered(ctx, endpoint, stream, prompt(endpoint, "Count from one to one hundred.").with("max_tokens", most))
			if err != nil {
				return err
			}
			if n := done.Usage.CompletionTokens; n != nil {
				counted = true
				if *n > most {
					return fmt.Errorf("%s, %s: usage.completion_tokens is %d with max_tokens %d", endpoint, mode(stream), *n, most)
				}
			}
		}
	}
	if !counted {
		return skip("the worker does not count completion_tokens")
	}
	return nil
}

func inTurn(ctx context.Context, s *session) error {
	for i := range 8 {
		endpoints, modes := s.hello.Capabilities.Endpoints, s.modes()
		endpoint, stream := endpoints[i%len(endpoints)], modes[i/2%len(modes)]
		text := fmt.Sprintf("This is request %d of 8 in a row.", i+1)
		if _, _, err := s.answered(ctx, endpoint, stream, prompt(endpoint, text)); err != nil {
			return fmt.Errorf("request %d of 8 in a row: %w", i+1, err)
		}
	}
	return nil
}

func beyondASCII(ctx context.Context, s *session) error {
	return s.each(ctx, "Übersetze: naïve café, Привет, 世界, 👩‍🔬, \u2028\"\\", s.modes(), func(*answer, *worker.Done) error { return nil })
}

func settings(ctx context.Context, s *session) error {
	for _, endpoint := range s.hello.Capabilities.Endpoints {
		for _, set := range []struct {
			name  string
			value any
		}{{"temperature", 0.7}, {"top_p", 0.9}, {"seed", 7}, {"stop", "\n"}, {"stop", []string{"\n", "END"}}} {
			if _, _, err := s.answered(ctx, endpoint, false, prompt(endpoint, greeting).with(set.name, set.value)); err != nil {
				return fmt.Errorf("with %q: %v: %w", set.name, set.value, err)
			}
		}
	}
	return nil
}

func unknown(ctx context.Context, s *session) error {
	extra := body{"nested": []any{1, nil}}
	a, err := s.begin(ctx, s.generate(s.first(), false, prompt(s.first(), greeting)), body{
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"x_assay":     extra,
	})
	if err == nil {
		err = s.rest(ctx, a)
	}
	if err == nil {
		_, err = a.done()
	}
	if err != nil {
		return fmt.Errorf("unknown members of the frame: %w", err)
	}
	if a, err = s.ask(ctx, s.first(), false, prompt(s.first(), greeting).with("x_assay", extra)); err != nil {
		return fmt.Errorf("an unknown member of the body: %w", err)
	}
	if e, ok := a.end.(*worker.Error); ok && !refusal(e) {
		return fmt.Errorf("an unknown member of the body: status %d, which is no refusal of a request", e.Status)
	}
	return s.goesOn(ctx)
}

// refusal reports whether an error says that the request itself was refused.
func refusal(e *worker.Error) bool { return e.Status < 499 && e.Status != 429 }

// refused asks for what the worker must refuse, and then for something else.
func (s *session) refused(ctx context.Context, endpoint string, stream bool, b body) error {
	a, err := s.ask(ctx, endpoint, stream, b)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", endpoint, mode(stream), err)
	}
	e, ok := a.end.(*worker.Error)
	switch {
	case !ok:
		return fmt.Errorf("%s, %s: it was answered", endpoint, mode(stream))
	case !refusal(e):
		return fmt.Errorf("%s, %s: status %d (%s) is no refusal of a request", endpoint, mode(stream), e.Status, e.Message)
	case len(a.pieces) > 0:
		return fmt.Errorf("%s, %s: the refusal came after %d deltas", endpoint, mode(stream), len(a.pieces))
	}
	return s.goesOn(ctx)
}

func malformed(ctx context.Context, s *session) error {
	b := prompt(s.first(), greeting)
	if s.first() == completions {
		b.with("prompt", body{"text": 7})
	} else {
		b.with("messages", 7)
	}
	return s.refused(ctx, s.first(), false, b)
}

func tooLong(ctx context.Context, s *session) error {
	const word = "word "
	words := 2*s.hello.Capabilities.MaxContext + 16
	if words > worker.MaxRequest/2/len(word) {
		return skip(fmt.Sprintf("a prompt of %d words does not fit into a line", words))
	}
	for _, endpoint := range s.hello.Capabilities.Endpoints {
		for _, stream := range s.modes() {
			if err := s.refused(ctx, endpoint, stream, prompt(endpoint, strings.Repeat(word, words)).with("max_tokens", 4)); err != nil {
				return fmt.Errorf("a prompt of %d words: %w", words, err)
			}
		}
	}
	return nil
}

func longLine(ctx context.Context, s *session) error {
	const size = 2 << 20
	b := prompt(s.first(), greeting).with("x_padding", strings.Repeat("x", size))
	if _, err := s.ask(ctx, s.first(), false, b); err != nil {
		return fmt.Errorf("a request of %d MiB: %w", size>>20, err)
	}
	return s.goesOn(ctx)
}

// long is a request that takes a while.
func (s *session) long() body {
	tokens := 4096
	if most := s.hello.Capabilities.MaxContext; most > 0 {
		tokens = min(tokens, max(1, most/2))
	}
	return prompt(s.first(), "Count from one to ten thousand.").with("max_tokens", tokens)
}

// underway sends a request that takes a while, and awaits its first piece.
func (s *session) underway(ctx context.Context) (*answer, error) {
	stream := streams(s.hello) == ""
	a, err := s.begin(ctx, s.generate(s.first(), stream, s.long()), nil)
	if err == nil && stream {
		ctx, cancel := s.answering(ctx)
		defer cancel()
		err = s.piece(ctx, a)
	}
	return a, err
}

func cancelled(ctx context.Context, s *session) error {
	a, err := s.underway(ctx)
	if err != nil {
		return err
	}
	if err := s.send(ctx, &worker.Cancel{ID: a.id}, nil); err != nil {
		return err
	}
	within, stop := context.WithTimeoutCause(ctx, s.limits.End, fmt.Errorf("the request did not end within %s of its cancel", s.limits.End))
	defer stop()
	for a.end == nil {
		if err := s.piece(within, a); err != nil {
			return err
		}
	}
	if e, ok := a.end.(*worker.Error); ok && e.Status != 499 {
		return fmt.Errorf("ended with status %d (%s)", e.Status, e.Message)
	}
	return s.goesOn(ctx)
}

func lateCancel(ctx context.Context, s *session) error {
	a, _, err := s.answered(ctx, s.first(), false, prompt(s.first(), greeting))
	if err != nil {
		return err
	}
	for _, id := range []string{a.id, "no-such-request"} {
		if err := s.send(ctx, &worker.Cancel{ID: id}, nil); err != nil {
			return err
		}
	}
	if err := s.goesOn(ctx); err != nil {
		return err
	}
	b, err := s.begin(ctx, s.generate(s.first(), false, prompt(s.first(), greeting)), nil)
	if err == nil {
		err = s.send(ctx, &worker.Cancel{ID: a.id}, nil)
	}
	if err == nil {
		err = s.rest(ctx, b)
	}
	if err == nil {
		_, err = b.done()
	}
	if err != nil {
		return fmt.Errorf("request %s, during which a cancel came for %s: %w", b.id, a.id, err)
	}
	return nil
}

func tokenize(ctx context.Context, s *session) error {
	var first []int64
	for i := range 2 {
		t := &worker.Tokenize{ID: s.id(), Text: "Grüße, 世界! 😀"}
		a, err := s.begin(ctx, t, nil)
		if err == nil {
			err = s.rest(ctx, a)
		}
		if err != nil {
			return err
		}
		tokens, ok := a.end.(*worker.Tokens)
		if !ok {
			_, err := a.done()
			return err
		}
		switch {
		case len(tokens.Tokens) == 0:
			return errors.New("a text has no tokens")
		case slices.Min(tokens.Tokens) < 0:
			return fmt.Errorf("a token id is negative: %d", tokens.Tokens)
		case i > 0 && !slices.Equal(first, tokens.Tokens):
			return fmt.Errorf("the same text has the tokens %d and then %d", first, tokens.Tokens)
		}
		first = tokens.Tokens
	}
	return s.goesOn(ctx)
}

func logprobs(ctx context.Context, s *session) error {
	for _, endpoint := range s.hello.Capabilities.Endpoints {
		for _, stream := range s.modes() {
			b := prompt(endpoint, greeting)
			if endpoint == chat {
				b.with("logprobs", true).with("top_logprobs", 2)
			} else {
				b.with("logprobs", 2)
			}
			a, _, err := s.answered(ctx, endpoint, stream, b)
			if err != nil {
				return err
			}
			if a.logprobs == 0 {
				return fmt.Errorf("%s, %s: no frame has logprobs", endpoint, mode(stream))
			}
		}
	}
	return nil
}

func image(ctx context.Context, s *session) error {
	var picture bytes.Buffer
	if err := png.Encode(&picture, stdimage.NewGray(stdimage.Rect(0, 0, 64, 64))); err != nil {
		return err
	}
	url := "data:image/png;base64," + base64.StdEncoding.EncodeToString(picture.Bytes())
	b := prompt(chat, "").with("messages", []any{body{"role": "user", "content": []any{
		body{"type": "text", "text": "What is this?"},
		body{"type": "image_url", "image_url": body{"url": url}},
	}}})
	a, err := s.ask(ctx, chat, false, b)
	if err != nil {
		return err
	}
	if e, ok := a.end.(*worker.Error); ok && refusal(e) {
		return note("the worker refused a grey picture of 64 by 64 pixels: " + e.Message)
	}
	_, err = a.done()
	return err
}

func repeatable(ctx context.Context, s *session) error {
	for _, endpoint := range s.hello.Capabilities.Endpoints {
		texts := make([]string, 2)
		for i := range texts {
			a, _, err := s.answered(ctx, endpoint, false, prompt(endpoint, greeting))
			if err != nil {
				return err
			}
			texts[i] = a.text()
		}
		if texts[0] != texts[1] {
			return note(fmt.Sprintf("%s: temperature 0 and one seed gave %q and then %q; a validation that compares texts will not hold", endpoint, texts[0], texts[1]))
		}
	}
	return nil
}
