package llama_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"assay/rules/internal/gateway"
	"assay/rules/internal/llama"
	"assay/rules/internal/record"
)

// TestRealModel serves a real model: it needs a Python with xllamacpp and a
// GGUF file with a chat template.
func TestRealModel(t *testing.T) {
	python, model := os.Getenv("ASSAY_TEST_LLAMA_PYTHON"), os.Getenv("ASSAY_TEST_GGUF")
	if python == "" || model == "" {
		t.Skip("ASSAY_TEST_LLAMA_PYTHON and ASSAY_TEST_GGUF are not set")
	}
	for transport, scopes := range map[string][2]string{
		llama.InProcess: {record.ScopeCall, record.ScopeStream},
		llama.HTTP:      {record.ScopeHTTPCall, record.ScopeHTTPStream},
	} {
		t.Run(transport, func(t *testing.T) { serveRealModel(t, python, model, transport, scopes) })
	}
}

// serveRealModel asks all that a worker must answer; scopes are those of a buffered
// and of a streamed task.
func serveRealModel(t *testing.T, python, model, transport string, scopes [2]string) {
	dir := t.TempDir()
	program, config := filepath.Join(dir, "worker.py"), filepath.Join(dir, "config.json")
	settings, _ := json.Marshal(llama.Config{Model: model, Context: 512, Threads: 1, Transport: transport})
	for path, data := range map[string][]byte{program: llama.Worker, config: settings} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	records := filepath.Join(dir, "records.jsonl")
	server, err := gateway.New(gateway.Config{
		Models: []string{"m"}, Records: records,
		Workers: []gateway.Worker{{Command: []string{python, "-I", program, "--config", config}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- server.Run(ctx, func(a net.Addr) { address <- a }) }()
	url := "http://" + (<-address).String()
	for {
		resp, err := http.Get(url + "/health/ready")
		if err != nil {
			t.Fatal(err, <-ended)
		}
		resp.Body.Close()
		if resp.StatusCode == 200 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}

	open := func(ctx context.Context, id, path, body string) *http.Response {
		t.Helper()
		req, _ := http.NewRequestWithContext(ctx, "POST", url+path, strings.NewReader(body))
		req.Header.Set("X-Request-ID", id)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	type answer struct {
		status  int
		text    string
		chunks  int // with content
		finish  string
		code    string
		prompt  int
		atFirst time.Duration
		atEnd   time.Duration
	}
	ask := func(id, path, body string) (a answer) {
		t.Helper()
		began := time.Now()
		resp := open(t.Context(), id, path, body)
		defer resp.Body.Close()
		a.status = resp.StatusCode
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			data := strings.TrimPrefix(lines.Text(), "data: ")
			type message struct{ Content string }
			var v struct {
				Choices []struct {
					Delta, Message message
					Text           string
					FinishReason   string `json:"finish_reason"`
				}
				Usage struct {
					PromptTokens int `json:"prompt_tokens"`
				}
				Error struct{ Code string }
			}
			if data == "" || data == "[DONE]" {
				continue
			}
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				t.Fatalf("%v in %q", err, data)
			}
			a.code += v.Error.Code
			a.prompt += v.Usage.PromptTokens
			for _, c := range v.Choices {
				a.finish += c.FinishReason
				if text := c.Delta.Content + c.Message.Content + c.Text; text != "" {
					if a.chunks++; a.chunks == 1 {
						a.atFirst = time.Since(began)
					}
					a.text += text
				}
			}
		}
		a.atEnd = time.Since(began)
		return a
	}

	const (
		chat   = "/v1/chat/completions"
		text   = "/v1/completions"
		greedy = `,"temperature":0,"seed":1,"max_tokens":12`
		stream = `,"stream":true,"stream_options":{"include_usage":true}`
	)
	hello := `{"model":"m","messages":[{"role":"user","content":"Say hello in Chinese and with an emoji 😀 中"}]` + greedy
	once := `{"model":"m","prompt":"Once upon a time"` + greedy
	texts := map[string]string{}
	for _, c := range []struct{ id, path, body string }{
		{"chat", chat, hello}, {"text", text, once},
	} {
		buffered := ask(c.id, c.path, c.body+"}")
		streamed := ask(c.id+"-stream", c.path, c.body+stream+"}")
		if buffered.status != 200 || buffered.text == "" || buffered.finish == "" || buffered.prompt == 0 {
			t.Errorf("%s buffered: %+v", c.id, buffered)
		}
		if streamed.text != buffered.text || streamed.finish != buffered.finish || streamed.prompt != buffered.prompt {
			t.Errorf("%s: streamed %+v, buffered %+v", c.id, streamed, buffered)
		}
		if streamed.chunks < 3 {
			t.Errorf("%s: only %d increments", c.id, streamed.chunks)
		}
		t.Logf("%s: %q, %d increments, first after %v, last after %v", c.id, streamed.text, streamed.chunks, streamed.atFirst, streamed.atEnd)
		texts[c.id], texts[c.id+"-stream"] = buffered.text, streamed.text
	}

	// Too long a prompt is refused in both modes, and the next request is fine.
	long := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]`, strings.Repeat("word ", 2000)) + greedy
	for mode, more := range map[string]string{"buffered": "", "streamed": stream} {
		if a := ask("long-"+mode, chat, long+more+"}"); a.status != 400 || a.code != "context_length_exceeded" {
			t.Errorf("long %s: %+v", mode, a)
		}
		if a := ask("after-long-"+mode, chat, hello+more+"}"); a.text != texts["chat"] {
			t.Errorf("after the long one: %+v", a)
		}
	}
	for id, body := range map[string]string{
		"bad-sampling": `{"model":"m","prompt":"x","temperature":"warm"}`,
		"bad-grammar":  `{"model":"m","prompt":"x","grammar":"root ::= ("}`,
	} {
		if a := ask(id, text, body); a.status != 400 {
			t.Errorf("%s: %+v", id, a)
		}
	}
	if a := ask("picture", chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`); a.status != 400 {
		t.Errorf("a picture for a text model: %+v", a)
	}

	// A client that leaves a stream stops the generation, and the worker stays.
	ctxGone, leave := context.WithCancel(t.Context())
	resp := open(ctxGone, "gone", text, `{"model":"m","prompt":"Count: 1 2 3","max_tokens":400,"temperature":0,"ignore_eos":true,"stream":true}`)
	if _, err := io.ReadFull(resp.Body, make([]byte, 64)); err != nil {
		t.Error(err)
	}
	leave()
	resp.Body.Close()
	for {
		a := ask("after-gone", text, once+"}")
		if a.status == 429 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if a.text != texts["text"] {
			t.Errorf("after the client left: %+v", a)
		}
		break
	}

	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(records)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(data)) {
		var r record.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Worker != nil && *r.Worker != 1 {
			t.Errorf("%s was served by worker %d", r.RequestID, *r.Worker)
		}
		if r.RequestID == "gone" && (r.Outcome != record.Cancelled || r.Task == nil || r.Task.Increments >= 400) {
			t.Errorf("record %+v %+v", r, r.Task)
		}
		want, ok := texts[r.RequestID]
		if !ok {
			continue
		}
		seen++
		sum := sha256.Sum256([]byte(want))
		task, scope := r.Task, scopes[0]
		if r.Stream {
			scope = scopes[1]
		}
		if task.Scope != scope || r.Outcome != record.Completed || task.TextSHA256 != hex.EncodeToString(sum[:]) || task.TextBytes != int64(len(want)) ||
			*task.CachedTokens != 0 || *task.CompletionTokens != 12 || task.WallNS <= 0 || task.WallNS > r.TotalNS || task.Engine["predicted_ms"] <= 0 {
			t.Errorf("record %+v %+v", r, task)
		}
	}
	if seen != len(texts) {
		t.Errorf("%d records of %d", seen, len(texts))
	}
}

