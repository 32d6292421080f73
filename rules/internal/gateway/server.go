// Package gateway is the native server: one HTTP server in front of workers
// that hold the model in-process. It owns request ids, lanes, limits, the relay
// of streams, cancellation, and the terminal record of every request.
//
// A lane is one worker and serves one request at a time. There is no queue: a
// request that finds no idle lane is refused at once. Nothing is retried.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"assay/rules/internal/openai"
	"assay/rules/internal/worker"
)

// headerTimeout is how long a client may take for a request's header.
const headerTimeout = 10 * time.Second

// errStopping is the cause of the end of requests that outlast the drain.
var errStopping = errors.New("the server is stopping")

// Server is a native server. It runs once.
type Server struct {
	cfg     Config
	pool    *worker.Pool
	journal *journal
	created time.Time

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
	j, err := openJournal(cfg.Records)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, journal: j, created: time.Now()}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.pool = worker.NewPool(cfg.lanes(), worker.Options{
		StartupTimeout: seconds(cfg.StartupTimeout),
		CancelGrace:    seconds(cfg.CancelGrace),
		Log:            cfg.Log,
	})
	return s, nil
}

// Run serves until ctx ends. Then it accepts nothing new, gives the requests in
// flight the drain timeout, shuts the workers down and makes the records
// durable. listening, if not nil, is called once with the address when the port
// is open; the server is ready only later, which /health/ready tells.
//
// The error says why no worker could be started, what stopped the server, or
// what went wrong with the records; after an orderly end it is nil.
func (s *Server) Run(ctx context.Context, listening func(net.Addr)) error {
	defer s.stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen on %s: %w", s.cfg.Listen, err), s.journal.close())
	}
	if listening != nil {
		listening(listener.Addr())
	}

	// The workers live until the last request has ended, not until ctx does.
	poolCtx, endPool := context.WithCancel(context.WithoutCancel(ctx))
	poolDone := make(chan error, 1)
	go func() { poolDone <- s.pool.Run(poolCtx) }()

	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
		// Idle connections stay open: to close one just when the client uses it
		// again would be a failed request that nobody caused.
	}
	serveDone := make(chan error, 1)
	go func() { serveDone <- server.Serve(listener) }()
	startDone := make(chan error, 1)
	go func() { startDone <- s.pool.WaitReady(poolCtx) }()

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
	endPool()
	return errors.Join(cause, <-poolDone, s.journal.close())
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
	mux.HandleFunc("/tokenize", s.tokenize)
	mux.HandleFunc("/v1/models", get(s.models))
	mux.HandleFunc("/health/live", get(s.live))
	mux.HandleFunc("/health/ready", get(s.ready))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		respond(w, http.StatusNotFound, openai.ErrorBody{Error: openai.Invalid("", "there is no "+r.URL.Path+" here")})
	})
	limit := seconds(s.cfg.RequestTimeout + s.cfg.CancelGrace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that does not read must not hold a lane for ever. The grace on
		// top leaves time to tell a slow one that its request timed out. An error
		// here would mean a connection without deadlines, and TCP has them.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
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

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	list := openai.ModelList{Object: "list"}
	for _, name := range s.cfg.Models {
		list.Data = append(list.Data, openai.Model{ID: name, Object: "model", Created: s.created.Unix(), OwnedBy: "assay"})
	}
	respond(w, http.StatusOK, list)
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, map[string]bool{"live": true})
}

// Readiness is the body of /health/ready. The status is 200 while a lane is in
// service, and 503 otherwise; lanes that are out are listed either way.
type Readiness struct {
	Ready bool                `json:"ready"`
	Lanes []worker.LaneStatus `json:"lanes"`
	Error string              `json:"error,omitempty"` // why records are no longer written
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	answer := Readiness{Lanes: s.pool.Lanes()}
	answer.Ready = slices.ContainsFunc(answer.Lanes, func(l worker.LaneStatus) bool {
		return l.State == worker.Idle || l.State == worker.Busy
	})
	if err := s.journal.failure(); err != nil {
		answer.Ready, answer.Error = false, err.Error()
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	respond(w, status, answer)
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
