package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"assay/rules/internal/openai"
	"assay/rules/internal/worker"
)

// maxBody bounds an answer and an event, in bytes: more would not fit a frame.
const maxBody = worker.MaxReply

const modelsPath = "/v1/models"

var paths = map[string]string{"chat": "/v1/chat/completions", "completions": "/v1/completions"}

// wire is the way to a server, for one goroutine at a time. Nothing stands between:
// no proxy of the environment, no redirect, no compression that was not asked for.
type wire struct {
	base string
	key  string // "" for none
	// keep is how long after an answer its connection may be used again; 0 means a
	// connection for each request.
	keep time.Duration
	idle *conn // nil for none
}

func newWire(base, key string) wire {
	return wire{base: strings.TrimSuffix(base, "/"), key: key}
}

// do sends a request once. The answer's body is a *body; the caller closes it.
func (w *wire) do(req *http.Request) (*http.Response, error) {
	if w.key != "" {
		req.Header.Set("Authorization", "Bearer "+w.key)
	}
	req.Close = w.keep == 0
	c, err := w.connection(req)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(req.Context(), func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	resp, err := c.exchange(req)
	if err != nil {
		stop()
		return nil, errors.Join(err, c.Close())
	}
	resp.Body = &body{Reader: resp.Body, wire: w, conn: c, keep: !req.Close && !resp.Close, stop: stop}
	return resp, nil
}

// connection is the one that was kept, or a new one.
func (w *wire) connection(req *http.Request) (*conn, error) {
	if c := w.idle; c != nil {
		w.idle = nil
		if c.usable() {
			return c, nil
		}
		c.Close()
	}
	return dial(req.Context(), req.URL)
}

// hangUp closes the connection that was kept.
func (w *wire) hangUp() {
	if w.idle != nil {
		w.idle.Close()
		w.idle = nil
	}
}

func (w *wire) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+path, nil)
	if err != nil {
		return nil, err
	}
	return w.do(req)
}

// post sends JSON; headers without a name or a value are left out.
func (w *wire) post(ctx context.Context, path string, header map[string]string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		if name != "" && value != "" {
			req.Header.Set(name, value)
		}
	}
	return w.do(req)
}

// redact takes the key out of a text of the server's, which may quote it.
func (w *wire) redact(text string) string {
	if w.key == "" {
		return text
	}
	return strings.ReplaceAll(text, w.key, "[key]")
}

// read reads a whole answer, within the bound.
func read(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(data) > maxBody {
		return nil, broken("the upstream server's answer has more than %d bytes", maxBody)
	}
	return data, err
}

// identify asks whether the engine is ready, whether it has the model, and what it
// is. Its errors do not name the address.
func (l *lane) identify(ctx context.Context) (worker.Engine, error) {
	if l.adapter.Ready != modelsPath { // which comes anyway
		if err := l.fetch(ctx, l.adapter.Ready, nil); err != nil {
			return worker.Engine{}, err
		}
	}
	var list openai.ModelList
	if err := l.fetch(ctx, modelsPath, &list); err != nil {
		return worker.Engine{}, err
	}
	i := slices.IndexFunc(list.Data, func(m openai.Model) bool { return m.ID == l.config.Model })
	if i < 0 {
		names := make([]string, len(list.Data))
		for i, m := range list.Data {
			names[i] = m.ID
		}
		return worker.Engine{}, fmt.Errorf("the upstream server has no model %q; it has %q", l.config.Model, names)
	}
	// Who owns the model is all that the interface says about the engine.
	engine := worker.Engine{Name: list.Data[i].OwnedBy}
	if engine.Name == "" {
		engine.Name = "unknown"
	}
	if build := l.adapter.Build; build.Path != "" {
		var members map[string]any
		if err := l.fetch(ctx, build.Path, &members); err != nil {
			return worker.Engine{}, err
		}
		engine.Version, _ = members[build.Name].(string)
	}
	return engine, nil
}

// fetch reads the JSON at a path; into may be nil.
func (l *lane) fetch(ctx context.Context, path string, into any) error {
	resp, err := l.get(ctx, path)
	if err != nil {
		l.log.Error("upstream", "path", path, "err", err)
		return errors.New("the upstream server does not answer; is it running, and is the URL right?")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the upstream server answers %s with status %d", path, resp.StatusCode)
	}
	data, err := read(resp.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("the upstream server's answer to %s: %w", path, err)
	}
	return nil
}
