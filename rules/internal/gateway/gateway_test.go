package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/rules/internal/openai"
	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// one returns the record with an id and fails unless there is exactly one.
func one(t *testing.T, records []record.Record, id string) record.Record {
	t.Helper()
	var found []record.Record
	for _, r := range records {
		if r.RequestID == id {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d records for %s", len(found), id)
	}
	return found[0]
}

func TestAnswers(t *testing.T) {
	f := launch(t, `{"default":{"tokens":["Grü","ße, ","<b>中</b>"," 😀"],"prompt_tokens":7,"cached_tokens":0}}`, nil)
	f.await(worker.Idle, 1)
	const text = "Grüße, <b>中</b> 😀"
	ids := []string{}
	for _, c := range []struct{ name, path, body, text, finish string }{
		{"chat buffered", chatPath, chat("hi", ""), text, "stop"},
		{"chat streamed", chatPath, chat("hi", streamed), text, "stop"},
		{"completion buffered", textPath, completion("hi", ""), text, "stop"},
		{"completion streamed", textPath, completion("hi", streamed), text, "stop"},
		{"cut", chatPath, chat("hi", `,"max_completion_tokens":2`+streamed), "Grüße, ", "length"},
		{"cut buffered", textPath, completion("hi", `,"max_tokens":2`), "Grüße, ", "length"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := "id/" + strings.ReplaceAll(c.name, " ", "-")
			ids = append(ids, id)
			r := f.ask(t.Context(), c.path, id, c.body)
			stream := strings.Contains(c.body, "stream")
			if r.status != 200 || r.text != c.text || r.finish != c.finish || r.done != stream || r.cut != nil {
				t.Errorf("got %+v", r)
			}
			if r.header.Get("X-Request-ID") != id {
				t.Errorf("the id came back as %q", r.header.Get("X-Request-ID"))
			}
			if r.usage["prompt_tokens"] != 7.0 || r.usage["prompt_tokens_details"].(map[string]any)["cached_tokens"] != 0.0 {
				t.Errorf("usage %v", r.usage)
			}
		})
	}
	records := f.end()
	if len(records) != len(ids) {
		t.Errorf("%d records for %d requests", len(records), len(ids))
	}
	for _, id := range ids {
		r := one(t, records, id)
		if r.Outcome != record.Completed || r.Status != 200 || r.IDSource != "client" || r.Repeated || r.Error != nil || r.Reason != "" {
			t.Errorf("record %+v", r)
		}
		prompt := hash("hi")
		if r.Endpoint == "chat" {
			prompt = hash(`[{"content":"hi","role":"user"}]`)
		}
		if r.PromptSHA256 != prompt {
			t.Errorf("prompt %s, want %s", r.PromptSHA256, prompt)
		}
		want, scope := text, record.ScopeCall
		if r.Stream {
			scope = record.ScopeStream
		}
		if strings.Contains(id, "cut") {
			want = "Grüße, "
		}
		task := r.Task
		if task.TextSHA256 != hash(want) || task.TextBytes != int64(len(want)) || task.Scope != scope || *task.PromptTokens != 7 {
			t.Errorf("task %+v", task)
		}
		if r.QueueNS == nil || r.FirstWriteNS == nil || *r.QueueNS > *r.FirstWriteNS || *r.FirstWriteNS > r.TotalNS || *r.Lane != 0 || *r.Worker != 1 || r.BootID == "" {
			t.Errorf("times and places %+v", r)
		}
	}
}

