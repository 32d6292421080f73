package scripted

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"assay/rules/internal/worker"
)

// session is a worker under test and the order its frames must keep.
type session struct {
	t     *testing.T
	in    *io.PipeWriter
	lines *bufio.Scanner
	seq   worker.Sequence
	ended chan error
}

func begin(t *testing.T, script string) *session {
	t.Helper()
	s, err := Parse([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	theirIn, in := io.Pipe()
	out, theirOut := io.Pipe()
	w := &session{t: t, in: in, lines: worker.Lines(out, worker.MaxReply), ended: make(chan error, 1)}
	go func() {
		w.ended <- Run(t.Context(), s, theirIn, theirOut)
		theirOut.Close()
		theirIn.Close()
	}()
	t.Cleanup(func() { in.Close(); out.Close() })
	return w
}

func ready(t *testing.T, script string) *session {
	t.Helper()
	w := begin(t, script)
	for _, kind := range []string{"*worker.Hello", "*worker.Ready"} {
		if got := fmt.Sprintf("%T", w.reply()); got != kind {
			t.Fatalf("got %s, want %s", got, kind)
		}
	}
	return w
}

func (w *session) send(frame any) {
	w.t.Helper()
	line, err := worker.Encode(frame)
	if err == nil {
		_, err = w.in.Write(line)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// reply returns the next frame, nil at the end of the output.
func (w *session) reply() worker.Reply {
	w.t.Helper()
	if !w.lines.Scan() {
		return nil
	}
	r, err := worker.DecodeReply(w.lines.Bytes())
	if err == nil {
		err = w.seq.Reply(r)
	}
	if err != nil {
		w.t.Fatalf("the worker breaks the protocol: %v", err)
	}
	return r
}

// ask sends a request and returns the text of its increments and its last frame.
func (w *session) ask(id, body string, stream bool) (string, worker.Reply) {
	w.t.Helper()
	g := &worker.Generate{ID: id, Endpoint: "completions", Stream: stream, Body: json.RawMessage(body)}
	if err := w.seq.Request(g); err != nil {
		w.t.Fatal(err)
	}
	w.send(g)
	text := ""
	for {
		switch r := w.reply().(type) {
		case *worker.Delta:
			text += r.Text
		default:
			return text, r
		}
	}
}

func TestConformance(t *testing.T) {
	w := ready(t, `{"rules":[
		{"when":{"requests":"2"},"do":{"fault":"reject"}},
		{"when":{"requests":"every 3","prompt":"x"},"do":{"tokens":["Grü","ße"," 😀"]}},
		{"when":{"requests":"4-5"},"do":{"tokens":["a","b"],"fault":"break","after":1}}],
		"default":{"count":5,"cached_tokens":1}}`)
	_, first := w.ask("r1", `{"prompt":"one two"}`, false)
	done := first.(*worker.Done)
	if *done.FinishReason != "stop" || *done.Usage.PromptTokens != 2 || *done.Usage.CompletionTokens != 5 || *done.Usage.CachedTokens != 1 {
		t.Errorf("done %+v", done)
	}
	if _, r := w.ask("r2", `{"prompt":"one"}`, true); r.(*worker.Error).Status != 429 {
		t.Errorf("got %+v", r)
	}
	text, r := w.ask("r3", `{"messages":[{"content":[{"type":"text","text":"x"}]}],"max_tokens":2}`, true)
	sum := sha256.Sum256([]byte(text))
	if done := r.(*worker.Done); text != "Grüße" || *done.FinishReason != "length" || done.Task.TextSHA256 != hex.EncodeToString(sum[:]) || done.Task.TextBytes != int64(len(text)) || done.Task.Increments != 2 {
		t.Errorf("%q, %+v", text, done)
	}
	if text, r := w.ask("r4", `{"prompt":""}`, true); text != "a" || r.(*worker.Done).FinishReason != nil {
		t.Errorf("%q, %+v", text, r)
	}
	if _, r := w.ask("r5", `{"prompt":""}`, false); *r.(*worker.Done).Text != "a" {
		t.Errorf("%+v", r)
	}
	streamed, _ := w.ask("r6", `{"prompt":"one two"}`, true)
	if streamed != *done.Text || len(strings.Fields(streamed)) != 5 {
		t.Errorf("the same prompt was answered %q and %q", *done.Text, streamed)
	}
	if other, _ := w.ask("r7", `{"prompt":"one three"}`, true); other == streamed {
		t.Errorf("another prompt was answered %q too", other)
	}
	w.send(new(worker.Shutdown))
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
}

func TestCancel(t *testing.T) {
	w := ready(t, `{"rules":[{"when":{"requests":"1"},"do":{"tokens":["a","b"],"token_delay_ms":3600000}}]}`)
	g := &worker.Generate{ID: "r1", Stream: true, Body: json.RawMessage(`{}`)}
	if err := w.seq.Request(g); err != nil {
		t.Fatal(err)
	}
	w.send(g)
	if d, ok := w.reply().(*worker.Delta); !ok || d.Text != "a" {
		t.Fatalf("got %+v", d)
	}
	w.send(&worker.Cancel{ID: "another"})
	w.send(&worker.Cancel{ID: "r1"})
	if e, ok := w.reply().(*worker.Error); !ok || e.Status != 499 || e.Task.TextBytes != 1 {
		t.Errorf("got %+v", e)
	}
	w.send(&worker.Cancel{ID: "r1"}) // late: for no request
	if _, r := w.ask("r2", `{}`, true); *r.(*worker.Done).FinishReason != "stop" {
		t.Errorf("got %+v", r)
	}
}

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name, script string
		after        func(*session)
		want         error
	}{
		{"the gateway is gone", `{}`, func(w *session) { w.reply(); w.reply(); w.in.Close() }, nil},
		{"gone while it hangs", `{"start":{"mode":"hang"}}`, func(w *session) { w.reply(); w.in.Close() }, nil},
		{"gone while it answers", `{"default":{"fault":"hang"}}`, func(w *session) {
			w.reply()
			w.reply()
			w.send(&worker.Generate{ID: "r", Body: json.RawMessage(`{}`)})
			w.in.Close()
		}, nil},
		{"dies at the start", `{"start":{"mode":"die"}}`, func(*session) {}, ErrDied},
		{"dies while it loads", `{"start":{"mode":"die_late"}}`, func(w *session) { w.reply() }, ErrDied},
		{"cannot load", `{"start":{"mode":"fatal"}}`, func(w *session) {
			w.reply()
			if f, ok := w.reply().(*worker.Fatal); !ok {
				w.t.Errorf("got %+v", f)
			}
		}, ErrDied},
		{"dies in a request", `{"default":{"fault":"die"}}`, func(w *session) {
			w.reply()
			w.reply()
			if _, r := w.ask("r", `{}`, false); r != nil {
				w.t.Errorf("got %+v", r)
			}
		}, ErrDied},
		{"dies between requests", `{"default":{"fault":"die_after_done"}}`, func(w *session) {
			w.reply()
			w.reply()
			if _, r := w.ask("r", `{}`, false); r.(*worker.Done).FinishReason == nil {
				w.t.Errorf("got %+v", r)
			}
		}, ErrDied},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := begin(t, c.script)
			c.after(w)
			if err := <-w.ended; !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	w := ready(t, `{}`)
	io.WriteString(w.in, "garbage\n")
	if err := <-w.ended; err == nil || !strings.Contains(err.Error(), "from the gateway") {
		t.Errorf("Run: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, stay := io.Pipe()
	defer stay.Close()
	if err := Run(ctx, new(Script), in, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}

func TestParseReportsAll(t *testing.T) {
	for _, c := range []struct {
		script string
		want   []string
	}{
		{`{"defualt":{}}`, []string{"defualt", "at byte"}},
		{`{} {}`, []string{"more than one"}},
		{`{"default":{"fault":"explode","after":-1},"start":{"mode":"slow","delay_ms":-1},"rules":[{"when":{},"do":{}},{"when":{"requests":"0"},"do":{"tokens":["",""],"count":1,"prompt_tokens":-1,"error":{"status":200}}}]}`,
			[]string{`"explode"`, "must not be negative", `mode "slow"`, "delay_ms", "rules[0].when is empty", `rules[1].when: requests "0"`, "exclude each other", "an empty one", "token counts", "error belongs", "status 200"}},
	} {
		_, err := Parse([]byte(c.script))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\n%v\ndoes not say %q", c.script, err, want)
			}
		}
	}
	if _, err := Load("/nonexistent"); err == nil {
		t.Error("a missing script was loaded")
	}
}

func TestOrdinals(t *testing.T) {
	for text, want := range map[string]string{
		"": "1111111111", "3": "0010000000", "2-4": "0111000000", "8-": "0000000111", "every 3": "0010010010", "1-1": "1000000000",
	} {
		applies, err := parseOrdinals(text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := 1; i <= 10; i++ {
			got += map[bool]string{true: "1", false: "0"}[applies(i)]
		}
		if got != want {
			t.Errorf("%q applies to %s, want %s", text, got, want)
		}
	}
	for _, bad := range []string{"0", "-3", "3-2", "a", "every", "every 0", "every x", "1-2-3", " 1"} {
		if _, err := parseOrdinals(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestTheDocumentedScript(t *testing.T) {
	page, err := os.ReadFile("../../../docs/worker-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```json\n{\n")
	script, _, _ = strings.Cut("{"+script, "```")
	if s, err := Parse([]byte(script)); err != nil || len(s.Rules) != 2 {
		t.Errorf("%v in %s", err, script)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"start":{"mode":"die"},"rules":[{"when":{"requests":"every 2"},"do":{"count":3}}],"default":{"fault":"hang"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Parse([]byte(text)); (s == nil) == (err == nil) {
			t.Fatalf("script %v and error %v", s, err)
		} else if s != nil {
			s.choose(1, "prompt")
		}
	})
}
