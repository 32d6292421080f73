package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// check is one thing that a worker must do.
type check struct {
	name string // what holds if it passes
	hint string // what to do if it fails
	// needs says why the check does not apply to a worker, if it does not.
	needs func(*worker.Hello) string
	// An essential check that fails makes the others pointless, except those that
	// report findings.
	essential, findings bool
	// run fails with a finding, a brokenError if the worker cannot be used any more,
	// or any other error.
	run func(context.Context, *session) error
}

// checks are in the order in which they are made.
var checks = []check{
	{name: "hello comes first and says what the worker is", essential: true, run: hello,
		hint: "send hello before anything is loaded: protocol 2 (or 1), worker, engine.name, and in capabilities the endpoints chat, completions or both"},
	{name: "ready follows hello", essential: true, run: ready,
		hint: "send ready when the model is loaded and warm, or fatal with the reason; --startup-timeout gives it longer"},
	{name: "whole answers at every endpoint", essential: true, run: buffered,
		hint: "answer a generate frame with \"stream\":false by one done frame with its text and the engine's finish_reason"},
	{name: "answers in pieces at every endpoint", needs: streams, run: streamed,
		hint: "answer a generate frame with \"stream\":true by delta frames and one done frame with the engine's finish_reason"},
	{name: "task has the digest and the length of the text", run: digests,
		hint: "text_sha256 and text_bytes are of the whole text in UTF-8, of all deltas together in a stream"},
	{name: "task has figures that fit the answer", run: figures,
		hint: "increments counts the delta frames of a stream; first_increment_ns and wall_ns count from the start of the call, by one monotonic clock; see `task` in the protocol"},
	{name: "characters arrive whole", run: characters,
		hint: "when a token ends inside a character hold its bytes back until the character is whole; an incremental decoder does it"},
	{name: "max_tokens limits the answer", run: limited,
		hint: "give max_tokens to the engine"},
	{name: "requests are served one after the other", run: inTurn,
		hint: "one process serves any number of requests; after the last frame of one it waits for the next"},
	{name: "a prompt beyond ASCII is taken", run: beyondASCII,
		hint: "frames are UTF-8, whatever the locale: read and write bytes, or say the encoding"},
	{name: "settings of sampling are taken", run: settings,
		hint: "pass temperature, top_p, seed and stop to the engine, or leave them; they end no request of a client that sends them always"},
	{name: "unknown members do no harm", run: unknown,
		hint: "ignore members of a frame that you do not know, such as traceparent, and pass or refuse (4xx) those of a body"},
	{name: "a body of the wrong form is refused", run: malformed,
		hint: "answer with an error frame, status 400, before anything else of the request"},
	{name: "a prompt beyond max_context is refused", needs: contextKnown, run: tooLong,
		hint: "count the prompt's tokens and answer with an error frame, status 400, code context_length_exceeded; cut nothing silently"},
	{name: "a long line is taken or refused", run: longLine,
		hint: fmt.Sprintf("a line may have %d bytes: read lines without a limit, or with this one", worker.MaxRequest)},
	{name: "cancel ends a request early", needs: cancels, run: cancelled,
		hint: "read frames while the engine works, and stop it between two tokens; end with an error frame, status 499"},
	{name: "a cancel for no request is ignored", needs: notVersion1, run: lateCancel,
		hint: "compare the id of a cancel with that of the request in progress, and let each request begin uncancelled"},
	{name: "texts are tokenized", needs: tokenizes, run: tokenize,
		hint: "answer a tokenize frame with a tokens frame: the engine's ids, without special tokens around them"},
	{name: "log-probabilities are given", needs: givesLogprobs, run: logprobs,
		hint: "put OpenAI's choice.logprobs into the delta frames of a stream and into the done frame of a whole answer, or do not offer them"},
	{name: "an image does no harm", needs: takesImages, run: image,
		hint: "take content parts of the type image_url with a data URL, refuse (4xx) those that the model cannot take, or do not offer them"},
	{name: "the same request gets the same answer", run: repeatable},
	{name: "the end of its input ends it", run: endOfInput,
		hint: "when standard input ends, exit at once"},
	{name: "the end of its input ends it in a request", run: endOfInputInRequest,
		hint: "read standard input in a thread of its own, and leave with os._exit or its like when it ends"},
	{name: "shutdown ends it with status 0", run: shutdown,
		hint: "when a shutdown frame comes, exit with status 0"},
	{name: "no process outlives it", findings: true, run: func(_ context.Context, s *session) error { return s.survivors.err() },
		hint: "end the processes that the worker started before it ends"},
	{name: "standard output carries frames only", findings: true, run: func(_ context.Context, s *session) error { return s.stray.err() },
		hint: "duplicate descriptor 1 for the frames and point it at standard error before anything is imported"},
	{name: "frames are complete and in order", findings: true, run: func(_ context.Context, s *session) error { return s.faults.err() },
		hint: "see what each frame must hold, and the states, in the protocol"},
}

