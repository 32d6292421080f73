package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func task() *Task { return &Task{Scope: "s", TextSHA256: hash} }

func TestFramesOnTheWire(t *testing.T) {
	stop, text, n := "stop", "a<b>😀", int64(3)
	for _, c := range []struct {
		frame any
		line  string
	}{
		{&Generate{ID: "r", Endpoint: "chat", Stream: true, Body: json.RawMessage(`{"a":"<&>"}`)}, `{"frame":"generate","id":"r","endpoint":"chat","stream":true,"body":{"a":"<&>"}}`},
		{&Cancel{ID: "r"}, `{"frame":"cancel","id":"r"}`},
		{&Shutdown{}, `{"frame":"shutdown"}`},
		{&Hello{Protocol: 2, Worker: "w", Engine: Engine{"e", "1"}, Capabilities: Capabilities{Endpoints: []string{"chat"}, Cancel: true}},
			`{"frame":"hello","protocol":2,"worker":"w","engine":{"name":"e","version":"1"},"capabilities":{"endpoints":["chat"],"cancel":true,"max_context":0}}`},
		{&Ready{LoadMS: 1.5}, `{"frame":"ready","load_ms":1.5}`},
		{&Delta{ID: "r", Text: text}, `{"frame":"delta","id":"r","text":"a<b>😀"}`},
		{&Done{ID: "r", FinishReason: &stop, Usage: Usage{PromptTokens: &n}, Task: task(), Text: &text},
			`{"frame":"done","id":"r","finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":null,"cached_tokens":null},"task":{"scope":"s","wall_ns":0,"increments":0,"text_sha256":"` + hash + `","text_bytes":0},"text":"a<b>😀"}`},
		{&Error{ID: "r", Status: 400, Code: "c", Type: "t", Message: "m"}, `{"frame":"error","id":"r","status":400,"code":"c","type":"t","message":"m"}`},
		{&Fatal{Message: "m"}, `{"frame":"fatal","message":"m"}`},
	} {
		line, err := Encode(c.frame)
		if err != nil || string(line) != c.line+"\n" {
			t.Errorf("got  %s (%v)\nwant %s", line, err, c.line)
		}
		var back any
		if _, ok := c.frame.(Request); ok {
			back, err = DecodeRequest(line)
		} else {
			back, err = DecodeReply(line)
		}
		if diff := cmp.Diff(c.frame, back); err != nil || diff != "" {
			t.Errorf("%s came back different (%v):\n%s", c.line, err, diff)
		}
	}
	if _, err := Encode("text"); err == nil {
		t.Error("a string was encoded as a frame")
	}
}

func TestDecodeReplyRefuses(t *testing.T) {
	done := func(more string) string {
		return `{"frame":"done","id":"r","task":{"scope":"s","text_sha256":"` + hash + `"` + more + `}`
	}
	for _, c := range []struct{ line, want string }{
		{"hello", "not a frame"},
		{`{"frame":"delta","id":"r","text":"` + "\xff" + `"}`, "not UTF-8"},
		{`{"frame":"delta","id":"r","text":"a"} {}`, "after top-level value"},
		{`{"frame":"bye"}`, `unknown frame "bye"`},
		{`{"frame":"generate"}`, "unknown frame"},
		{`{}`, "unknown frame"},
		{`{"frame":"delta","id":7}`, "delta frame"},
		{`{"frame":"delta","id":"r","text":""}`, "text is empty"},
		{`{"frame":"hello","protocol":3,"worker":"w"}`, "speaks protocol 3"},
		{`{"frame":"hello","protocol":2}`, "worker and engine.name"},
		{`{"frame":"hello","protocol":2,"worker":"w","engine":{"name":"e"}}`, "endpoints is empty"},
		{`{"frame":"done","id":"r"}`, "task is required"},
		{`{"frame":"done","id":"r","task":{"scope":"s","text_sha256":"ABC"}}`, "64 hex"},
		{`{"frame":"done","id":"r","task":{}}`, "scope is required"},
		{done(`,"wall_ns":-1}`), "negative"},
		{done(`},"finish_reason":""`), "finish_reason is empty"},
		{done(`},"usage":{"prompt_tokens":-1}`), "negative count"},
		{`{"frame":"error","id":"r","status":200,"message":"m"}`, "status 200"},
		{`{"frame":"error","id":"r","status":500}`, "message is required"},
		{`{"frame":"fatal"}`, "message is required"},
	} {
		if _, err := DecodeReply([]byte(c.line)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.line, err, c.want)
		}
	}
}

