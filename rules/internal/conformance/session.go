package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"assay/rules/internal/worker"
)

// session is the gateway's part, with one worker at a time.
type session struct {
	command Command
	limits  Limits
	hello   *worker.Hello
	p       *process        // nil when the next request needs a new one
	asked   map[string]bool // ids of requests

	unusable string // why checks of a worker at work cannot be made, if so

	sent, got string // the last lines, shortened

	// What was wrong with single lines and frames, and after an end.
	stray, faults, survivors findings
}

// brokenError is a failure after which the worker cannot be used.
type brokenError struct{ error }

func (e brokenError) Unwrap() error { return e.error }

// finding is something that was wrong with one line, frame or process.
type finding struct{ problem, sent, got string }

func (f *finding) Error() string { return f.problem }

type findings []finding

// err reports the first finding and how many more there are.
func (f findings) err() error {
	if len(f) == 0 {
		return nil
	}
	first := f[0]
	if more := len(f) - 1; more > 0 {
		first.problem += fmt.Sprintf(" (and %d more)", more)
	}
	return &first
}

// excerpt shortens a line for people.
func excerpt(line []byte) string {
	const most = 400
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) > most {
		return fmt.Sprintf("%s… (%d bytes)", bytes.ToValidUTF8(line[:most], nil), len(line))
	}
	return strings.ToValidUTF8(string(line), damaged)
}

func (s *session) discard() {
	if s.p != nil {
		s.p.end()
		s.p = nil
	}
}

// next returns the worker's next reply. What is no frame, or a frame at fault, is
// noted, and passed over or taken as it is meant where that is clear.
func (s *session) next(ctx context.Context) (worker.Reply, error) {
	for {
		line, err := s.p.line(ctx)
		if err != nil {
			return nil, brokenError{err}
		}
		s.got = excerpt(line)
		if !utf8.Valid(line) && isFrame(line) {
			s.faults = append(s.faults, finding{"a line that is not UTF-8", s.sent, s.got})
			line = bytes.ToValidUTF8(line, []byte(damaged))
		}
		reply, err := worker.DecodeReply(line)
		if reply == nil {
			if isFrame(line) {
				return nil, brokenError{err} // what it was to say is lost
			}
			s.stray = append(s.stray, finding{notFrame, s.sent, s.got})
			continue
		}
		if orderly := s.p.seq.Reply(reply); err == nil {
			err = orderly
		}
		if err != nil {
			s.faults = append(s.faults, finding{err.Error(), s.sent, s.got})
		}
		return reply, nil
	}
}

// launch starts a worker and awaits its hello.
func (s *session) launch(ctx context.Context) (*worker.Hello, error) {
	s.discard()
	p, err := start(s.command, s.limits.End)
	if err != nil {
		return nil, err
	}
	s.p = p
	faults := len(s.faults)
	reply, err := s.next(ctx)
	if err != nil {
		return nil, err
	}
	if hello, ok := reply.(*worker.Hello); ok && len(s.faults) == faults {
		return hello, nil
	}
	// It is this failure, and not one of the findings.
	problem := fmt.Errorf("the first frame is %s", kind(reply))
	if fatal, ok := reply.(*worker.Fatal); ok {
		problem = fmt.Errorf("the worker cannot start: %s", fatal.Message)
	} else if len(s.faults) > faults {
		problem = errors.New(s.faults[faults].problem)
	}
	s.faults = s.faults[:faults]
	return nil, brokenError{problem}
}

// load awaits ready.
func (s *session) load(ctx context.Context) error {
	faults := len(s.faults)
	reply, err := s.next(ctx)
	if err != nil {
		return err
	}
	switch r := reply.(type) {
	case *worker.Ready:
		return nil
	case *worker.Fatal:
		return brokenError{fmt.Errorf("the worker cannot load: %s", r.Message)}
	}
	s.faults = s.faults[:faults]
	return brokenError{fmt.Errorf("hello is followed by %s", kind(reply))}
}

func (s *session) starting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.limits.Start, fmt.Errorf("the worker was not ready within %s", s.limits.Start))
}

// ready starts a worker if there is none.
func (s *session) ready(ctx context.Context) error {
	if s.p != nil {
		return nil
	}
	ctx, cancel := s.starting(ctx)
	defer cancel()
	_, err := s.launch(ctx)
	if err == nil {
		err = s.load(ctx)
	}
	if err != nil {
		s.unusable = "not tried, since the worker could not be started again"
		return fmt.Errorf("started again: %w", err)
	}
	return nil
}

// awaitExit waits until the process ends. It reads on, so that it is not the loss
// of its reader that ends it.
func (s *session) awaitExit(ctx context.Context) error {
	lines := s.p.lines
	for {
		select {
		case <-s.p.proc.Done():
			return nil
		case line, ok := <-lines:
			if !ok {
				lines = nil
			} else if !isFrame(line) {
				s.stray = append(s.stray, finding{notFrame, s.sent, excerpt(line)})
			}
		case <-ctx.Done():
			return brokenError{context.Cause(ctx)}
		}
	}
}

