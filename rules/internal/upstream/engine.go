// Package upstream serves requests with an engine that has an HTTP interface of
// its own: one that runs already, or one that is started here. Behind the gateway
// such an engine gets request ids, terminal records and a closed ledger. What an
// engine does in its own way, an Adapter says.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"assay/rules/internal/worker"
)

// exitNotice is how long the end of a connection may precede the end of the
// engine's process, when both are one event.
const exitNotice = time.Second

// Engine is what all lanes of a Config share: the engine's process, if it is
// started here.
type Engine struct {
	config  Config
	adapter Adapter
	log     *slog.Logger
	there   wire // to a server that runs already, or without an address

	mu      sync.Mutex
	process *process // the latest that was started
}

// New checks the configuration and reports all that is wrong. Nothing is started
// or asked before a handler runs.
func New(config Config, log *slog.Logger) (*Engine, error) {
	key, err := config.key()
	if err := errors.Join(config.check(), err); err != nil {
		return nil, err
	}
	adapter, _ := Find(config.Adapter)
	return &Engine{config: config, adapter: adapter, log: log, there: newWire(config.URL, key)}, nil
}

// Handler returns the worker of a lane; every lane runs it for itself. An engine
// that is started here runs while one of its handlers does; when it ends, they all
// end with the reason, and the first that is run again starts it again.
func (e *Engine) Handler() worker.Handler { return e.serve }

func (e *Engine) serve(ctx context.Context, calls <-chan worker.Call, say func(worker.Reply) error) error {
	began := time.Now()
	l, err := e.open(ctx, say)
	if err != nil {
		return err
	}
	defer l.close()
	name, err := l.identify(ctx)
	if err != nil {
		return errors.Join(say(&worker.Fatal{Message: err.Error()}), err)
	}
	if err := say(&worker.Hello{Protocol: worker.Version, Worker: e.adapter.Name, Engine: name, Capabilities: e.adapter.Capabilities}); err != nil {
		return err
	}
	if err := say(&worker.Ready{LoadMS: float64(time.Since(began)) / float64(time.Millisecond)}); err != nil {
		return err
	}
	tired := time.NewTimer(l.keep)
	defer tired.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.gone():
			return l.process.err
		case <-tired.C:
			l.hangUp()
		case c := <-calls:
			if err := l.answer(c); err != nil {
				return err
			}
			tired.Reset(l.keep)
		}
	}
}

// lane is one handler's way to the engine.
type lane struct {
	*Engine
	wire
	process *process // nil if the engine is not ours
	say     func(worker.Reply) error
}

// open returns a lane to an engine that runs.
func (e *Engine) open(ctx context.Context, say func(worker.Reply) error) (*lane, error) {
	l := &lane{Engine: e, wire: e.there, say: say}
	if len(e.config.Command) > 0 {
		p, err := e.join(ctx)
		if err != nil {
			return nil, err
		}
		l.process, l.wire = p, p.wire
	}
	l.keep = e.adapter.KeepAlive
	return l, nil
}

func (l *lane) close() {
	l.hangUp()
	if l.process != nil {
		l.leave(l.process)
	}
}

// gone is closed when the engine has ended, which of a foreign one nobody knows.
func (l *lane) gone() <-chan struct{} {
	if l.process == nil {
		return nil
	}
	return l.process.ended
}

// died says how the engine ended, if that is why a connection broke.
func (l *lane) died() error {
	if l.process == nil {
		return nil
	}
	select {
	case <-l.process.ended:
		return l.process.err
	case <-time.After(exitNotice):
		return nil
	}
}

// answer serves one call. Its error ends the handler.
func (l *lane) answer(c worker.Call) error {
	switch r := c.Request.(type) {
	case *worker.Generate:
		return l.forward(c.Context, r)
	case *worker.Tokenize:
		return l.tokenize(c.Context, r)
	}
	return fmt.Errorf("unexpected %T", c.Request)
}
