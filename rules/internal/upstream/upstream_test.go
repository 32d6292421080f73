package upstream

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// session is a worker in conversation with a test.
type session struct {
	t     *testing.T
	seq   worker.Sequence
	in    *io.PipeWriter
	lines *bufio.Scanner
	ended chan error
}

func start(t *testing.T, to Upstream) *session {
	t.Helper()
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	s := &session{t: t, in: in, lines: worker.Lines(out, worker.MaxReply), ended: make(chan error, 1)}
	go func() {
		s.ended <- Run(context.Background(), to, stdin, stdout, slog.New(slog.DiscardHandler))
		stdout.Close()
	}()
	return s
}

func (s *session) next() worker.Reply {
	s.t.Helper()
	if !s.lines.Scan() {
		s.t.Fatalf("the worker ended: %v", <-s.ended)
	}
	r, err := worker.DecodeReply(s.lines.Bytes())
	if err == nil {
		err = s.seq.Reply(r)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *session) send(r worker.Request) {
	s.t.Helper()
	line, err := worker.Encode(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if g, ok := r.(*worker.Generate); ok {
		if err := s.seq.Request(g); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := s.in.Write(line); err != nil {
		s.t.Fatal(err)
	}
}

// ready takes the frames of the start and says what the engine is called.
func (s *session) ready() string {
	s.t.Helper()
	hello, ok := s.next().(*worker.Hello)
	if !ok {
		s.t.Fatal("no hello")
	}
	if _, ok := s.next().(*worker.Ready); !ok {
		s.t.Fatal("no ready")
	}
	return hello.Engine.Name
}

// ask returns the pieces of the answer and its last frame.
func (s *session) ask(g *worker.Generate) (pieces []string, last worker.Reply) {
	s.t.Helper()
	s.send(g)
	for {
		switch r := s.next().(type) {
		case *worker.Delta:
			pieces = append(pieces, r.Text)
		default:
			return pieces, r
		}
	}
}

// server answers an inference request with answer, and lists the model "there".
func server(t *testing.T, answer http.HandlerFunc) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"there","object":"model","owned_by":"somebody"}]}`)
	})
	mux.HandleFunc("POST /v1/", answer)
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

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// The request arrives as the client sent it, under the upstream's own name of the
// model and with the id; the answer comes back with its account.
func TestForwards(t *testing.T) {
	var got struct {
		id, path string
		body     map[string]any
	}
	const usage = `"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}`
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		got.id, got.path, got.body = r.Header.Get("X-Request-ID"), r.URL.Path, nil
		if err := json.NewDecoder(r.Body).Decode(&got.body); err != nil {
			t.Error(err)
		}
		if got.body["stream"] != true {
			fmt.Fprint(w, `{"choices":[{"message":{"content":"Grüße"},"finish_reason":"stop"}],`+usage+`,"timings":{"prompt_ms":1.5,"build":"b1"}}`)
			return
		}
		for _, event := range []string{
			`{"choices":[{"text":"Gr"}]}`, `{"choices":[{"text":"üße"}]}`, `{"choices":[{"text":"","finish_reason":"length"}]}`, `{"choices":[],` + usage + `}`, `[DONE]`,
		} {
			fmt.Fprintf(w, "data: %s\n\n", event)
		}
	})
	s := start(t, Upstream{URL: url + "/", Model: "there"})
	if name := s.ready(); name != "somebody" {
		t.Errorf("engine %q", name)
	}
	body := json.RawMessage(`{"max_tokens":8,"messages":[{"role":"user","content":"hi"}]}`)
	_, last := s.ask(&worker.Generate{ID: "r-1", Endpoint: "chat", Body: body})
	done, ok := last.(*worker.Done)
	if !ok || *done.Text != "Grüße" || *done.FinishReason != "stop" || *done.Usage.PromptTokens != 3 || *done.Usage.CachedTokens != 0 {
		t.Fatalf("%+v", last)
	}
	if k := done.Task; k.Scope != record.ScopeHTTPCall || k.TextSHA256 != sha("Grüße") || k.TextBytes != 7 || k.WallNS <= 0 || k.FirstIncrementNS != nil || k.Engine["prompt_ms"] != 1.5 || len(k.Engine) != 1 {
		t.Errorf("task %+v", k)
	}
	if got.id != "r-1" || got.path != "/v1/chat/completions" || got.body["model"] != "there" || got.body["max_tokens"] != 8.0 || got.body["stream"] != nil {
		t.Errorf("forwarded %+v", got)
	}

	pieces, last := s.ask(&worker.Generate{ID: "r-2", Endpoint: "completions", Stream: true, Body: json.RawMessage(`{"prompt":"x"}`)})
	done, ok = last.(*worker.Done)
	if !ok || strings.Join(pieces, "|") != "Gr|üße" || *done.FinishReason != "length" || done.Text != nil || *done.Usage.CompletionTokens != 2 {
		t.Fatalf("%q %+v", pieces, last)
	}
	if k := done.Task; k.Scope != record.ScopeHTTPStream || k.TextSHA256 != sha("Grüße") || k.Increments != 2 || k.FirstIncrementNS == nil {
		t.Errorf("task %+v", k)
	}
	s.send(&worker.Shutdown{})
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// Whatever the upstream server does, the request ends, the reason is told, and the
// next one is served.
func TestRefusals(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	url := server(t, func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) })
	s := start(t, Upstream{URL: url, Model: "there"})
	s.ready()
	for name, c := range map[string]struct {
		answer       http.HandlerFunc
		status       int
		code, wanted string
	}{
		"capacity":            {refuse(429, `{"error":{"code":"busy","type":"rate_limit_error","message":"later"}}`), 429, "busy", "later"},
		"the older form":      {refuse(400, `{"object":"error","message":"too long","type":"BadRequestError","code":400}`), 400, "400", "too long"},
		"no form":             {refuse(503, `<html>`), 503, "upstream_error", "status 503"},
		"a redirect":          {refuse(302, ``), 502, "upstream_error", "status 302"},
		"499 without a cause": {refuse(499, ``), 502, "upstream_error", "status 499"},
		"an error in 200":     {text(`{"error":{"code":400,"message":"no"}}`), 400, "400", "no"},
		"no JSON":             {text(`hello`), 502, "upstream_error", "not of the interface"},
		"not UTF-8":           {text("{\"choices\":[{\"text\":\"\xff\"}]}"), 502, "upstream_error", "not UTF-8"},
		"a cut connection":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, "upstream_error", "cut the connection"},
	} {
		for _, stream := range []bool{false, true} {
			answer.Store(&c.answer)
			if stream && name != "an error in 200" && (name == "no JSON" || name == "not UTF-8") {
				continue // these are not events
			}
			if stream && name == "an error in 200" {
				event := text("data: %s\n\n", `{"error":{"code":400,"message":"no"}}`)
				answer.Store(&event)
			}
			_, last := s.ask(&worker.Generate{ID: "r", Endpoint: "completions", Stream: stream, Body: json.RawMessage(`{"prompt":"x"}`)})
			e, ok := last.(*worker.Error)
			if !ok || e.Status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.wanted) || strings.Contains(e.Message, "127.0.0.1") {
				t.Errorf("%s, stream %v: %+v", name, stream, last)
			}
		}
	}
	fine := text(`{"choices":[{"text":"fine","finish_reason":"stop"}]}`)
	answer.Store(&fine)
	if _, last := s.ask(&worker.Generate{ID: "r", Endpoint: "completions", Body: json.RawMessage(`{"prompt":"x"}`)}); *last.(*worker.Done).Text != "fine" {
		t.Errorf("afterwards: %+v", last)
	}
	s.in.Close()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// A stream that breaks off has no finish reason, and none is made up.