func TestStreamHasTheFormOfTheInterface(t *testing.T) {
	f := launch(t, `{"default":{"tokens":["a","b"],"no_usage":true}}`, nil)
	f.await(worker.Idle, 1)
	r := f.ask(t.Context(), chatPath, "x", chat("hi", streamed))
	var shapes []string
	for event := range strings.SplitSeq(r.body, "\n\n") {
		data := strings.TrimPrefix(event, "data: ")
		var v struct {
			Object  string
			Choices []map[string]any
		}
		if json.Unmarshal([]byte(data), &v) != nil {
			shapes = append(shapes, data)
			continue
		}
		shape, _ := json.Marshal(v.Choices)
		shapes = append(shapes, v.Object+" "+string(shape))
	}
	want := []string{
		`chat.completion.chunk [{"delta":{"content":"","role":"assistant"},"finish_reason":null,"index":0}]`,
		`chat.completion.chunk [{"delta":{"content":"a"},"finish_reason":null,"index":0}]`,
		`chat.completion.chunk [{"delta":{"content":"b"},"finish_reason":null,"index":0}]`,
		`chat.completion.chunk [{"delta":{},"finish_reason":"stop","index":0}]`,
		`chat.completion.chunk []`, `[DONE]`, ``,
	}
	if strings.Join(shapes, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(shapes, "\n"))
	}
	if r.usage != nil {
		t.Errorf("unknown counts became %v", r.usage)
	}
}

func TestRequestIDs(t *testing.T) {
	f := launch(t, `{}`, nil)
	f.await(worker.Idle, 1)
	send := func(ids ...string) *http.Response {
		req, _ := http.NewRequest("POST", f.url+textPath, strings.NewReader(completion("hi", "")))
		req.Header["X-Request-Id"] = ids
		resp, err := f.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp
	}
	long := strings.Repeat("a", 128)
	for _, good := range []string{"a", "A.b_c:d/e-1", long} {
		if resp := send(good); resp.StatusCode != 200 || resp.Header.Get("X-Request-ID") != good {
			t.Errorf("%q: %d, %q", good, resp.StatusCode, resp.Header.Get("X-Request-ID"))
		}
	}
	bad := [][]string{{""}, {"-a"}, {"a b"}, {"ä"}, {long + "a"}, {"a", "a"}, {"a", "b"}}
	for _, ids := range bad {
		if resp := send(ids...); resp.StatusCode != 400 || resp.Header.Get("X-Request-ID") == "" {
			t.Errorf("%q: %d", ids, resp.StatusCode)
		}
	}
	made := send().Header.Get("X-Request-ID")
	if len(made) != 36 || made[14] != '4' || !strings.ContainsRune("89ab", rune(made[19])) {
		t.Errorf("%q is not a version 4 UUID", made)
	}
	send("a")
	invalid, repeated := 0, 0
	records := f.end()
	for _, r := range records {
		if r.Outcome == record.Invalid && r.IDSource == "server" && r.Status == 400 {
			invalid++
		}
		if r.Repeated {
			repeated++
			if r.RequestID != "a" || r.Outcome != record.Completed {
				t.Errorf("a repeat is served and marked: %+v", r)
			}
		}
	}
	if invalid != len(bad) || repeated != 1 || len(records) != len(bad)+5 || one(t, records, made).IDSource != "server" {
		t.Errorf("%d invalid, %d repeated, %d records", invalid, repeated, len(records))
	}
}