func streams(h *worker.Hello) string {
	switch {
	case h.Protocol == worker.BufferedVersion:
		return "a worker of version 1 gives whole answers only"
	case h.Capabilities.Buffered:
		return "the worker gives whole answers only"
	}
	return ""
}

func notVersion1(h *worker.Hello) string {
	if h.Protocol == worker.BufferedVersion {
		return "a worker of version 1 gets no such frame"
	}
	return ""
}

func cancels(h *worker.Hello) string {
	if reason := notVersion1(h); reason != "" {
		return reason
	}
	return offered(h.Capabilities.Cancel, "cancel")
}

func tokenizes(h *worker.Hello) string {
	if reason := notVersion1(h); reason != "" {
		return reason
	}
	return offered(h.Capabilities.Tokenize, "tokenize")
}

func givesLogprobs(h *worker.Hello) string { return offered(h.Capabilities.Logprobs, "logprobs") }

func contextKnown(h *worker.Hello) string {
	if h.Capabilities.MaxContext == 0 {
		return "the worker does not state max_context"
	}
	return ""
}

func takesImages(h *worker.Hello) string {
	return offered(slices.Contains(h.Capabilities.Content, "image_url") && slices.Contains(h.Capabilities.Endpoints, chat), "content image_url")
}

func offered(is bool, capability string) string {
	if is {
		return ""
	}
	return "the worker does not offer " + capability
}

// Endpoints.
const (
	chat        = "chat"
	completions = "completions"
)

// body holds the members of a JSON object.
type body map[string]any

func (b body) json() []byte {
	data, _ := json.Marshal(b) // the checks put nothing in that JSON has not
	return data
}

// with sets a member and returns the body.
func (b body) with(name string, value any) body {
	b[name] = value
	return b
}

// prompt asks for a short greedy answer.
func prompt(endpoint, text string) body {
	b := body{"max_tokens": 16, "temperature": 0, "seed": 1}
	if endpoint == completions {
		return b.with("prompt", text)
	}
	return b.with("messages", []any{body{"role": "user", "content": text}})
}

// first is the endpoint for checks that one endpoint is enough for.
func (s *session) first() string { return s.hello.Capabilities.Endpoints[0] }

// modes are the ways in which the worker can be asked: buffered, and streamed if it
// can.
func (s *session) modes() []bool {
	if streams(s.hello) != "" {
		return []bool{false}
	}
	return []bool{false, true}
}

func mode(stream bool) string {
	if stream {
		return "streamed"
	}
	return "buffered"
}

// answered asks and wants an answer.
func (s *session) answered(ctx context.Context, endpoint string, stream bool, b body) (*answer, *worker.Done, error) {
	a, err := s.ask(ctx, endpoint, stream, b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s, %s: %w", endpoint, mode(stream), err)
	}
	done, err := a.done()
	if err != nil {
		return nil, nil, fmt.Errorf("%s, %s: %w", endpoint, mode(stream), err)
	}
	return a, done, nil
}

// goesOn asks once more after something that the worker must survive.
func (s *session) goesOn(ctx context.Context) error {
	if _, _, err := s.answered(ctx, s.first(), false, prompt(s.first(), "Say hello.")); err != nil {
		return fmt.Errorf("the request after it: %w", err)
	}
	return nil
}

// each asks the same of every endpoint in the modes and looks at every answer.
func (s *session) each(ctx context.Context, text string, modes []bool, look func(*answer, *worker.Done) error) error {
	for _, endpoint := range s.hello.Capabilities.Endpoints {
		for _, stream := range modes {
			a, done, err := s.answered(ctx, endpoint, stream, prompt(endpoint, text))
			if err != nil {
				return err
			}
			if err := look(a, done); err != nil {
				return fmt.Errorf("%s, %s: %w", endpoint, mode(stream), err)
			}
		}
	}
	return nil
}

func hello(ctx context.Context, s *session) error {
	ctx, cancel := s.starting(ctx)
	defer cancel()
	h, err := s.launch(ctx)
	if err != nil {
		return err
	}
	s.hello = h
	var errs []error
	for i, endpoint := range h.Capabilities.Endpoints {
		if endpoint != chat && endpoint != completions {
			errs = append(errs, fmt.Errorf("capabilities.endpoints has %q, which is neither %q nor %q", endpoint, chat, completions))
		} else if slices.Contains(h.Capabilities.Endpoints[:i], endpoint) {
			errs = append(errs, fmt.Errorf("capabilities.endpoints has %q twice", endpoint))
		}
	}
	if h.Capabilities.MaxContext < 0 {
		errs = append(errs, fmt.Errorf("capabilities.max_context is %d; 0 is for unknown", h.Capabilities.MaxContext))
	}
	if slices.Contains(h.Capabilities.Content, "") || slices.Contains(h.Capabilities.Content, "text") {
		errs = append(errs, errors.New("capabilities.content lists the kinds of parts beside text"))
	}
	return errors.Join(errs...)
}

