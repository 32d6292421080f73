package gateway

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"assay/rules/internal/openai"
	"assay/rules/internal/worker"
)

// tokenize answers POST /tokenize, {"content": text}, with {"tokens": [ids]}: the
// engine's own ids, without special tokens around the text. "model" may be left out
// where there is only one. It is no inference and leaves no record.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	fail := func(status int, code, message string) {
		respond(w, status, openai.ErrorBody{Error: &openai.Error{Type: "invalid_request_error", Code: code, Message: message}})
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		fail(http.StatusMethodNotAllowed, "method_not_allowed", "/tokenize takes POST")
		return
	}
	if !s.requests.enter() {
		fail(http.StatusServiceUnavailable, "stopping", errStopping.Error())
		return
	}
	defer s.requests.leave()
	var body struct {
		Content *string `json:"content"`
		Model   string  `json:"model"`
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes))
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		fail(http.StatusRequestTimeout, "timeout", "the body did not arrive in time")
		return
	case err != nil:
		fail(http.StatusBadRequest, "invalid_request", err.Error())
		return
	case body.Content == nil:
		fail(http.StatusBadRequest, "invalid_request", `a text is needed: {"content": "…"}`)
		return
	}
	model := s.find(body.Model)
	if body.Model == "" && len(s.models) == 1 {
		model = s.models[0]
	}
	if model == nil {
		fail(http.StatusNotFound, "model_not_found", fmt.Sprintf("there is no model %q here", body.Model))
		return
	}
	lease, _, err := model.pool.Acquire(r.Context())
	if errors.Is(err, worker.ErrBusy) || errors.Is(err, worker.ErrWaited) {
		w.Header().Set("Retry-After", "1")
		fail(http.StatusTooManyRequests, "capacity_exceeded", "all lanes are busy; try again")
		return
	} else if err != nil {
		fail(http.StatusServiceUnavailable, "not_ready", err.Error())
		return
	}
	defer lease.Close()
	request := &worker.Tokenize{ID: "tokenize-" + rand.Text(), Text: *body.Content}
	if err := lease.Tokenize(r.Context(), request); err != nil {
		status := http.StatusBadGateway
		if errors.Is(err, worker.ErrNoTokenizer) {
			status = http.StatusNotImplemented
		}
		fail(status, "tokenize_failed", err.Error())
		return
	}
	switch reply, err := lease.Next(r.Context()); reply := reply.(type) {
	case *worker.Tokens:
		respond(w, http.StatusOK, map[string]any{"tokens": reply.Tokens})
	case *worker.Error:
		fail(reply.Status, reply.Code, reply.Message)
	default:
		fail(http.StatusBadGateway, "worker_failed", err.Error())
	}
}
