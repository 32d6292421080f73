package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"assay/rules/internal/worker"
)

// session is a lane in conversation with a test. It checks the order of the frames
// as the gateway does.
type session struct {
	t       *testing.T
	seq     worker.Sequence
	calls   chan worker.Call
	replies chan worker.Reply
	ended   chan error
	stop    context.CancelFunc
}

func newEngine(t *testing.T, c Config) *Engine {
	t.Helper()
	e, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func start(t *testing.T, e *Engine) *session {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &session{t: t, calls: make(chan worker.Call), replies: make(chan worker.Reply), ended: make(chan error, 1), stop: stop}
	go func() {
		s.ended <- e.Handler()(ctx, s.calls, func(r worker.Reply) error {
			select {
			case s.replies <- r:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		close(s.replies)
	}()
	return s
}

func (s *session) next() worker.Reply {
	s.t.Helper()
	r, ok := <-s.replies
	if !ok {
		s.t.Fatalf("the handler ended: %v", <-s.ended)
	}
	line, err := worker.Encode(r)
	if err == nil {
		r, err = worker.DecodeReply(line[:len(line)-1])
	}
	if err == nil {
		err = s.seq.Reply(r)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// ready takes the frames of the start.
func (s *session) ready() *worker.Hello {
	s.t.Helper()
	hello, ok := s.next().(*worker.Hello)
	if !ok {
		s.t.Fatal("no hello")
	}
	if _, ok := s.next().(*worker.Ready); !ok {
		s.t.Fatal("no ready")
	}
	return hello
}

func (s *session) send(ctx context.Context, r worker.Request) {
	s.t.Helper()
	if err := s.seq.Request(r); err != nil {
		s.t.Fatal(err)
	}
	s.calls <- worker.Call{Request: r, Context: ctx}
}

// ask returns the pieces of the answer and its last frame.
func (s *session) ask(r worker.Request) (pieces []*worker.Delta, last worker.Reply) {
	s.t.Helper()
	s.send(s.t.Context(), r)
	for {
		switch r := s.next().(type) {
		case *worker.Delta:
			pieces = append(pieces, r)
		default:
			return pieces, r
		}
	}
}

// end stops the lane and returns what its handler did.
func (s *session) end() error {
	s.stop()
	for range s.replies {
	}
	return <-s.ended
}

func prompt(id string, stream bool) *worker.Generate {
	return &worker.Generate{ID: id, Endpoint: "completions", Stream: stream, Body: json.RawMessage(`{"prompt":"x"}`)}
}

// server answers an inference request with answer, and lists the model "there".
func server(t *testing.T, answer http.HandlerFunc) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", text(`{"object":"list","data":[{"id":"there","object":"model","owned_by":"somebody"}]}`))
	mux.HandleFunc("GET /health", text(`{"status":"ok"}`))
	mux.HandleFunc("GET /props", text(`{"build_info":"b1-0"}`))
	mux.HandleFunc("POST /", answer)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func text(format string, args ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, format, args...) }
}

func refuse(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// at is the configuration for a server that runs already.
func at(adapter, url string) Config { return Config{Adapter: adapter, URL: url, Model: "there"} }