func TestRefusals(t *testing.T) {
	f := launch(t, `{}`, func(c *Config) {
		c.MaxBodyBytes, c.MaxOutputTokens = 1000, 20
		c.Models[0].Endpoints = []openai.Endpoint{openai.Chat}
	})
	f.await(worker.Idle, 1)
	for i, c := range []struct {
		method, path, body string
		status             int
		param              string
		recorded           bool
	}{
		{"POST", chatPath, `{`, 400, "", true},
		{"POST", chatPath, `{"model":"m","messages":"x"}`, 400, "messages", true},
		{"POST", chatPath, chat("x", `,"n":2`), 400, "n", true},
		{"POST", chatPath, chat("x", `,"max_tokens":21`), 400, "max_tokens", true},
		{"POST", chatPath, strings.Replace(chat("x", ""), `"m"`, `"other"`, 1), 404, "model", true},
		{"POST", textPath, completion("x", ""), 400, "model", true},
		{"POST", chatPath, chat(strings.Repeat("x", 1000), ""), 413, "", true},
		{"GET", chatPath, "", 405, "", true},
		{"POST", "/v1/models", "", 405, "", false},
		{"GET", "/v1/embeddings", "", 404, "", false},
		{"GET", "/", "", 404, "", false},
	} {
		req, _ := http.NewRequest(c.method, f.url+c.path, strings.NewReader(c.body))
		id := fmt.Sprintf("r%d", i)
		req.Header.Set("X-Request-ID", id)
		resp, err := f.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r := f.drain(resp)
		resp.Body.Close()
		param, _ := r.err["param"].(string)
		if r.status != c.status || param != c.param || r.err["message"] == "" || r.err["type"] != "invalid_request_error" {
			t.Errorf("%s %s %.60s: %d %v", c.method, c.path, c.body, r.status, r.err)
		}
	}
	if r := f.ask(t.Context(), chatPath, "fine", strings.Replace(chat("x", ""), `"m"`, `"alias"`, 1)); r.status != 200 {
		t.Errorf("after all refusals: %+v", r)
	}
	resp, err := f.client.Get(f.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if models, _ := io.ReadAll(resp.Body); !strings.Contains(string(models), `"id":"m"`) || !strings.Contains(string(models), `"id":"alias"`) {
		t.Errorf("models %s", models)
	}
	records := f.end()
	if len(records) != 9 {
		t.Errorf("%d records", len(records))
	}
	for _, r := range records {
		if r.RequestID != "fine" && (r.Outcome != record.Invalid || r.Status < 400 || r.Error == nil || r.Task != nil) {
			t.Errorf("record %+v", r)
		}
	}
}

func TestBusyIsRefusedAtOnce(t *testing.T) {
	f := launch(t, `{"rules":[{"when":{"prompt":"long"},"do":{"tokens":["a","b"],"token_delay_ms":3600000}}]}`, nil)
	f.await(worker.Idle, 1)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp, err := f.open(ctx, chatPath, "long", chat("long", streamed))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, stream := range []string{"", streamed} {
		r := f.ask(t.Context(), chatPath, "busy"+fmt.Sprint(len(stream)), chat("x", stream))
		if r.status != 429 || r.header.Get("Retry-After") != "1" || r.err["code"] != "capacity_exceeded" {
			t.Errorf("got %+v", r)
		}
	}
	if status, ready := f.readiness(); status != 200 || ready.Lanes[0].State != worker.Busy {
		t.Errorf("%d %+v", status, ready)
	}
	leave()
	f.await(worker.Idle, 1)
	if r := f.ask(t.Context(), chatPath, "next", chat("x", "")); r.status != 200 {
		t.Errorf("after the client left: %+v", r)
	}
	records := f.end()
	for _, id := range []string{"busy0", fmt.Sprint("busy", len(streamed))} {
		if r := one(t, records, id); r.Outcome != record.Rejected || r.Status != 429 || r.Task != nil || r.Lane != nil {
			t.Errorf("record %+v", r)
		}
	}
	gone := one(t, records, "long")
	if gone.Outcome != record.Cancelled || gone.Status != 499 || gone.Task == nil || gone.Task.TextBytes != 1 {
		t.Errorf("record %+v", gone)
	}
	if next := one(t, records, "next"); *next.Worker != 1 {
		t.Error("a worker that heard the cancel was replaced")
	}
}

func TestStartThatFails(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"fatal", `{"start":{"mode":"fatal","message":"no such model file"}}`, "no such model file"},
		{"dies", `{"start":{"mode":"die"}}`, "exit status 3"},
		{"hangs", `{"start":{"mode":"hang"}}`, "not ready within"},
		{"speaks another protocol", `{"start":{"mode":"bad_hello"}}`, "protocol 3"},
		{"cannot even read its script", `{"bogus":1}`, "exit status 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := launch(t, c.script, func(cfg *Config) { cfg.StartupTimeout = 1; cfg.Models[0].Workers[0].Count = 2 })
			if err := <-f.ended; err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "lane 1") {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestNotReadyIsNoOverload(t *testing.T) {
	f := launch(t, `{"start":{"delay_ms":3600000}}`, nil)
	if status, r := f.readiness(); status != 503 || r.Ready || r.Lanes[0].State != worker.Loading {
		t.Errorf("%d %+v", status, r)
	}
	if resp, err := f.client.Get(f.url + "/health/live"); err != nil || resp.StatusCode != 200 {
		t.Errorf("live: %v %v", resp, err)
	}
	if r := f.ask(t.Context(), chatPath, "early", chat("x", "")); r.status != 503 || r.header.Get("Retry-After") != "" {
		t.Errorf("got %+v", r)
	}
	if got := one(t, f.end(), "early"); got.Outcome != record.Failed || got.Reason != record.ServerError {
		t.Errorf("record %+v", got)
	}
}

func TestAReplicaThatCannotBeReloadedStaysOut(t *testing.T) {
	f := launch(t, `{"rules":[{"when":{"prompt":"die"},"do":{"fault":"die"}}]}`, nil)
	f.await(worker.Idle, 1)
	f.rewrite(`{"start":{"mode":"fatal","message":"the memory is gone"}}`)
	f.ask(t.Context(), chatPath, "die", chat("die", ""))
	lane := f.await(worker.Out, 2)
	if !strings.Contains(lane.Reason, "the memory is gone") {
		t.Errorf("lane %+v", lane)
	}
	if status, _ := f.readiness(); status != 503 {
		t.Errorf("ready: %d", status)
	}
	if r := f.ask(t.Context(), chatPath, "next", chat("x", "")); r.status != 503 {
		t.Errorf("got %+v", r)
	}
	if len(f.end()) != 2 {
		t.Error("a record is missing")
	}
}

func TestDrainLetsRequestsFinish(t *testing.T) {
	f := launch(t, `{"default":{"tokens":["a","b"],"token_delay_ms":300}}`, nil)
	f.await(worker.Idle, 1)
	resp, err := f.open(t.Context(), chatPath, "last", chat("x", streamed))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f.stop()
	if r := f.drain(resp); r.text != "ab" || !r.done || r.cut != nil {
		t.Errorf("got %+v", r)
	}
	if got := one(t, f.end(), "last"); got.Outcome != record.Completed {
		t.Errorf("record %+v", got)
	}
	if _, err := f.open(t.Context(), chatPath, "late", chat("x", "")); err == nil {
		t.Error("a request was accepted after the end")
	}
}

func TestDrainHasAnEnd(t *testing.T) {
	f := launch(t, `{"default":{"tokens":["a","b"],"fault":"hang","after":1}}`, func(c *Config) { c.DrainTimeout, c.CancelGrace, c.Models[0].Workers[0].Count = 0.2, 0.2, 2 })
	f.await(worker.Idle, 1)
	resp, err := f.open(t.Context(), chatPath, "open", chat("x", streamed))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f.stop()
	if r := f.drain(resp); r.text != "a" || r.err["code"] != "stopping" || r.done {
		t.Errorf("got %+v", r)
	}
	if got := one(t, f.end(), "open"); got.Outcome != record.Failed || got.Reason != record.ServerError {
		t.Errorf("record %+v", got)
	}
}

// Whatever many clients do at once, their ledger and the server's agree.
func TestLedgersAgree(t *testing.T) {
	script := `{"rules":[
		{"when":{"prompt":"hang"},"do":{"tokens":["a","b"],"token_delay_ms":3600000}},
		{"when":{"prompt":"die"},"do":{"tokens":["a","b"],"fault":"die","after":1}},
		{"when":{"prompt":"error"},"do":{"fault":"error"}},
		{"when":{"prompt":"break"},"do":{"tokens":["a","b"],"fault":"break","after":1}}],
		"default":{"count":4,"token_delay_ms":1}}`
	f := launch(t, script, func(c *Config) { c.Models[0].Workers[0].Count = 3 })
	f.await(worker.Idle, 1)
	const clients, each = 24, 12
	kinds := []string{"fine", "fine", "error", "fine", "break", "fine", "hang", "fine", "fine", "die"}
	var mu sync.Mutex
	client := map[string]reply{}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				kind, mode := kinds[(c+i)%len(kinds)], ""
				if i%2 == 0 {
					mode = streamed
				}
				ctx, cancel := context.WithCancel(t.Context())
				if kind == "hang" {
					ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
				}
				id := fmt.Sprintf("c%d-%d-%s", c, i, kind)
				r := f.ask(ctx, chatPath, id, chat(kind, mode))
				cancel()
				mu.Lock()
				client[id] = r
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	server := map[string]record.Record{}
	for _, r := range f.end() {
		if _, twice := server[r.RequestID]; twice {
			t.Errorf("two records for %s", r.RequestID)
		}
		server[r.RequestID] = r
	}
	outcomes := map[record.Outcome]int{}
	for id, c := range client {
		s, ok := server[id]
		if !ok {
			// A request that was given up before it was sent never arrived.
			if !strings.HasSuffix(id, "hang") || c.cut == nil {
				t.Errorf("no record for %s: %+v", id, c)
			}
			continue
		}
		outcomes[s.Outcome]++
		if c.status != 0 && s.Status != 499 && c.status != s.Status {
			t.Errorf("%s: the client saw %d, the server sent %d", id, c.status, s.Status)
		}
		completed := c.status == 200 && c.finish != ""
		if completed != (s.Outcome == record.Completed) {
			t.Errorf("%s: the client saw %+v, the record says %s", id, c, s.Outcome)
		}
		if completed && s.Task.TextSHA256 != hash(c.text) {
			t.Errorf("%s: the texts differ", id)
		}
		if c.status != 0 && (c.status == 429) != (s.Outcome == record.Rejected) {
			t.Errorf("%s: the client saw %d, the record says %s", id, c.status, s.Outcome)
		}
	}
	if len(server) > len(client) {
		t.Errorf("%d records for %d requests", len(server), len(client))
	}
	t.Logf("outcomes: %v", outcomes)
	for _, o := range []record.Outcome{record.Completed, record.Rejected, record.Failed} {
		if outcomes[o] == 0 {
			t.Errorf("no request was %s; the test shows too little", o)
		}
	}
}

func TestConfig(t *testing.T) {
	good := `{"models":[{"names":["m"],"workers":[{"command":["w"],"cpus":[1],"count":2}],"queue":{"length":3}},
		{"names":["n"],"upstream":{"adapter":"openai","url":"http://127.0.0.1:9","model":"x","lanes":4}}],"records":{"file":"r","sync":"always"},"request_timeout_seconds":1.5}`
	c, err := ParseConfig([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.complete(); err != nil || c.CancelGrace != 2 || c.Listen != "127.0.0.1:0" {
		t.Errorf("%+v, %v", c, err)
	}
	for i, want := range []int{2, 4} {
		if lanes, err := c.Models[i].lanes(slog.Default()); err != nil || len(lanes) != want {
			t.Errorf("models[%d]: %d lanes, want %d (%v)", i, len(lanes), want, err)
		}
	}
	if _, err := ParseConfig([]byte(`{"modles":[]}`)); err == nil || !strings.Contains(err.Error(), "modles") {
		t.Errorf("got %v", err)
	}
	bad := Config{Models: []Model{{Endpoints: []openai.Endpoint{"speech"}, Workers: []Worker{{Env: []string{"X"}, Count: -1}}}, {Names: []string{"a", "a"}}}, RequestTimeout: -1, MaxBodyBytes: 1 << 40, MaxOutputTokens: -1}
	_, err = New(bad)
	for _, want := range []string{"models[0].names", "either workers or an upstream", `"a" is a name of`, "speech", "records", "command", "env", "count", "request_timeout_seconds", "max_body_bytes", "max_output_tokens"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if _, err := New(Config{Models: []Model{{Names: []string{"m"}, Workers: []Worker{{Command: []string{"w"}}}}}, Records: Records{File: filepath.Join(t.TempDir(), "no", "dir")}}); err == nil {
		t.Error("a record file that cannot be opened was accepted")
	}
}
