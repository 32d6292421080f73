package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// standIn is not trtmc-server: it is written from the same description as the
// adapter, and strict where that says so. What passes here is consistent with the
// description, no more.
func standIn(t *testing.T, refusal *func(http.ResponseWriter)) string {
	calls := 0
	fail := func(w http.ResponseWriter, status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":"refused","type":"invalid_request_error","code":%q}}`, code)
	}
	infer := func(member, choice string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			calls++
			w.Header().Set("X-Request-ID", fmt.Sprintf("trtmc-5f3a-%d", calls))
			var body map[string]any
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			allowed := []string{"model", member, "max_tokens", "temperature", "top_p", "seed", "n", "stream"}
			if member == "messages" {
				allowed = append(allowed, "max_completion_tokens")
			}
			for name := range body {
				if !slices.Contains(allowed, name) {
					fail(w, 400, "unsupported_parameter")
					return
				}
			}
			switch {
			case *refusal != nil:
				(*refusal)(w)
			case body["model"] != "there":
				fail(w, 404, "model_not_found")
			case body["stream"] == true:
				fail(w, 400, "unsupported_parameter")
			default:
				fmt.Fprintf(w, `{"choices":[{%s,"finish_reason":null}]}`, choice)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/ready", text(`{}`))
	mux.HandleFunc("GET /v1/models", text(`{"object":"list","data":[{"id":"there","object":"model"}]}`))
	mux.HandleFunc("POST /v1/completions", infer("prompt", `"text":"fine"`))
	mux.HandleFunc("POST /v1/chat/completions", infer("messages", `"message":{"role":"assistant","content":"fine"}`))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// The adapter sends nothing that the description does not allow, and reads what it
// promises: whole answers, without tokens, timing and finish reason, under the
// engine's own id.
func TestTrtmcStandIn(t *testing.T) {
	var refusal func(http.ResponseWriter)
	s := start(t, newEngine(t, at("trtmc-server", standIn(t, &refusal))))
	if h := s.ready(); !h.Capabilities.Buffered || h.Capabilities.Cancel || h.Engine.Name != "unknown" {
		t.Errorf("hello %+v", h)
	}
	for i, body := range []string{`{"prompt":"x","max_tokens":4,"temperature":0,"top_p":1,"seed":7}`, `{"messages":[{"role":"user","content":"x"}],"max_tokens":4}`} {
		_, last := s.ask(&worker.Generate{ID: "r", Endpoint: []string{"completions", "chat"}[i], Body: json.RawMessage(body), Traceparent: "00-1-2-00"})
		done, ok := last.(*worker.Done)
		if !ok || *done.Text != "fine" || *done.FinishReason != unreported || done.Usage != (worker.Usage{}) {
			t.Fatalf("%+v", last)
		}
		if k := done.Task; k.EngineRequestID != fmt.Sprintf("trtmc-5f3a-%d", i+1) || k.Scope != record.ScopeHTTPCall || len(k.Engine) != 0 {
			t.Errorf("task %+v", k)
		}
	}
	for _, c := range []struct {
		status int
		code   string
	}{{429, "queue_full"}, {503, "server_draining"}, {413, "content_too_large"}} {
		refusal = func(w http.ResponseWriter) {
			w.WriteHeader(c.status)
			fmt.Fprintf(w, `{"error":{"message":"refused","code":%q}}`, c.code)
		}
		_, last := s.ask(prompt("r", false))
		if e, ok := last.(*worker.Error); !ok || e.Status != c.status || e.Code != c.code || e.Task.EngineRequestID == "" {
			t.Errorf("%+v", last)
		}
	}
	refusal = nil
	// An answer that is none has no end either.
	refusal = func(w http.ResponseWriter) { io.WriteString(w, `{"choices":[]}`) }
	if _, last := s.ask(prompt("r", false)); last.(*worker.Done).FinishReason != nil {
		t.Errorf("%+v", last)
	}
	refusal = nil
	// A member that it does not know is refused by it, and said to be.
	_, last := s.ask(&worker.Generate{ID: "r", Endpoint: "completions", Body: json.RawMessage(`{"prompt":"x","top_k":3}`)})
	if e, ok := last.(*worker.Error); !ok || e.Status != 400 || e.Code != "unsupported_parameter" {
		t.Errorf("%+v", last)
	}
	s.end()
}
