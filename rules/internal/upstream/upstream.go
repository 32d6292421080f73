// Package upstream is a worker without a model: it speaks the worker protocol and
// forwards each request to a server that runs already and speaks OpenAI's HTTP
// interface. Behind the gateway such a server gets request ids, terminal records
// and a closed ledger. What it loaded, nobody here can check.
package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"assay/rules/internal/openai"
	"assay/rules/internal/worker"
)

// Upstream is the server that requests are forwarded to.
type Upstream struct {
	URL   string // base, such as http://127.0.0.1:9000
	Model string // what the model is called there
}

// CheckURL says what is wrong with a base URL.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it must be the base URL of a server, such as http://127.0.0.1:9000")
	case u.User != nil:
		return errors.New("it must not hold credentials")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("it must not have a query or a fragment")
	case strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1"):
		return errors.New("leave out /v1: it is the server's base URL")
	}
	return nil
}

// Run serves the gateway's requests until stdin ends, a shutdown frame comes or
// ctx ends. The log may name the upstream server; what the gateway is told does
// not.
func Run(ctx context.Context, to Upstream, stdin io.Reader, stdout io.Writer, log *slog.Logger) error {
	if err := CheckURL(to.URL); err != nil {
		return fmt.Errorf("URL: %w", err)
	}
	w := &forwarder{
		to: to, base: strings.TrimSuffix(to.URL, "/"), out: stdout, log: log,
		http: &http.Client{
			// A connection for each request, as none is ever sent twice; the scope of
			// the task says that it is inside.
			Transport:     &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	return worker.Serve(ctx, stdin, w.serve)
}

type forwarder struct {
	to   Upstream
	base string
	out  io.Writer
	log  *slog.Logger
	http *http.Client
}

func (w *forwarder) serve(ctx context.Context, calls <-chan worker.Call) error {
	began := time.Now()
	engine, err := w.identify(ctx)
	if err != nil {
		return errors.Join(err, w.say(&worker.Fatal{Message: err.Error()}))
	}
	err = w.say(&worker.Hello{
		Protocol: worker.Version, Worker: "upstream", Engine: engine,
		Capabilities: worker.Capabilities{Endpoints: []string{"chat", "completions"}, Cancel: true},
	})
	if err == nil {
		err = w.say(&worker.Ready{LoadMS: float64(time.Since(began)) / float64(time.Millisecond)})
	}
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case r := <-calls:
			err = w.forward(r)
		}
	}
	return err
}

// identify asks the upstream server for its models. Who owns the model is all
// that the interface says about the engine; it gives no version.
func (w *forwarder) identify(ctx context.Context) (worker.Engine, error) {
	var list openai.ModelList
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"/v1/models", nil)
	if err != nil {
		return worker.Engine{}, err
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.log.Error("models", "err", err)
		return worker.Engine{}, errors.New("the upstream server does not answer; is it running, and is the URL right?")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return worker.Engine{}, fmt.Errorf("the upstream server answers /v1/models with status %d", resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&list); err != nil {
		return worker.Engine{}, fmt.Errorf("the upstream server's list of models: %w", err)
	}
	i := slices.IndexFunc(list.Data, func(m openai.Model) bool { return m.ID == w.to.Model })
	if i < 0 {
		names := make([]string, len(list.Data))
		for i, m := range list.Data {
			names[i] = m.ID
		}
		return worker.Engine{}, fmt.Errorf("the upstream server has no model %q; it has %q", w.to.Model, names)
	}
	name := list.Data[i].OwnedBy
	if name == "" {
		name = "unknown"
	}
	return worker.Engine{Name: name}, nil
}

func (w *forwarder) say(frame any) error {
	line, err := worker.Encode(frame)
	if err != nil {
		return err
	}
	if _, err := w.out.Write(line); err != nil {
		return fmt.Errorf("to the gateway: %w", err)
	}
	return nil
}