// damaged stands for what is not UTF-8.
const damaged = "\uFFFD"

const notFrame = "a line that is not a frame"

// isFrame reports whether a line was meant as a frame.
func isFrame(line []byte) bool { return bytes.Contains(line, []byte(`"frame"`)) }

// answer is what came for one request so far.
type answer struct {
	id       string
	stream   bool
	pieces   []string
	logprobs int          // frames that carried some
	end      worker.Reply // *Done, *Tokens or *Error, nil before it
}

// ask sends a request and awaits its end.
func (s *session) ask(ctx context.Context, endpoint string, stream bool, b body) (*answer, error) {
	a, err := s.begin(ctx, s.generate(endpoint, stream, b), nil)
	if err != nil {
		return nil, err
	}
	return a, s.rest(ctx, a)
}

func (s *session) answering(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.limits.Answer, fmt.Errorf("the request did not end within %s", s.limits.Answer))
}

func (s *session) generate(endpoint string, stream bool, b body) *worker.Generate {
	return &worker.Generate{ID: s.id(), Endpoint: endpoint, Stream: stream, Body: b.json()}
}

func (s *session) id() string {
	id := fmt.Sprintf("r-%d", len(s.asked)+1)
	s.asked[id] = true
	return id
}

// begin sends a *Generate or a *Tokenize, with more members than it has, to a new
// worker if there is none.
func (s *session) begin(ctx context.Context, r worker.Request, more body) (*answer, error) {
	a := new(answer)
	switch r := r.(type) {
	case *worker.Generate:
		a.id, a.stream = r.ID, r.Stream
	case *worker.Tokenize:
		a.id = r.ID
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := s.p.seq.Request(r); err != nil { // the last one was ended by a frame at fault
		s.p.seq = idle()
		_ = s.p.seq.Request(r)
	}
	return a, s.send(ctx, r, more)
}

// idle is the order of frames of a worker that is ready.
func idle() worker.Sequence {
	var seq worker.Sequence
	_ = seq.Reply(new(worker.Hello))
	_ = seq.Reply(new(worker.Ready))
	return seq
}

func (s *session) send(ctx context.Context, r worker.Request, more body) error {
	line, err := worker.Encode(r)
	if err != nil {
		return err
	}
	if more != nil {
		line = slices.Concat(bytes.TrimSuffix(line, []byte("}\n")), []byte(","), more.json()[1:], []byte("\n"))
	}
	s.sent, s.got = excerpt(line), ""
	ctx, cancel := s.answering(ctx)
	defer cancel()
	if err := s.p.send(ctx, line); err != nil {
		return brokenError{err}
	}
	return nil
}

// piece takes the next reply that belongs to the request.
func (s *session) piece(ctx context.Context, a *answer) error {
	for {
		reply, err := s.next(ctx)
		if err != nil {
			return err
		}
		var id string
		switch r := reply.(type) {
		case *worker.Delta:
			if r.ID != a.id { // a finding already
				continue
			}
			if r.Text != "" {
				a.pieces = append(a.pieces, r.Text)
			}
			a.count(r.Logprobs)
			return nil
		case *worker.Done:
			id = r.ID
			a.count(r.Logprobs)
		case *worker.Tokens:
			id = r.ID
		case *worker.Error:
			id = r.ID
		default:
			return brokenError{fmt.Errorf("a %s frame in a request", kind(reply))}
		}
		if id == a.id {
			a.end = reply
			return nil
		}
		// The end of an earlier request is a finding already. After one for a request
		// that never was, nothing more would come.
		if !s.asked[id] {
			return brokenError{fmt.Errorf("a %s frame for %q, which was never asked for, instead of %q", kind(reply), id, a.id)}
		}
	}
}

func (a *answer) count(logprobs json.RawMessage) {
	if len(logprobs) > 0 && string(logprobs) != "null" {
		a.logprobs++
	}
}

// rest takes replies until the request ends.
func (s *session) rest(ctx context.Context, a *answer) error {
	ctx, cancel := s.answering(ctx)
	defer cancel()
	for a.end == nil {
		if err := s.piece(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// done returns the last frame of a request that had to be answered.
func (a *answer) done() (*worker.Done, error) {
	switch end := a.end.(type) {
	case *worker.Done:
		return end, nil
	case *worker.Error:
		return nil, fmt.Errorf("refused with status %d: %s", end.Status, end.Message)
	}
	return nil, fmt.Errorf("ended by %s", kind(a.end))
}

// text is the whole answer.
func (a *answer) text() string {
	if a.stream {
		return strings.Join(a.pieces, "")
	}
	if done, ok := a.end.(*worker.Done); ok && done.Text != nil {
		return *done.Text
	}
	return ""
}

// kind names a reply's frame.
func kind(r worker.Reply) string {
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", r), "*worker."))
}
