package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// The request arrives as the client sent it, under the upstream's own name of the
// model and with id and trace; the answer comes back with its account.
func TestForwards(t *testing.T) {
	var got struct {
		header http.Header
		path   string
		body   map[string]any
	}
	const usage = `"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}`
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		got.header, got.path, got.body = r.Header, r.URL.Path, nil
		if err := json.NewDecoder(r.Body).Decode(&got.body); err != nil {
			t.Error(err)
		}
		if got.body["stream"] != true {
			fmt.Fprint(w, `{"id":"chatcmpl-theirs","choices":[{"message":{"content":"Grüße","reasoning_content":"hm"},"logprobs":{"content":[1]},"finish_reason":"stop"}],`+usage+`,"timings":{"prompt_ms":1.5,"build":"b1"}}`)
			return
		}
		for _, event := range []string{
			`{"id":"cmpl-theirs","choices":[{"text":"Gr","logprobs":{"tokens":["Gr"]}}]}`, `{"choices":[{"text":"üße"}]}`,
			`{"choices":[{"text":"","logprobs":{"tokens":["end"]}}]}`, `{"choices":[{"text":"","logprobs":null,"finish_reason":"length"}]}`,
			`{"choices":[],` + usage + `,"timings":{"prompt_ms":2}}`, `[DONE]`,
		} {
			fmt.Fprintf(w, "data: %s\n\n", event)
		}
	})
	for _, c := range []struct {
		adapter, version      string
		chatID, textID        string
		sentID, cache         any
		prompt, promptStreams float64
	}{
		{"openai", "", "theirs", "theirs", "r-1", nil, 0, 0},
		{"llama-server", "b1-0", "chatcmpl-theirs", "cmpl-theirs", "", false, 1.5, 2},
	} {
		t.Run(c.adapter, func(t *testing.T) {
			s := start(t, newEngine(t, at(c.adapter, url+"/")))
			if h := s.ready(); h.Engine != (worker.Engine{Name: "somebody", Version: c.version}) || h.Worker != c.adapter || !slices.Equal(h.Capabilities.Endpoints, both) {
				t.Errorf("hello %+v", h)
			}
			body := json.RawMessage(`{"max_tokens":8,"messages":[{"role":"user","content":"hi"}]}`)
			_, last := s.ask(&worker.Generate{ID: "r-1", Endpoint: "chat", Body: body, Traceparent: "00-1-2-00", Tracestate: "a=b"})
			done, ok := last.(*worker.Done)
			if !ok || *done.Text != "Grüße" || *done.FinishReason != "stop" || *done.Usage.PromptTokens != 3 || *done.Usage.CachedTokens != 0 || string(done.Logprobs) != `{"content":[1]}` {
				t.Fatalf("%+v", last)
			}
			if k := done.Task; k.Scope != record.ScopeHTTPCall || k.Source != record.SourceGateway || k.TextSHA256 != sha("Grüße") || k.TextBytes != 7 || k.WallNS <= 0 ||
				k.FirstIncrementNS != nil || k.Engine["prompt_ms"] != c.prompt || k.Engine["reasoning_bytes"] != 2 || k.EngineRequestID != c.chatID {
				t.Errorf("task %+v", k)
			}
			if got.header.Get("X-Request-ID") != c.sentID || got.header.Get("Traceparent") != "00-1-2-00" || got.header.Get("Tracestate") != "a=b" || got.header.Get("Authorization") != "" ||
				got.path != "/v1/chat/completions" || got.body["model"] != "there" || got.body["max_tokens"] != 8.0 || got.body["stream"] != nil || got.body["cache_prompt"] != c.cache {
				t.Errorf("forwarded %+v", got)
			}

			pieces, last := s.ask(prompt("r-2", true))
			done, ok = last.(*worker.Done)
			if !ok || *done.FinishReason != "length" || done.Text != nil || *done.Usage.CompletionTokens != 2 {
				t.Fatalf("%+v", last)
			}
			if len(pieces) != 3 || pieces[0].Text != "Gr" || string(pieces[0].Logprobs) != `{"tokens":["Gr"]}` || pieces[1].Text != "üße" || pieces[1].Logprobs != nil ||
				pieces[2].Text != "" || string(pieces[2].Logprobs) != `{"tokens":["end"]}` {
				t.Errorf("pieces %+v", pieces)
			}
			if k := done.Task; k.Scope != record.ScopeHTTPStream || k.TextSHA256 != sha("Grüße") || k.Increments != 2 || k.FirstIncrementNS == nil ||
				k.EngineRequestID != c.textID || k.Engine["prompt_ms"] != c.promptStreams {
				t.Errorf("task %+v", k)
			}
			if got.header.Get("Traceparent") != "" || fmt.Sprint(got.body["stream_options"]) != "map[include_usage:true]" {
				t.Errorf("forwarded %+v", got)
			}
			if err := s.end(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// Whatever the upstream server does, the request ends, the reason is told, and the
// next one is served.
func TestRefusals(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	url := server(t, func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) })
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, c := range []struct {
		adapter, name string
		answer        http.HandlerFunc
		status        int
		code, wanted  string
	}{
		{"openai", "capacity", refuse(429, `{"error":{"code":"busy","type":"rate_limit_error","message":"later"}}`), 429, "busy", "later"},
		{"openai", "capacity in words", refuse(503, `{"object":"error","message":"The request queue is full.","code":503}`), 503, "overloaded", "queue is full"},
		{"openai", "context in words", refuse(400, `{"error":{"code":null,"type":"BadRequestError","message":"maximum context length is 8 tokens"}}`), 400, "context_length_exceeded", "8 tokens"},
		{"openai", "the older form", refuse(400, `{"object":"error","message":"too long","type":"BadRequestError","code":400}`), 400, "400", "too long"},
		{"openai", "no form", refuse(503, `<html>`), 503, "upstream_error", "status 503"},
		{"openai", "a redirect", refuse(302, ``), 502, "upstream_error", "status 302"},
		{"openai", "499 without a cause", refuse(499, ``), 502, "upstream_error", "status 499"},
		{"openai", "a cut connection", cut, 502, "upstream_error", "cut the connection"},
		{"llama-server", "context", refuse(400, `{"error":{"code":400,"message":"too many","type":"exceed_context_size_error","n_ctx":8}}`), 400, "context_length_exceeded", "too many"},
		{"llama-server", "a picture", refuse(500, `{"error":{"code":500,"message":"image input is not supported - hint","type":"server_error"}}`), 400, "invalid_request", "image input"},
		{"llama-server", "loading", refuse(503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`), 503, "503", "Loading"},
	} {
		for _, stream := range []bool{false, true} {
			s := start(t, newEngine(t, at(c.adapter, url)))
			s.ready()
			answer.Store(&c.answer)
			_, last := s.ask(prompt("r", stream))
			e, ok := last.(*worker.Error)
			if !ok || e.Status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.wanted) || strings.Contains(e.Message, "127.0.0.1") || e.Task == nil {
				t.Errorf("%s, %s, stream %v: %+v", c.adapter, c.name, stream, last)
			}
			fine := text(`{"choices":[{"text":"fine","finish_reason":"stop"}]}`)
			answer.Store(&fine)
			if _, last := s.ask(prompt("r", false)); *last.(*worker.Done).Text != "fine" {
				t.Errorf("afterwards: %+v", last)
			}
			s.end()
		}
	}
}

// What is said inside status 200 counts as well.
func TestBrokenForms(t *testing.T) {
	const outside = `{"choices":[{"text":"half"}]}`
	for name, c := range map[string]struct {
		data, stream string // of a buffered answer and of one event
		status       int
		code, wanted string
	}{
		"an error":       {`{"error":{"code":400,"message":"no"}}`, `{"error":{"code":400,"message":"no"}}`, 400, "400", "no"},
		"a full queue":   {`{"error":{"code":503,"message":"queue is full"}}`, `{"error":{"code":503,"message":"queue is full"}}`, 503, "overloaded", "full"},
		"no JSON":        {`hello`, `hello`, 502, "upstream_error", "not of the interface"},
		"not UTF-8":      {"{\"choices\":[{\"text\":\"\xff\"}]}", "{\"choices\":[{\"text\":\"\xff\"}]}", 502, "upstream_error", "not UTF-8"},
		"another form":   {`{"choices":"none"}`, `{"choices":"none"}`, 502, "upstream_error", "not of the interface"},
		"far too much":   {`{"choices":[{"text":"` + strings.Repeat("x", maxBody) + `"}]}`, outside, 502, "upstream_error", "more than 4194304 bytes"},
		"an error later": {`{"error":{"message":"late"}}`, outside + "\n\ndata: " + `{"error":{"message":"late"}}`, 500, "upstream_error", "late"},
	} {
		for _, stream := range []bool{false, true} {
			if stream && name == "far too much" {
				continue // events are bounded where they are read
			}
			s := start(t, newEngine(t, at("openai", server(t, func(w http.ResponseWriter, r *http.Request) {
				if stream {
					io.WriteString(w, "data: "+c.stream+"\n\n")
				} else {
					io.WriteString(w, c.data)
				}
			}))))
			s.ready()
			_, last := s.ask(prompt("r", stream))
			if e, ok := last.(*worker.Error); !ok || e.Status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.wanted) {
				t.Errorf("%s, stream %v: %+v", name, stream, last)
			}
			s.end()
		}
	}
}

// A stream that breaks off has no finish reason, and none is made up; nor for a
// buffered answer that lacks one.
func TestBrokenOff(t *testing.T) {
	s := start(t, newEngine(t, at("openai", server(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: {\"choices\":[{\"text\":\"half\"}]}\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))))
	s.ready()
	pieces, last := s.ask(prompt("r", true))
	done, ok := last.(*worker.Done)
	if !ok || len(pieces) != 1 || done.FinishReason != nil || done.Task.TextSHA256 != sha("half") {
		t.Errorf("%+v %+v", pieces, last)
	}
	s.end()

	for _, answer := range []string{`{"choices":[{"text":"half","finish_reason":null}]}`, `{"choices":[]}`} {
		s := start(t, newEngine(t, at("openai", server(t, text("%s", answer)))))
		s.ready()
		if _, last := s.ask(prompt("r", false)); last.(*worker.Done).FinishReason != nil {
			t.Errorf("%s: %+v", answer, last)
		}
		s.end()
	}
}

// A cancel closes the connection, so the upstream server can stop; the end of the
// lane does too.
func TestCancel(t *testing.T) {
	for _, stream := range []bool{false, true} {
		arrived, gone := make(chan struct{}), make(chan struct{})
		s := start(t, newEngine(t, at("openai", server(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if stream {
				io.WriteString(w, "data: {\"choices\":[{\"text\":\"one\"}]}\n\n")
			}
			w.(http.Flusher).Flush()
			close(arrived)
			<-r.Context().Done()
			close(gone)
		}))))
		s.ready()
		ctx, cancel := context.WithCancel(t.Context())
		s.send(ctx, prompt("r", stream))
		if stream {
			if d, ok := s.next().(*worker.Delta); !ok || d.Text != "one" {
				t.Errorf("%+v", d)
			}
		}
		<-arrived
		cancel()
		last := s.next()
		if e, ok := last.(*worker.Error); !ok || e.Status != 499 || e.Task == nil {
			t.Errorf("stream %v: %+v", stream, last)
		} else if stream && (e.Task.Increments != 1 || e.Task.TextSHA256 != sha("one")) {
			t.Errorf("task %+v", e.Task)
		}
		<-gone
		s.end()
	}
}

// The key opens the server, and is in nothing that is told.
func TestKey(t *testing.T) {
	const key = "sk-very-secret"
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("UPSTREAM_KEY", key)
	var log strings.Builder
	for name, c := range map[string]Config{"file": {KeyFile: file}, "variable": {KeyVariable: "UPSTREAM_KEY"}} {
		c.Adapter, c.Model = "openai", "there"
		c.URL = server(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+key {
				t.Errorf("%s: Authorization %q", name, r.Header.Get("Authorization"))
			}
			w.WriteHeader(401)
			fmt.Fprintf(w, `{"error":{"message":"%s has no credit"}}`, key)
		})
		e, err := New(c, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, e)
		s.ready()
		if _, last := s.ask(prompt("r", false)); last.(*worker.Error).Message != "[key] has no credit" {
			t.Errorf("%s: %+v", name, last)
		}
		s.end()
	}
	if strings.Contains(log.String(), key) {
		t.Errorf("the log has the key:\n%s", &log)
	}
}

// The engine's tokenizer is offered where there is one.
func TestTokenize(t *testing.T) {
	answer := `{"tokens":[1,2]}`
	s := start(t, newEngine(t, at("llama-server", server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/tokenize" || string(body) != `{"add_special":false,"content":"hi","parse_special":true}` {
			t.Errorf("%s %s", r.URL.Path, body)
		}
		if answer == "" {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, answer)
	}))))
	if !s.ready().Capabilities.Tokenize {
		t.Error("it is not offered")
	}
	if _, last := s.ask(&worker.Tokenize{ID: "t", Text: "hi"}); fmt.Sprint(last.(*worker.Tokens).Tokens) != "[1 2]" {
		t.Errorf("%+v", last)
	}
	for _, answer = range []string{`{}`, `x`, ``} {
		if _, last := s.ask(&worker.Tokenize{ID: "t", Text: "hi"}); last.(*worker.Error).Status != 502 {
			t.Errorf("%q: %+v", answer, last)
		}
	}
	s.end()
}

func TestDoesNotStart(t *testing.T) {
	here := server(t, text(`{}`))
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"another model": {Config{Adapter: "openai", URL: here, Model: "elsewhere"}, `has no model "elsewhere"; it has ["there"]`},
		"no such page":  {at("openai", empty.URL), "answers /v1/models with status 404"},
		"not ready":     {at("llama-server", empty.URL), "answers /health with status 404"},
		"nobody there":  {at("openai", "http://127.0.0.1:1"), "does not answer"},
	} {
		s := start(t, newEngine(t, c.config))
		if f, ok := s.next().(*worker.Fatal); !ok || !strings.Contains(f.Message, c.want) {
			t.Errorf("%s: %+v", name, f)
		}
		if err := s.end(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   []string // none: it is right
	}{
		{at("openai", "http://127.0.0.1:9000"), nil},
		{Config{Adapter: "llama-server", Model: "m", Command: []string{"x", "--port={port}"}, PromptCache: true}, nil},
		{Config{Lanes: -1, PromptCache: true}, []string{`none named ""`, "model", "lanes", "either url or command"}},
		{Config{Adapter: "openai", Model: "m", URL: "http://host", Command: []string{"x"}}, []string{"either url or command"}},
		{Config{Adapter: "openai", Model: "m", URL: "host", PromptCache: true, Env: []string{"A=b"}, KeyFile: "/nonexistent", KeyVariable: "X"},
			[]string{"base URL", "prompt_cache", "env and cpus", "give one of them"}},
		{Config{Adapter: "openai", Model: "m", URL: "http://host", KeyFile: "/nonexistent"}, []string{"api_key_file"}},
		{Config{Adapter: "openai", Model: "m", URL: "http://host", KeyVariable: "NOT_SET_AT_ALL"}, []string{"NOT_SET_AT_ALL holds no key"}},
		{Config{Adapter: "openai", Model: "m", Command: []string{""}, Env: []string{"=x"}, KeyVariable: "X"},
			[]string{"program's name", "{port}", `"=x"`, "belong to url"}},
	} {
		_, err := New(c.config, slog.New(slog.DiscardHandler))
		if (err == nil) != (c.want == nil) {
			t.Errorf("%+v: %v", c.config, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v lacks %q", c.config, err, want)
			}
		}
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

// Whatever an engine says, what is passed on fits the protocol, and the account
// agrees with the text.
func FuzzTake(f *testing.F) {
	for _, data := range []string{
		`{"id":"chatcmpl-1","choices":[{"text":"a","logprobs":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":-1},"timings":{"a":1,"b":"c"}}`,
		`{"choices":[{"delta":{"content":"ü","reasoning_content":"r"}}]}`, `{"error":{"code":429}}`, `{"object":"error","code":"x"}`, `{"choices":[null]}`, `[]`, "\xff",
	} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) {
		for _, adapter := range Adapters {
			a := newAnswer(adapter, prompt("r", false))
			p, err := a.take([]byte(data))
			var refusal *refused
			switch {
			case errors.As(err, &refusal):
				if refusal.status < 400 || refusal.status > 599 || refusal.message == "" {
					t.Errorf("%+v", refusal)
				}
				continue
			case err != nil:
				t.Fatal(err)
			}
			line, err := worker.Encode(a.done())
			if err == nil {
				_, err = worker.DecodeReply(line[:len(line)-1])
			}
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if k := a.task(); k.TextSHA256 != sha(p.text) || k.TextBytes != int64(len(p.text)) {
				t.Errorf("%+v for %q", k, p.text)
			}
		}
	})
}
