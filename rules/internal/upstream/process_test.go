package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/rules/internal/worker"
)

// The test binary is also the engine that the tests start: a server with
// llama-server's wire that does what its variables and prompts say.
const (
	engineMode = "ASSAY_TEST_ENGINE"
	startsFile = "ASSAY_TEST_ENGINE_STARTS"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(engineMode); mode != "" {
		runEngine(mode, os.Args[1])
	}
	os.Exit(m.Run())
}

func runEngine(mode, port string) {
	if mode == "dies" {
		os.Exit(3)
	}
	if f, err := os.OpenFile(os.Getenv(startsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintln(f, os.Getpid())
		f.Close()
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	http.HandleFunc("/health", func(w http.ResponseWriter, r *http.Request) {
		if mode == "loads for ever" {
			w.WriteHeader(503)
		}
	})
	http.HandleFunc("/v1/models", text(`{"data":[{"id":"m","owned_by":"test"}]}`))
	http.HandleFunc("/props", text(`{}`))
	http.HandleFunc("/v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Prompt string }
		json.NewDecoder(r.Body).Decode(&body)
		switch {
		case r.Header.Get("Authorization") != "Bearer "+os.Getenv("LLAMA_API_KEY"):
			w.WriteHeader(401)
		case mode == "refuses":
			refuse(500, `{"error":{"message":"out of memory"}}`)(w, r)
		case body.Prompt == "die":
			os.Exit(7)
		case body.Prompt == "die later":
			io.WriteString(w, "data: {\"choices\":[{\"text\":\"half\"}]}\n\n")
			w.(http.Flusher).Flush()
			os.Exit(7)
		default:
			text(`{"choices":[{"text":"%d","finish_reason":"stop"}]}`, os.Getpid())(w, r)
		}
	})
	panic(http.ListenAndServe("127.0.0.1:"+port, nil))
}

// started is an engine of the tests; the file gets a line for each of its starts.
func started(t *testing.T, mode string) (e *Engine, starts string) {
	starts = filepath.Join(t.TempDir(), "starts")
	return newEngine(t, Config{
		Adapter: "llama-server", Model: "m", Command: []string{os.Args[0], "{port}"},
		Env: []string{engineMode + "=" + mode, startsFile + "=" + starts},
	}), starts
}

func saying(what string) *worker.Generate {
	return &worker.Generate{ID: "r", Endpoint: "completions", Stream: what == "die later", Body: fmt.Appendf(nil, `{"prompt":%q}`, what)}
}

// pid is what the engine's answers are.
func (s *session) pid() int {
	s.t.Helper()
	_, last := s.ask(saying("who"))
	done, ok := last.(*worker.Done)
	if !ok {
		s.t.Fatalf("%+v", last)
	}
	pid, err := strconv.Atoi(*done.Text)
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

func startsOf(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// All lanes have the one process, which lives as long as one of them.
func TestLanesShareAnEngine(t *testing.T) {
	e, starts := started(t, "serves")
	lanes := []*session{start(t, e), start(t, e), start(t, e)}
	pid := 0
	for _, s := range lanes {
		s.ready()
		if got := s.pid(); pid != 0 && got != pid {
			t.Errorf("processes %d and %d", pid, got)
		} else {
			pid = got
		}
	}
	for i, s := range lanes {
		if !alive(pid) {
			t.Fatalf("the engine ended with %d lanes left", len(lanes)-i)
		}
		s.end()
	}
	if alive(pid) {
		t.Error("the engine is still there")
	}
	if n := len(startsOf(t, starts)); n != 1 {
		t.Errorf("%d starts", n)
	}
	// A lane that comes later has a new one.
	s := start(t, e)
	s.ready()
	if got := s.pid(); got == pid {
		t.Errorf("process %d again", got)
	}
	s.end()
}

// Only the gateway has the key of an engine that it started.
func TestStartedEngineHasAKey(t *testing.T) {
	e, _ := started(t, "serves")
	s := start(t, e)
	s.ready()
	resp, err := http.Post(e.process.wire.base+"/v1/completions", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Errorf("without the key: status %d", resp.StatusCode)
	}
	s.end()
}

// When the engine dies, every lane says how; when they come back it is started
// once.
func TestEngineDies(t *testing.T) {
	for _, last := range []string{"die", "die later"} {
		e, starts := started(t, "serves")
		for round := range 2 {
			busy, idle := start(t, e), start(t, e)
			busy.ready()
			idle.ready()
			if busy.pid() != idle.pid() {
				t.Error("two engines")
			}
			busy.send(t.Context(), saying(last))
			for _, s := range []*session{busy, idle} {
				for range s.replies {
				}
				if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "exit status 7") {
					t.Errorf("%s, round %d: %v", last, round, err)
				}
			}
		}
		if n := len(startsOf(t, starts)); n != 2 {
			t.Errorf("%s: %d starts", last, n)
		}
	}
}

func TestEngineDoesNotStart(t *testing.T) {
	missing := newEngine(t, Config{Adapter: "llama-server", Model: "m", Command: []string{"/nonexistent", "{port}"}})
	dies, _ := started(t, "dies")
	refuses, _ := started(t, "refuses")
	for want, e := range map[string]*Engine{"no such file": missing, "exit status 3": dies, "first request: out of memory": refuses} {
		s := start(t, e)
		for r := range s.replies {
			t.Errorf("%s: %+v", want, r)
		}
		if err := <-s.ended; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// In the gateway's pool the lanes come back, and only requests are lost that met the
// engine's end.
func TestPoolAfterEngineDied(t *testing.T) {
	e, starts := started(t, "serves")
	spec := worker.Spec{Handler: e.Handler()}
	pool := worker.NewPool([]worker.Spec{spec, spec}, worker.Options{
		StartupTimeout: time.Minute, CancelGrace: time.Minute, Queue: 4, QueueWait: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	if err := pool.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := func(what string) (worker.Reply, error) {
		for {
			lease, _, err := pool.Acquire(t.Context())
			if errors.Is(err, worker.ErrNotReady) { // all lanes are being replaced
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			defer lease.Close()
			if err := lease.Generate(t.Context(), saying(what)); err != nil {
				return nil, err
			}
			return lease.Next(t.Context())
		}
	}
	if r, err := ask("die"); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("%+v, %v", r, err)
	}
	// A request may still meet the other lane of the engine that is gone: it is not
	// sent again, and fails for the same reason.
	last := 1
	for range 4 {
		r, err := ask("who")
		if err != nil && last > 0 && strings.Contains(err.Error(), "exit status 7") {
			last--
		} else if err != nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if pids := startsOf(t, starts); len(pids) != 2 {
		t.Errorf("%d starts", len(pids))
	}
}

// The gateway's patience ends before the engine is ready: nothing stays.
func TestEngineThatIsNeverReady(t *testing.T) {
	e, starts := started(t, "loads for ever")
	lanes := []*session{start(t, e), start(t, e)}
	for {
		if data, _ := os.ReadFile(starts); len(data) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, s := range lanes {
		if err := s.end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	pids := startsOf(t, starts)
	if pid, err := strconv.Atoi(pids[0]); err != nil || len(pids) != 1 || alive(pid) {
		t.Errorf("starts %v, %v; alive %v", pids, err, alive(pid))
	}
}
