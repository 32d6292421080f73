package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/rules/internal/record"
	"assay/rules/internal/scripted"
	"assay/rules/internal/worker"
)

const scriptVariable = "GATEWAY_TEST_SCRIPT"

// The test binary is the scripted worker too, and a gateway in a process of its own.
func TestMain(m *testing.M) {
	path, config := os.Getenv(scriptVariable), os.Getenv(configVariable)
	switch {
	case path == "" && config == "":
		os.Exit(m.Run())
	case path == "": // a worker has its gateway's variables too
		os.Exit(runGateway(config))
	}
	script, err := scripted.Load(path)
	if err == nil {
		err = scripted.Run(context.Background(), script, os.Stdin, os.Stdout)
	}
	if errors.Is(err, scripted.ErrDied) {
		os.Exit(scripted.DeathStatus)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fixture is a running server with its record file.
type fixture struct {
	t       testing.TB
	url     string
	script  string // path
	records string // path
	client  *http.Client
	stop    context.CancelFunc
	ended   chan error
	log     *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// prepare makes a fixture and a configuration on a script, for launch and spawn;
// change may alter the configuration.
func prepare(t testing.TB, script string, change func(*Config)) (*fixture, Config) {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{
		t: t, script: filepath.Join(dir, "script.json"), records: filepath.Join(dir, "records.jsonl"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}, ended: make(chan error, 1), log: new(lockedBuffer),
	}
	f.rewrite(script)
	cfg := Config{
		Models: []Model{{
			Names:   []string{"m", "alias"},
			Workers: []Worker{{Command: []string{os.Args[0]}, Env: []string{scriptVariable + "=" + f.script, "GORACE=atexit_sleep_ms=0"}}},
		}},
		Records: Records{File: f.records},
		Log:     slog.New(slog.NewTextHandler(f.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	return f, cfg
}

// launch starts a server on a script in this process.
func launch(t testing.TB, script string, change func(*Config)) *fixture {
	t.Helper()
	f, cfg := prepare(t, script, change)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	address := make(chan net.Addr, 1)
	go func() { f.ended <- s.Run(ctx, func(a net.Addr) { address <- a }) }()
	select {
	case a := <-address:
		f.url = "http://" + a.String()
	case err := <-f.ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		f.client.CloseIdleConnections()
		if t.Failed() {
			t.Log(f.log.text())
		}
	})
	return f
}

func (f *fixture) rewrite(script string) {
	f.t.Helper()
	if err := os.WriteFile(f.script, []byte(script), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// readiness asks for the state of the lanes.
func (f *fixture) readiness() (int, Readiness) {
	f.t.Helper()
	resp, err := f.client.Get(f.url + "/health/ready")
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	var r Readiness
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, r
}

// await waits until lane 0 is in the state, with at least that many workers
// started.
func (f *fixture) await(state worker.State, starts int) worker.LaneStatus {
	f.t.Helper()
	for {
		_, r := f.readiness()
		if lane := r.Lanes[0]; lane.State == state && lane.Worker >= starts {
			return lane.LaneStatus
		}
		select {
		case err := <-f.ended:
			f.t.Fatalf("the server ended: %v", err)
		case <-f.t.Context().Done():
			f.t.Fatal("the test is over")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// end stops the server and returns its records.
func (f *fixture) end() []record.Record {
	f.t.Helper()
	f.client.CloseIdleConnections()
	f.stop()
	if err := <-f.ended; err != nil {
		f.t.Errorf("Run: %v", err)
	}
	return f.read()
}

func (f *fixture) read() []record.Record {
	f.t.Helper()
	data, err := os.ReadFile(f.records)
	if err != nil {
		f.t.Fatal(err)
	}
	var records []record.Record
	for line := range bytes.Lines(data) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var r record.Record
		if err := d.Decode(&r); err != nil {
			f.t.Fatalf("%v in record %s", err, line)
		}
		records = append(records, r)
	}
	return records
}

// reply is what a client saw.
type reply struct {
	status int
	header http.Header
	body   string
	text   string // all the content
	finish string
	done   bool // [DONE]
	usage  map[string]any
	err    map[string]any // an error body or event
	cut    error          // the connection broke
}

// ask sends one request and reads all of the answer. body holds what comes
// after the model.
func (f *fixture) ask(ctx context.Context, path, id, body string) reply {
	f.t.Helper()
	resp, err := f.open(ctx, path, id, body)
	if err != nil {
		return reply{cut: err}
	}
	defer resp.Body.Close()
	return f.drain(resp)
}

func (f *fixture) open(ctx context.Context, path, id, body string) (*http.Response, error) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if id != "" {
		req.Header.Set("X-Request-ID", id)
	}
	return f.client.Do(req)
}

func (f *fixture) drain(resp *http.Response) reply {
	f.t.Helper()
	r := reply{status: resp.StatusCode, header: resp.Header}
	data, err := io.ReadAll(resp.Body)
	r.body, r.cut = string(data), err
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		r.take(f.t, r.body)
		return r
	}
	for event := range strings.SplitSeq(r.body, "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		switch {
		case event == "":
		case !ok || r.done:
			f.t.Errorf("unexpected in a stream: %q", event)
		case data == "[DONE]":
			r.done = true
		default:
			r.take(f.t, data)
		}
	}
	return r
}

func (r *reply) take(t testing.TB, data string) {
	type message struct{ Content string }
	var v struct {
		Choices []struct {
			Delta, Message message
			Text           string
			FinishReason   string `json:"finish_reason"`
		}
		Usage map[string]any
		Error map[string]any
	}
	if data == "" {
		return
	}
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Errorf("%v in %q", err, data)
	}
	for _, c := range v.Choices {
		r.text += c.Delta.Content + c.Message.Content + c.Text
		r.finish += c.FinishReason
	}
	if v.Usage != nil {
		r.usage = v.Usage
	}
	if v.Error != nil {
		r.err = v.Error
	}
}

const (
	chatPath = "/v1/chat/completions"
	textPath = "/v1/completions"
)

func chat(prompt, more string) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]%s}`, prompt, more)
}

func completion(prompt, more string) string {
	return fmt.Sprintf(`{"model":"m","prompt":%q%s}`, prompt, more)
}

const streamed = `,"stream":true,"stream_options":{"include_usage":true}`
