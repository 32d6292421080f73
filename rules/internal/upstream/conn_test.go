package upstream

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"assay/rules/internal/worker"
)

const (
	fine      = `{"choices":[{"text":"fine","finish_reason":"stop"}]}`
	fineEvent = "data: " + fine + "\n\n"
)

// A connection takes the next request if the last answer came to its end in order,
// and the engine is one that allows it.
func TestConnections(t *testing.T) {
	var connections []string
	var answer http.HandlerFunc
	serve := server(t, func(w http.ResponseWriter, r *http.Request) {
		connections = append(connections, r.RemoteAddr)
		io.Copy(io.Discard, r.Body) // so that the server notices a client that leaves
		answer(w, r)
	})
	events := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, text) }
	}
	endless := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, text)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	for name, c := range map[string]struct {
		adapter string
		stream  bool
		answer  http.HandlerFunc
		kept    bool
	}{
		"a whole answer":            {"openai", false, text("%s", fine), true},
		"a stream":                  {"openai", true, events(fineEvent + "data: [DONE]\n\n"), true},
		"a stream without its mark": {"openai", true, events(fineEvent), true},
		"a refusal":                 {"openai", false, refuse(429, "{}"), true},
		"an engine that does not":   {"llama-server", false, text("%s", fine), false},
		"an answer that says so": {"openai", false, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			io.WriteString(w, fine)
		}, false},
		"an answer that is cut": {"openai", true, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, fineEvent)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, false},
		"a stream with an error":      {"openai", true, endless(fineEvent + "data: {\"error\":{\"code\":500}}\n\n"), false},
		"more than the answer":        {"openai", true, events(fineEvent + "data: [DONE]\n\n" + fineEvent), true},
		"a stream that does not end":  {"openai", true, endless(fineEvent + "data: [DONE]\n\n"), false},
		"a request that is abandoned": {"openai", true, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			connections = nil
			s := start(t, newEngine(t, at(c.adapter, serve)))
			s.ready()
			if answer = c.answer; answer != nil {
				s.ask(prompt("r", c.stream))
			} else {
				arrived := make(chan struct{})
				answer = func(w http.ResponseWriter, r *http.Request) { close(arrived); <-r.Context().Done() }
				ctx, cancel := context.WithCancel(t.Context())
				s.send(ctx, prompt("r", c.stream))
				<-arrived
				cancel()
				s.next()
			}
			answer = text("%s", fine)
			if _, last := s.ask(prompt("r", false)); *last.(*worker.Done).Text != "fine" {
				t.Errorf("afterwards: %+v", last)
			}
			if len(connections) != 2 || (connections[0] == connections[1]) != c.kept {
				t.Errorf("connections %q, kept should be %v", connections, c.kept)
			}
			s.end()
		})
	}
}

// script is a server that answers each request with the next of the texts, and
// hangs up after the last.
func script(t *testing.T, reads bool, answers ...string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, answer := range answers {
			if reads {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, req.Body)
			}
			io.WriteString(conn, answer)
		}
	}()
	return "http://" + l.Addr().String()
}

func ask(t *testing.T, url string, body string) (string, error) {
	t.Helper()
	w := newWire(url, "")
	w.keep = time.Minute
	defer w.hangUp()
	resp, err := w.post(t.Context(), "/", nil, []byte(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := read(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(data)), err
}

func TestAnswersOnTheWire(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
	for name, c := range map[string]struct {
		answer, body string
		reads        bool
		want         string // begins with "error" if it is one
	}{
		"interim answers":  {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ok, "{}", true, "200 x"},
		"no end to them":   {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100), "{}", true, "error the server does not come"},
		"a huge header":    {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", "{}", true, "error the answer's header is too large"},
		"until the end":    {"HTTP/1.0 200 OK\r\n\r\nall of it", "{}", true, "200 all of it"},
		"no HTTP":          {"SSH-2.0-x\r\n", "{}", true, "error malformed"},
		"nothing":          {"", "{}", true, "error unexpected EOF"},
		"an early refusal": {"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno", strings.Repeat("x", 32), false, "413 no"},
	} {
		got, err := ask(t, script(t, c.reads, c.answer), c.body)
		if err != nil {
			got = "error " + err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %.200s, want %q", name, got, c.want)
		}
	}
}

// A connection that the server has closed, or on which it says something that is
// no answer, is not used again.
func TestStaleConnections(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
	for name, more := range map[string]string{"closed": "", "more": "HTTP/1.1 408 Request Timeout\r\n\r\n"} {
		w := newWire(script(t, true, ok+more), "")
		w.keep = time.Minute
		resp, err := w.post(t.Context(), "/", nil, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if data, err := read(resp.Body); err != nil || string(data) != "x" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		resp.Body.Close()
		if w.idle == nil {
			t.Fatalf("%s: it was not kept", name)
		}
		for w.idle.usable() { // until what the server did is here
		}
		w.hangUp()
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " ", r.RemoteAddr) }))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file) // which is read once in a process
	w := newWire(s.URL, "")
	w.keep = time.Minute
	defer w.hangUp()
	var seen []string
	for range 2 {
		resp, err := w.get(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		data, err := read(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		seen = append(seen, string(data))
	}
	if !strings.HasPrefix(seen[0], "HTTP/1.1 ") || seen[0] != seen[1] {
		t.Errorf("answers %q", seen)
	}
}

// Chunks read by their form are read as they would be one by one.
func FuzzForm(f *testing.F) {
	for _, second := range []string{
		`{"id":"a","choices":[{"delta":{"content":"b"},"finish_reason":null}]}`, `{"id":"a","choices":[{"delta":{"content":"\"\ud83d\n"},"finish_reason":null}]}`,
		`{"id":"a","choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}`, `{"id":"a","choices":[{"delta":{"content":null},"finish_reason":null}]}`,
		`{"id":"a","choices":[{"delta":{"content":"b","content":"c"},"finish_reason":null}]}`, `{"id":"b","choices":[{"delta":{"content":"a"},"finish_reason":null}]}`,
	} {
		f.Add(`{"id":"a","choices":[{"delta":{"content":"x"},"finish_reason":null}]}`, second)
		f.Add(`{"id":"a","choices":[{"delta":{"content":"a"},"finish_reason":null}]}`, second)
	}
	f.Add(`{"choices":[{"text":"x"}]}`, `{"choices":[{"text":"y","finish_reason":"z"}]}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, adapter := range Adapters {
			short, long := newAnswer(adapter, prompt("r", true)), newAnswer(adapter, prompt("r", true))
			long.form.learned = maxForms // it learns none
			for _, chunk := range []string{first, second, second, first} {
				p, err := short.take([]byte(chunk))
				q, wrong := long.take([]byte(chunk))
				if fmt.Sprint(err) != fmt.Sprint(wrong) || p.text != q.text || string(p.logprobs) != string(q.logprobs) {
					t.Fatalf("%s: %+v, %v; by its form %+v, %v", chunk, q, wrong, p, err)
				}
			}
			short.first, long.first, short.began, long.began = nil, nil, time.Time{}, time.Time{}
			if diff := cmp.Diff(long.done(), short.done()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}
