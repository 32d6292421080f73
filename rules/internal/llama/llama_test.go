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
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"assay/rules/internal/gateway"
	"assay/rules/internal/llama"
	"assay/rules/internal/record"
	"assay/rules/internal/upstream"
)

// TestRealModel serves a real model in the three ways there are: it needs a Python
// with xllamacpp and a GGUF file with a chat template.
func TestRealModel(t *testing.T) {
	python, model := os.Getenv("ASSAY_TEST_LLAMA_PYTHON"), os.Getenv("ASSAY_TEST_GGUF")
	if python == "" || model == "" {
		t.Skip("ASSAY_TEST_LLAMA_PYTHON and ASSAY_TEST_GGUF are not set")
	}
	const context = 512
	write := func(t *testing.T, program []byte, config any) []string {
		dir := t.TempDir()
		command := []string{python, "-I", filepath.Join(dir, "program.py"), "--config", filepath.Join(dir, "config.json")}
		settings, _ := json.Marshal(config)
		for i, data := range map[int][]byte{2: program, 4: settings} {
			if err := os.WriteFile(command[i], data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return command
	}
	t.Run("in process", func(t *testing.T) {
		command := write(t, llama.Worker, llama.Config{Model: model, Context: context, Threads: 1})
		serveRealModel(t, gateway.Model{Workers: []gateway.Worker{{Command: command}}}, true, record.ScopeCall, record.ScopeStream)
	})
	server := llama.ServerConfig{Model: model, Name: "m", Context: context, Slots: 1, Threads: 1}
	t.Run("llama-server", func(t *testing.T) {
		serveRealModel(t, gateway.Model{Upstream: &upstream.Config{
			Adapter: "llama-server", Model: "m", Command: append(write(t, llama.Server, server), "--port", "{port}"),
		}}, true, record.ScopeHTTPCall, record.ScopeHTTPStream)
	})
	t.Run("openai", func(t *testing.T) {
		url := startServer(t, append(write(t, llama.Server, server), "--port"))
		serveRealModel(t, gateway.Model{Upstream: &upstream.Config{
			Adapter: "openai", Model: "m", URL: url, KeyVariable: "LLAMA_API_KEY",
		}}, false, record.ScopeHTTPCall, record.ScopeHTTPStream)
	})
}

// startServer starts the server as somebody else would, and returns its URL.
func startServer(t *testing.T, command []string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	t.Setenv("LLAMA_API_KEY", "of-the-test")
	cmd := exec.Command(command[0], append(command[1:], port)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	for {
		resp, err := http.Get("http://" + address + "/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return "http://" + address
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// serveRealModel asks all that a worker must answer. exact says that the engine's
// own figures and refusals are known too; call and stream are the task's scopes.
func serveRealModel(t *testing.T, m gateway.Model, exact bool, call, streamed string) {
	dir := t.TempDir()
	m.Names = []string{"m"}
	records := filepath.Join(dir, "records.jsonl")
	server, err := gateway.New(gateway.Config{
		Models: []gateway.Model{m}, Records: gateway.Records{File: records},
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
		status int
		text   string
		chunks int // with content
		finish string
		code   string
		prompt int
		// logprobs is how many pieces had log-probabilities.
		logprobs int
		atFirst  time.Duration
		atEnd    time.Duration
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
					Logprobs       struct{ Content []any }
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
				if len(c.Logprobs.Content) > 0 {
					a.logprobs++
				}
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

	// Log-probabilities come with each piece, in both modes.
	for mode, more := range map[string]string{"buffered": "", "streamed": stream} {
		if a := ask("logprobs-"+mode, chat, hello+more+`,"logprobs":true}`); a.text != texts["chat"] || a.logprobs < a.chunks {
			t.Errorf("log-probabilities %s: %+v", mode, a)
		}
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
	if a := ask("picture", chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`); exact && a.status != 400 || a.status < 400 {
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
		task, scope := r.Task, call
		if r.Stream {
			scope = streamed
		}
		if task.Scope != scope || r.Outcome != record.Completed || task.TextSHA256 != hex.EncodeToString(sum[:]) || task.TextBytes != int64(len(want)) ||
			*task.CachedTokens != 0 || *task.CompletionTokens != 12 || task.WallNS <= 0 || task.WallNS > r.TotalNS || exact && task.Engine["predicted_ms"] <= 0 ||
			(task.EngineRequestID == "") != (task.Source == record.SourceWorker) {
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
		"model":  {`{"model":"/nonexistent.gguf","context":64,"threads":1,"prompt_cache":false}`, "No such file or directory: '/nonexistent.gguf'"},
		"config": {`{"model":"x","thread":1}`, "missing or unknown: context, prompt_cache, thread, threads"},
		"kind":   {`{"model":"x","context":"64","threads":1,"prompt_cache":false}`, "context must be of type int"},
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
				Models:  []gateway.Model{{Names: []string{"m"}, Workers: []gateway.Worker{{Command: []string{python, "-I", program, "--config", config}}}}},
				Records: gateway.Records{File: filepath.Join(dir, "records.jsonl")},
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
