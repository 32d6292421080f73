package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"assay/rules/internal/openai"
	"assay/rules/internal/worker"
)

// model is one thing that is served, with its lanes.
type model struct {
	Model
	pool *worker.Pool
}

// name is the model's first name, by which metrics call it.
func (m *model) name() string { return m.Names[0] }

func newModels(cfg Config) ([]*model, error) {
	var models []*model
	var bad faults
	for i, m := range cfg.Models {
		lanes, err := m.lanes(cfg.Log)
		if err != nil {
			bad.add("models[%d].upstream: %w", i, err)
			continue
		}
		models = append(models, &model{Model: m, pool: worker.NewPool(lanes, worker.Options{
			StartupTimeout: seconds(cfg.StartupTimeout),
			CancelGrace:    seconds(cfg.CancelGrace),
			Queue:          m.Queue.Length,
			QueueWait:      seconds(m.Queue.WaitSeconds),
			Log:            cfg.Log.With("model", m.Names[0]),
		})})
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("gateway configuration: %w", err)
	}
	return models, nil
}

// find returns the model of a name.
func (s *Server) find(name string) *model {
	for _, m := range s.models {
		if slices.Contains(m.Names, name) {
			return m
		}
	}
	return nil
}

// each runs a step for all models side by side.
func (s *Server) each(step func(*model) error) error {
	errs := make([]error, len(s.models))
	var wg sync.WaitGroup
	for i, m := range s.models {
		wg.Go(func() {
			if err := step(m); err != nil {
				errs[i] = fmt.Errorf("model %s: %w", m.name(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// suits says why a request is not one for the model, and is nil if it is.
func (m *model) suits(endpoint openai.Endpoint, r *openai.Request) *openai.Error {
	if !slices.Contains(m.Endpoints, endpoint) {
		return openai.Invalid("model", fmt.Sprintf("%q does not offer %s", r.Model, endpoint))
	}
	hello := m.pool.Hello()
	if hello == nil {
		return nil // no worker yet: the request gets no lane
	}
	can := hello.Capabilities
	for _, part := range r.Parts {
		if !slices.Contains(can.Content, part.Kind) {
			return openai.Invalid(part.Param, fmt.Sprintf("%q takes text%s and no content part of type %q", r.Model, list(can.Content), part.Kind))
		}
	}
	if r.Logprobs && !can.Logprobs {
		return openai.Invalid("logprobs", fmt.Sprintf("the engine of %q gives no log-probabilities", r.Model))
	}
	return nil
}

func list(kinds []string) string {
	text := ""
	for _, kind := range kinds {
		text += ", " + kind
	}
	return text
}

func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) {
	list := openai.ModelList{Object: "list"}
	for _, m := range s.models {
		for _, name := range m.Names {
			list.Data = append(list.Data, s.entry(name))
		}
	}
	respond(w, http.StatusOK, list)
}

func (s *Server) showModel(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if s.find(name) == nil {
		respond(w, http.StatusNotFound, openai.ErrorBody{Error: unknownModel(name)})
		return
	}
	respond(w, http.StatusOK, s.entry(name))
}

func (s *Server) entry(name string) openai.Model {
	return openai.Model{ID: name, Object: "model", Created: s.created.Unix(), OwnedBy: "assay"}
}

func unknownModel(name string) *openai.Error {
	e := openai.Invalid("model", fmt.Sprintf("there is no model %q here", name))
	e.Code = "model_not_found"
	return e
}

// Readiness is the body of /health/ready. The status is 200 while every model has a
// lane in service and records are written, and 503 otherwise; lanes that are out are
// listed either way.
type Readiness struct {
	Ready bool   `json:"ready"`
	Lanes []Lane `json:"lanes"`
	Error string `json:"error,omitempty"` // why records are not written
}

// Lane is what one lane of a model is doing.
type Lane struct {
	Model string `json:"model"`
	worker.LaneStatus
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	answer := Readiness{Ready: true}
	for _, m := range s.models {
		lanes := m.pool.Lanes()
		answer.Ready = answer.Ready && slices.ContainsFunc(lanes, func(l worker.LaneStatus) bool {
			return l.State == worker.Idle || l.State == worker.Busy
		})
		for _, lane := range lanes {
			answer.Lanes = append(answer.Lanes, Lane{m.name(), lane})
		}
	}
	if s.records.Failure() != nil {
		answer.Ready, answer.Error = false, "records cannot be written; the log says why" // it names a path
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	respond(w, status, answer)
}
