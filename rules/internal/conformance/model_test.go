package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// model is a worker that offers all there is and keeps the protocol, but for its
// fault.
type model struct {
	fault
	version, calls int
	cancelled      atomic.Bool // a cancel came
}

// fault is what a model does wrong; the zero value is nothing.
type fault struct {
	in  func(line []byte) []byte            // changes a line from the gateway; nil drops it
	out func(frame map[string]any) []any    // what is sent for a frame: frames and raw strings
	can func(capabilities map[string]any)   // changes what it offers
	ask func(body map[string]any) *refusing // refuses a body

	start                                                           func()
	cut, cutAll, careless, sticky, moody, deafToEnd, deafInARequest bool
}

type refusing struct {
	status int
	code   string
}

const contextLimit = 1024 // words

func (m *model) run(stdin io.Reader, stdout io.Writer) error {
	if m.start != nil {
		m.start()
	}
	say := func(frame any) error { return m.say(stdout, frame) }
	hello := &worker.Hello{Protocol: m.version, Worker: "model", Engine: worker.Engine{Name: "model", Version: "1"}}
	hello.Capabilities.Endpoints = []string{chat, completions}
	if m.version == worker.Version {
		hello.Capabilities = worker.Capabilities{Endpoints: []string{chat, completions}, Cancel: true, MaxContext: contextLimit,
			Tokenize: true, Logprobs: true, Content: []string{"image_url"}}
	}
	if err := say(hello); err != nil {
		return err
	}
	if err := say(&worker.Ready{}); err != nil {
		return err
	}
	return worker.Serve(context.Background(), m.filter(stdin), func(ctx context.Context, calls <-chan worker.Call) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case c := <-calls:
				if err := m.answer(ctx, c, say); err != nil {
					return err
				}
			}
		}
	})
}

// filter passes the gateway's lines on as the fault changes them.
func (m *model) filter(stdin io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		lines := bufio.NewReader(stdin)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			if bytes.Contains(line, []byte(`"cancel"`)) {
				m.cancelled.Store(true)
			}
			if m.in != nil {
				line = m.in(line)
			}
			in.Write(line)
		}
		if m.deafToEnd {
			time.Sleep(time.Hour)
		}
		in.Close()
	}()
	return out
}

func (m *model) say(stdout io.Writer, frame any) error {
	line, err := worker.Encode(frame)
	if err != nil {
		return err
	}
	lines := []any{string(line)}
	if m.out != nil || m.can != nil {
		var members map[string]any
		if err := json.Unmarshal(line, &members); err != nil {
			return err
		}
		if c, ok := members["capabilities"].(map[string]any); ok && m.can != nil {
			m.can(c)
		}
		if lines = []any{members}; m.out != nil {
			lines = m.out(members)
		}
	}
	for _, line := range lines {
		text, raw := line.(string)
		if !raw {
			data, err := json.Marshal(line)
			if err != nil {
				return err
			}
			text = string(data) + "\n"
		}
		if _, err := io.WriteString(stdout, text); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) answer(ctx context.Context, c worker.Call, say func(any) error) error {
	t, ok := c.Request.(*worker.Tokenize)
	if ok {
		tokens := []int64{}
		for _, b := range []byte(t.Text) {
			tokens = append(tokens, int64(b))
		}
		return say(&worker.Tokens{ID: t.ID, Tokens: tokens})
	}
	g := c.Request.(*worker.Generate)
	var body map[string]any
	_ = json.Unmarshal(g.Body, &body)
	refuse := func(r *refusing) error {
		return say(&worker.Error{ID: g.ID, Status: r.status, Code: r.code, Type: "error", Message: r.code})
	}
	if m.ask != nil {
		if r := m.ask(body); r != nil {
			return refuse(r)
		}
	}
	if _, ok := body["messages"].([]any); g.Endpoint == chat && !ok && !m.careless {
		return refuse(&refusing{400, "invalid_request"})
	}
	if n := len(strings.Fields(string(g.Body))); n > contextLimit && m.version == worker.Version && !m.careless {
		return refuse(&refusing{400, "context_length_exceeded"})
	}
	if late := m.cancelled.Swap(false); late && m.sticky {
		return refuse(&refusing{499, "cancelled"})
	}

	m.calls++
	long := strings.Contains(string(g.Body), "ten thousand")
	count := int(body["max_tokens"].(float64))
	if !long {
		count = min(count, 12)
	}
	var logprobs json.RawMessage
	if body["logprobs"] != nil {
		logprobs = json.RawMessage(`{"content":[]}`)
	}
	words := []string{"Grüße", " 世", "界", " 😀", " ok"}
	began := time.Now()
	text, increments := "", 0
	var first int64
	for i := range count {
		if long && g.Stream {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-c.Context.Done():
				if m.cancelled.Swap(false) {
					return refuse(&refusing{499, "cancelled"})
				} else if !m.deafInARequest {
					return nil
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		piece := words[i%len(words)]
		if m.cutAll || m.cut && g.Stream {
			piece = strings.ReplaceAll(piece, "ü", damaged+damaged)
		}
		if m.moody {
			piece += fmt.Sprint(m.calls)
		}
		if text += piece; increments == 0 {
			first = time.Since(began).Nanoseconds()
		}
		increments++
		if g.Stream {
			if err := say(&worker.Delta{ID: g.ID, Text: piece, Logprobs: logprobs}); err != nil {
				return err
			}
		}
	}
	sum, stop, n := sha256.Sum256([]byte(text)), "stop", int64(count)
	done := &worker.Done{ID: g.ID, FinishReason: &stop, Usage: worker.Usage{CompletionTokens: &n}, Task: &worker.Task{
		Scope: record.ScopeCall, WallNS: time.Since(began).Nanoseconds(), Increments: increments,
		TextSHA256: hex.EncodeToString(sum[:]), TextBytes: int64(len(text)),
	}}
	if g.Stream {
		done.Task.Scope, done.Task.FirstIncrementNS = record.ScopeStream, &first
	} else {
		done.Text, done.Logprobs = &text, logprobs
	}
	return say(done)
}

// die ends the worker as a crash does.
func die() { os.Exit(3) }