func TestBrokenStream(t *testing.T) {
	s := start(t, Upstream{URL: server(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: {\"choices\":[{\"text\":\"half\"}]}\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}), Model: "there"})
	s.ready()
	pieces, last := s.ask(&worker.Generate{ID: "r", Endpoint: "completions", Stream: true, Body: json.RawMessage(`{"prompt":"x"}`)})
	done, ok := last.(*worker.Done)
	if !ok || len(pieces) != 1 || done.FinishReason != nil || done.Task.TextSHA256 != sha("half") {
		t.Errorf("%q %+v", pieces, last)
	}
	s.in.Close()
	<-s.ended
}

// A cancel closes the connection, so the upstream server can stop.
func TestCancel(t *testing.T) {
	for _, stream := range []bool{false, true} {
		arrived, gone := make(chan struct{}), make(chan struct{})
		s := start(t, Upstream{URL: server(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if stream {
				io.WriteString(w, "data: {\"choices\":[{\"text\":\"one\"}]}\n\n")
			}
			w.(http.Flusher).Flush()
			close(arrived)
			<-r.Context().Done()
			close(gone)
		}), Model: "there"})
		s.ready()
		s.send(&worker.Generate{ID: "r", Endpoint: "completions", Stream: stream, Body: json.RawMessage(`{"prompt":"x"}`)})
		<-arrived
		if stream {
			s.next()
		}
		s.send(&worker.Cancel{ID: "earlier"})
		s.send(&worker.Cancel{ID: "r"})
		if e, ok := s.next().(*worker.Error); !ok || e.Status != 499 {
			t.Errorf("%+v", e)
		}
		<-gone
		s.in.Close()
		<-s.ended
	}
}

func TestDoesNotStart(t *testing.T) {
	here := server(t, text(`{}`))
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	for name, c := range map[string]struct {
		to   Upstream
		want string
	}{
		"another model": {Upstream{here, "elsewhere"}, `has no model "elsewhere"; it has ["there"]`},
		"no such page":  {Upstream{empty.URL, "there"}, "answers /v1/models with status 404"},
		"nobody there":  {Upstream{"http://127.0.0.1:1", "there"}, "does not answer"},
	} {
		s := start(t, c.to)
		if f, ok := s.next().(*worker.Fatal); !ok || !strings.Contains(f.Message, c.want) {
			t.Errorf("%s: %+v", name, f)
		}
		if err := <-s.ended; err == nil {
			t.Errorf("%s: no error", name)
		}
		s.in.Close()
	}
}

func TestCheckURL(t *testing.T) {
	for text, ok := range map[string]bool{
		"http://127.0.0.1:9000": true, "https://host/base/": true,
		"127.0.0.1:9000": false, "http://": false, "ftp://host": false, "http://me:secret@host": false, "http://host?x=1": false, "http://host/v1/": false, "": false,
	} {
		if err := CheckURL(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