func ready(ctx context.Context, s *session) error {
	ctx, cancel := s.starting(ctx)
	defer cancel()
	return s.load(ctx)
}

// Prompts: in ASCII, and one whose answer has characters of two to four bytes.
const (
	greeting = "Say hello in German and in Chinese, with an emoji."
	echo     = "Repeat this: Grüße, 世界! 😀🧪"
)

func buffered(ctx context.Context, s *session) error {
	return s.each(ctx, greeting, []bool{false}, whole)
}

func streamed(ctx context.Context, s *session) error {
	return s.each(ctx, greeting, []bool{true}, whole)
}

// whole looks for an end and for a text; without one nothing is checked below.
func whole(a *answer, done *worker.Done) error {
	switch {
	case done.FinishReason == nil:
		return errors.New("finish_reason is null, so the answer broke off")
	case a.text() == "":
		return errors.New("the answer is empty; check the worker with a model that answers")
	}
	return nil
}

const noTask = skip("done has no task, which is reported below")

func digests(ctx context.Context, s *session) error {
	return s.each(ctx, echo, s.modes(), func(a *answer, done *worker.Done) error {
		if done.Task == nil {
			return noTask
		}
		text, of := a.text(), "text"
		if a.stream {
			of = fmt.Sprintf("%d deltas together", len(a.pieces))
		}
		sum := sha256.Sum256([]byte(text))
		var errs []error
		if want := hex.EncodeToString(sum[:]); done.Task.TextSHA256 != want {
			errs = append(errs, fmt.Errorf("text_sha256 is %s, that of the %s is %s", done.Task.TextSHA256, of, want))
		}
		if done.Task.TextBytes != int64(len(text)) {
			errs = append(errs, fmt.Errorf("text_bytes is %d, the %s have %d", done.Task.TextBytes, of, len(text)))
		}
		return errors.Join(errs...)
	})
}

func figures(ctx context.Context, s *session) error {
	scopes := map[bool][]string{
		false: {record.ScopeCall, record.ScopeHTTPCall},
		true:  {record.ScopeStream, record.ScopeHTTPStream},
	}
	return s.each(ctx, greeting, s.modes(), func(a *answer, done *worker.Done) error {
		t := done.Task
		if t == nil {
			return noTask
		}
		var errs []error
		if !slices.Contains(scopes[a.stream], t.Scope) {
			errs = append(errs, fmt.Errorf("scope is %q, and not %s", t.Scope, strings.Join(scopes[a.stream], " or ")))
		}
		if t.WallNS == 0 {
			errs = append(errs, errors.New("wall_ns is 0"))
		}
		if !a.stream {
			return errors.Join(errs...)
		}
		if t.Increments != len(a.pieces) {
			errs = append(errs, fmt.Errorf("increments is %d, and there were %d deltas", t.Increments, len(a.pieces)))
		}
		if t.FirstIncrementNS == nil {
			errs = append(errs, errors.New("first_increment_ns is missing"))
		} else if *t.FirstIncrementNS > t.WallNS {
			errs = append(errs, fmt.Errorf("first_increment_ns, %d, is after wall_ns, %d", *t.FirstIncrementNS, t.WallNS))
		}
		return errors.Join(errs...)
	})
}

// characters compares: an engine may say U+FFFD itself, but then it says so in a
// whole answer too.
func characters(ctx context.Context, s *session) error {
	total := 0
	for _, endpoint := range s.hello.Capabilities.Endpoints {
		whole := 0
		for _, stream := range s.modes() {
			a, _, err := s.answered(ctx, endpoint, stream, prompt(endpoint, echo))
			if err != nil {
				return err
			}
			// An answer may be cut inside its last character.
			n := strings.Count(strings.TrimRight(a.text(), damaged), damaged)
			if stream && n > whole {
				return fmt.Errorf("%s: the streamed answer has U+FFFD, as of a character that was cut, %d times, the whole answer %d times", endpoint, n, whole)
			}
			whole = n
			total += n
		}
	}
	if total > 0 {
		return note(fmt.Sprintf("the answers have U+FFFD %d times; if that is not what the model says, the worker decodes tokens that end inside a character", total))
	}
	return nil
}