func TestSequence(t *testing.T) {
	hello, ready, fatal := &Hello{}, &Ready{}, &Fatal{}
	stream, buffered := &Generate{ID: "r", Stream: true}, &Generate{ID: "r"}
	text := ""
	for _, c := range []struct {
		name   string
		frames []any // the last one decides
		ok     bool
	}{
		{"a stream", []any{hello, ready, stream, &Delta{ID: "r"}, &Done{ID: "r"}}, true},
		{"a buffered answer", []any{hello, ready, buffered, &Done{ID: "r", Text: &text}}, true},
		{"one after the other", []any{hello, ready, stream, &Error{ID: "r"}, buffered, &Done{ID: "r", Text: &text}}, true},
		{"cannot load", []any{hello, fatal}, true},
		{"cannot even say hello", []any{fatal}, true},
		{"ready before hello", []any{ready}, false},
		{"hello twice", []any{hello, hello}, false},
		{"ready twice", []any{hello, ready, ready}, false},
		{"fatal after ready", []any{hello, ready, fatal}, false},
		{"fatal twice", []any{fatal, fatal}, false},
		{"a delta out of nowhere", []any{hello, ready, &Delta{ID: "r"}}, false},
		{"a delta for another", []any{hello, ready, stream, &Delta{ID: "q"}}, false},
		{"a delta after done", []any{hello, ready, stream, &Done{ID: "r"}, &Delta{ID: "r"}}, false},
		{"done twice", []any{hello, ready, stream, &Done{ID: "r"}, &Done{ID: "r"}}, false},
		{"an error for another", []any{hello, ready, stream, &Error{ID: "q"}}, false},
		{"a delta in a buffered answer", []any{hello, ready, buffered, &Delta{ID: "r"}}, false},
		{"a buffered answer without text", []any{hello, ready, buffered, &Done{ID: "r"}}, false},
		{"a stream with text at its end", []any{hello, ready, stream, &Done{ID: "r", Text: &text}}, false},
		{"a request while loading", []any{hello, stream}, false},
		{"two requests", []any{hello, ready, stream, stream}, false},
	} {
		var s Sequence
		for i, frame := range c.frames {
			var err error
			if g, ok := frame.(*Generate); ok {
				err = s.Request(g)
			} else {
				err = s.Reply(frame.(Reply))
			}
			if want := c.ok || i < len(c.frames)-1; (err == nil) != want {
				t.Errorf("%s: frame %d: %v", c.name, i, err)
			}
		}
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		err  bool
	}{
		{"", 0, false}, {"a\nb\n", 2, false}, {"\n", 1, false}, {"a\nb", 1, true}, {strings.Repeat("x", 99) + "\n", 1, false}, {strings.Repeat("x", 200<<10) + "\n", 0, true},
	} {
		lines, n := Lines(strings.NewReader(c.text), 100<<10), 0
		for lines.Scan() {
			n++
		}
		if n != c.n || (lines.Err() != nil) != c.err {
			t.Errorf("%.20q: %d lines, %v", c.text, n, lines.Err())
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"frame":"delta","id":"r","text":"a"}`))
	f.Add([]byte(`{"frame":"generate","id":"r","body":{}}`))
	f.Add([]byte(`{"frame":"done","id":"r","finish_reason":"stop","usage":{"prompt_tokens":1},"task":{"scope":"s","text_sha256":"` + hash + `"}}`))
	f.Add([]byte(`{"frame":"done","id":"r","finish_reason":null,"usage":{"prompt_tokens":1,"completion_tokens":null,"cached_tokens":0},"task":{"scope":"s","wall_ns":5,` +
		`"first_increment_ns":1,"increments":2,"text_sha256":"` + hash + `","text_bytes":7,"engine":{"a":1.5e2},"source":"worker","engine_request_id":"e"},"text":"\u00fc\n","logprobs":[null]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		again := func(frame any) []byte {
			out, err := Encode(frame)
			if err != nil {
				t.Fatalf("%+v cannot be encoded: %v", frame, err)
			}
			return out
		}
		if d, ok := plainDelta(line); ok {
			general, err := decode(line, func(string) (*Delta, bool) { return new(Delta), true })
			if diff := cmp.Diff(general, d); err != nil || diff != "" {
				t.Fatalf("the short way differs (%v):\n%s", err, diff)
			}
		}
		if d, ok := plainDone(line); ok {
			general, err := decode(line, func(string) (*Done, bool) { return new(Done), true })
			if diff := cmp.Diff(general, d); err != nil || diff != "" {
				t.Fatalf("the short way differs (%v):\n%s", err, diff)
			}
		}
		if reply, err := DecodeReply(line); err == nil {
			back, err := DecodeReply(again(reply))
			if diff := cmp.Diff(reply, back); err != nil || diff != "" {
				t.Fatalf("%v\n%s", err, diff)
			}
		}
		if request, err := DecodeRequest(line); err == nil {
			if g, ok := request.(*Generate); ok && len(g.Body) == 0 {
				g.Body = json.RawMessage("null") // how absence is written
			}
			if _, err := DecodeRequest(again(request)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The test binary plays workers that go wrong in ways a script cannot say.
func TestMain(m *testing.M) {
	say := func(frame any) {
		line, err := Encode(frame)
		if err != nil {
			panic(err)
		}
		os.Stdout.Write(line)
	}
	start := func() {
		say(&Hello{Protocol: Version, Worker: "w", Engine: Engine{Name: "e"}, Capabilities: Capabilities{Endpoints: []string{"chat"}}})
		say(&Ready{})
	}
	switch os.Getenv("WORKER_TEST_ROLE") {
	case "":
		os.Exit(m.Run())
	case "never reads":
		start()
		time.Sleep(time.Hour)
	case "ready and gone":
		start()
	case "closes its output":
		start()
		os.Stdout.Close()
		time.Sleep(time.Hour)
	case "half a line":
		start()
		os.Stdout.WriteString(`{"frame":`)
	case "garbage while idle":
		start()
		os.Stdout.WriteString("hm\n")
		time.Sleep(time.Hour)
	case "good":
		start()
		io.Copy(io.Discard, os.Stdin)
	}
}

func pool(t *testing.T, role string, endpoints ...string) *Pool {
	t.Helper()
	p := NewPool([]Spec{{Command: []string{os.Args[0]}, Env: append(os.Environ(), "WORKER_TEST_ROLE="+role, "GORACE=atexit_sleep_ms=0"), Endpoints: endpoints}},
		Options{StartupTimeout: 20 * time.Second, CancelGrace: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return p
}

// until waits for a state of the pool's only lane.
func until(t *testing.T, p *Pool, what func(LaneStatus) bool) LaneStatus {
	t.Helper()
	for {
		if lane := p.Lanes()[0]; what(lane) {
			return lane
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the test is over")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAWorkerThatNeverReadsCannotHoldALane(t *testing.T) {
	p := pool(t, "never reads")
	if err := p.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease, _, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Acquire(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("a second Acquire: %v", err)
	}
	cause := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	body, _ := json.Marshal(strings.Repeat("x", 1<<20)) // more than a pipe holds
	go func() {
		for send := &lease.w.link.(*process).send; send.TryLock(); { // nothing is being written yet
			send.Unlock()
			time.Sleep(time.Millisecond)
		}
		cancel(cause)
	}()
	if err := lease.Generate(ctx, &Generate{ID: "r", Body: body}); !errors.Is(err, cause) {
		t.Errorf("Generate: %v", err)
	}
	lease.Close()
	until(t, p, func(l LaneStatus) bool { return l.State == Idle && l.Worker == 2 })
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	p := pool(t, "never reads")
	if err := p.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease, _, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Generate(ctx, &Generate{ID: "r"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Generate: %v", err)
	}
	lease.Close()
	if lane := p.Lanes()[0]; lane.State != Idle || lane.Worker != 1 {
		t.Errorf("lane %+v", lane)
	}
}

// A worker that does not live until a request is started again once, not for ever.
func TestAWorkerWithoutARequestIsReplacedOnce(t *testing.T) {
	for role, want := range map[string]string{
		"ready and gone":     "exit status 0",
		"closes its output":  "closed its output",
		"half a line":        "inside a line",
		"garbage while idle": "protocol violation",
	} {
		t.Run(role, func(t *testing.T) {
			p := pool(t, role)
			lane := until(t, p, func(l LaneStatus) bool { return l.State == Out })
			if lane.Worker != 2 || !strings.Contains(lane.Reason, want) {
				t.Errorf("lane %+v", lane)
			}
			if _, _, err := p.Acquire(t.Context()); !errors.Is(err, ErrNotReady) {
				t.Errorf("Acquire: %v", err)
			}
			if err := p.WaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("WaitReady: %v", err)
			}
		})
	}
}

func TestACapabilityThatIsMissing(t *testing.T) {
	p := pool(t, "good", "chat", "completions")
	if err := p.WaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), `cannot do "completions"`) {
		t.Errorf("WaitReady: %v", err)
	}
}

func TestACommandThatDoesNotExist(t *testing.T) {
	p := NewPool([]Spec{{Command: []string{"/nonexistent/worker"}}}, Options{StartupTimeout: time.Second, Log: slog.New(slog.DiscardHandler)})
	if err := p.Run(t.Context()); err != nil { // it ends by itself: no lane is left to keep
		t.Error(err)
	}
	if err := p.WaitReady(t.Context()); err == nil || !strings.Contains(fmt.Sprint(err), "/nonexistent/worker") {
		t.Errorf("WaitReady: %v", err)
	}
}