// A worker that cannot load says why, and the server passes it on.
func TestAModelThatIsMissing(t *testing.T) {
	python := os.Getenv("ASSAY_TEST_LLAMA_PYTHON")
	if python == "" {
		t.Skip("ASSAY_TEST_LLAMA_PYTHON is not set")
	}
	for name, c := range map[string]struct{ config, want string }{
		"model":  {`{"model":"/nonexistent.gguf","context":64,"threads":1,"prompt_cache":false,"transport":"in_process"}`, "No such file or directory: '/nonexistent.gguf'"},
		"config": {`{"model":"x","thread":1}`, "missing or unknown: context, prompt_cache, thread, threads, transport"},
		"kind":   {`{"model":"x","context":"64","threads":1,"prompt_cache":false,"transport":"http"}`, "context must be of type int"},
		"way":    {`{"model":"x","context":64,"threads":1,"prompt_cache":false,"transport":"pigeon"}`, "transport must be one of in_process, http"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program, config := filepath.Join(dir, "worker.py"), filepath.Join(dir, "config.json")
			for path, data := range map[string][]byte{program: llama.Worker, config: []byte(c.config)} {
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			server, err := gateway.New(gateway.Config{
				Models: []string{"m"}, Records: filepath.Join(dir, "records.jsonl"),
				Workers: []gateway.Worker{{Command: []string{python, "-I", program, "--config", config}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}
