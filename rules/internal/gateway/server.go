// Package gateway is the native server: one HTTP server in front of engines, which
// are workers that hold a model in their own process or upstream servers. It owns
// request ids, lanes, limits, the relay of streams, cancellation, and the terminal
// record of every request.
//
// A lane serves one request at a time. A request that finds no idle lane is refused
// at once, unless its model has a queue. Nothing is retried.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"assay/rules/internal/openai"
	"assay/rules/internal/recordlog"
)

// maxHeaderBytes bounds a request's header.
const maxHeaderBytes = 64 << 10

// errStopping is what requests that outlast the drain are told.
var errStopping = errors.New("the server is stopping")

// Server is a native server. It runs once.
type Server struct {
	cfg     Config
	models  []*model
	keys    keys
	records *recordlog.Log
	clock   clock
	ids     ids
	metrics *metrics
	created time.Time

	connections connections
	// stopping ends when the drain is over and what is left must end.
	stopping context.Context
	stop     context.CancelFunc
	requests gate
}

// New checks the configuration and opens the record file. Run starts the rest.
func New(cfg Config) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	models, err := newModels(cfg)
	if err != nil {
		return nil, err
	}
	keys, err := readKeys(cfg.APIKeysFile)
	if err != nil {
		return nil, err
	}
	records, err := recordlog.Open(recordlog.Options{
		Path: cfg.Records.File, MaxBytes: cfg.Records.MaxBytes, Sync: cfg.Records.Sync, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, models: models, keys: keys, records: records, clock: newClock(), created: time.Now()}
	s.metrics = newMetrics(s)
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Run serves until ctx ends. Then it accepts nothing new, gives the requests in
// flight the drain timeout, shuts the workers down and makes the records
// durable. listening, if not nil, is called once with the address when the port
// is open; the server is ready only later, which /health/ready tells.
//
// The error says why no worker of a model could be started, what stopped the
// server, or what went wrong with the records; after an orderly end it is nil.
func (s *Server) Run(ctx context.Context, listening func(net.Addr)) error {
	defer s.stop()
	listener, err := s.listen(ctx)
	if err != nil {
		return errors.Join(err, s.records.Close())
	}
	if listening != nil {
		listening(listener.Addr())
	}

	// The workers live until the last request has ended, not until ctx does.
	poolCtx, endPools := context.WithCancel(context.WithoutCancel(ctx))
	poolsDone := make(chan error, 1)
	go func() { poolsDone <- s.each(func(m *model) error { return m.pool.Run(poolCtx) }) }()

	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: seconds(s.cfg.HeaderTimeout),
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
		// Idle connections stay open: to close one just when the client uses it
		// again would be a failed request that nobody caused.
	}
	serveDone := make(chan error, 1)
	go func() { serveDone <- server.Serve(listener) }()
	startDone := make(chan error, 1)
	go func() { startDone <- s.each(func(m *model) error { return m.pool.WaitReady(poolCtx) }) }()

	var cause error
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			waiting = false
		case cause = <-serveDone:
			waiting = false
		case cause = <-startDone:
			waiting = cause == nil // only a start that failed ends the server
		}
	}

	s.drain(server)
	endPools()
	return errors.Join(cause, <-poolsDone, s.records.Close())
}

// drain returns when no request is in flight and none can come.
func (s *Server) drain(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), seconds(s.cfg.DrainTimeout))
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		s.cfg.Log.Warn("requests outlast the drain and are ended", "after", seconds(s.cfg.DrainTimeout))
		s.stop()
	}
	s.requests.shut()
	server.Close()
}

// gate counts the requests in flight and can be shut.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside.Add(1)
	return true
}

func (g *gate) leave() { g.inside.Done() }

// shut lets nobody in any more and waits until all have left.
func (g *gate) shut() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/chat/completions", s.infer(openai.Chat))
	mux.HandleFunc("/v1/completions", s.infer(openai.Completions))
	mux.HandleFunc("/tokenize", s.locked(s.tokenize))
	mux.HandleFunc("/v1/models", s.locked(get(s.listModels)))
	mux.HandleFunc("/v1/models/{name...}", s.locked(get(s.showModel)))
	mux.HandleFunc("/metrics", s.locked(get(s.metrics.handler.ServeHTTP)))
	mux.HandleFunc("/health/live", get(s.live))
	mux.HandleFunc("/health/ready", get(s.ready))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		mark(w, r)
		respond(w, http.StatusNotFound, openai.ErrorBody{Error: openai.Invalid("", "there is no "+r.URL.Path+" here")})
	})
	timeout, grace := seconds(s.cfg.RequestTimeout), seconds(s.cfg.CancelGrace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that does not send or does not read must not hold a lane, or the
		// end of the server, for ever. net/http reads a body also to get past it
		// before it answers. The grace on top leaves time to tell a slow client that
		// its request timed out. An error here would mean a connection without
		// deadlines, and TCP has them.
		conn, now := http.NewResponseController(w), time.Now()
		_ = conn.SetReadDeadline(now.Add(timeout))
		_ = conn.SetWriteDeadline(now.Add(timeout + grace))
		defer context.AfterFunc(s.stopping, func() {
			now := time.Now()
			_ = conn.SetReadDeadline(now)
			_ = conn.SetWriteDeadline(now.Add(grace))
		})()
		mux.ServeHTTP(w, r)
	})
}

// get answers all other methods with 405.
func get(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			respond(w, http.StatusMethodNotAllowed, openai.ErrorBody{Error: openai.Invalid("", r.URL.Path+" takes GET")})
			return
		}
		h(w, r)
	}
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, map[string]bool{"live": true})
}

// respond writes a whole JSON body and sends it off.
func respond(w http.ResponseWriter, status int, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if _, err := w.Write(data); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
