package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// send sends a request with headers, given as name, value, name, value.
func (f *fixture) send(path, body string, headers ...string) reply {
	f.t.Helper()
	method := "POST"
	if body == "" {
		method = "GET"
	}
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if !strings.Contains(resp.Header.Get("Content-Type"), "json") && resp.Header.Get("Content-Type") != "text/event-stream" {
		data, _ := io.ReadAll(resp.Body)
		return reply{status: resp.StatusCode, header: resp.Header, body: string(data)}
	}
	return f.drain(resp)
}

func TestAPIKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("# for the team\nsecret-one\n\n  secret-two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := launch(t, `{}`, func(c *Config) { c.APIKeysFile = file })
	f.await(worker.Idle, 1) // health needs no key
	for _, path := range []string{chatPath, "/v1/models", "/metrics", "/tokenize"} {
		body := ""
		if path == chatPath {
			body = chat("x", "")
		}
		for _, key := range []string{"", "Bearer ", "Bearer wrong", "secret-one", "Bearer # for the team", "Bearer secret-one\t secret-two"} {
			r := f.send(path, body, "Authorization", key)
			if r.status != 401 || r.err["code"] != "invalid_api_key" || r.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s with %q: %+v", path, key, r)
			}
		}
	}
	for _, key := range []string{"secret-one", "secret-two"} {
		if r := f.send(chatPath, chat("x", ""), "Authorization", "Bearer "+key); r.status != 200 {
			t.Errorf("with %s: %+v", key, r)
		}
	}
	f.end()
	data, err := os.ReadFile(f.records)
	if err != nil || strings.Contains(string(data), "secret") || strings.Contains(f.log.text(), "secret") {
		t.Errorf("a key is in the records or the log (%v)", err)
	}
	if n := strings.Count(string(data), `"status":401`); n != 6 {
		t.Errorf("%d records of refused requests", n)
	}
}

func TestAKeyFileWithoutKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	os.WriteFile(file, []byte("# none\n"), 0o600)
	for _, name := range []string{file, file + "-missing"} {
		cfg := Config{Models: []Model{{Names: []string{"m"}, Workers: []Worker{{Command: []string{"w"}}}}},
			Records: Records{File: filepath.Join(t.TempDir(), "r")}, APIKeysFile: name}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "api_keys_file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestContentPartsByCapability(t *testing.T) {
	picture := `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`
	sound := strings.ReplaceAll(picture, "image_url", "input_audio")
	t.Run("text only", func(t *testing.T) {
		f := launch(t, `{}`, nil)
		f.await(worker.Idle, 1)
		r := f.send(chatPath, picture)
		if r.status != 400 || r.err["param"] != "messages[0].content[1]" || !strings.Contains(fmt.Sprint(r.err["message"]), "image_url") {
			t.Errorf("got %+v", r)
		}
		if rec := f.end()[0]; rec.Outcome != record.Invalid || rec.Lane != nil {
			t.Errorf("record %+v", rec)
		}
	})
	t.Run("pictures", func(t *testing.T) {
		f := launch(t, `{"offers":{"content":["image_url"]}}`, nil)
		f.await(worker.Idle, 1)
		if r := f.send(chatPath, picture); r.status != 200 {
			t.Errorf("got %+v", r)
		}
		if r := f.send(chatPath, sound); r.status != 400 || r.err["param"] != "messages[0].content[1]" {
			t.Errorf("got %+v", r)
		}
		f.end()
	})
}

func TestLogprobs(t *testing.T) {
	f := launch(t, `{"offers":{"logprobs":true},"default":{"tokens":["ab","c"]}}`, nil)
	f.await(worker.Idle, 1)
	const inChat = `"logprobs":{"content":[{"token":"ab","logprob":-0.25,"bytes":[97,98],"top_logprobs":[]}`
	const inText = `"logprobs":{"text_offset":[0,2],"token_logprobs":[-0.25,-0.125],"tokens":["ab","c"],"top_logprobs":null}`
	for _, c := range []struct{ path, body, want string }{
		{chatPath, chat("x", `,"logprobs":true`), inChat},
		{chatPath, chat("x", `,"logprobs":true`+streamed), inChat + "]}"},
		{textPath, completion("x", `,"logprobs":0`), inText},
		{textPath, completion("x", `,"logprobs":0`+streamed), `"text_offset":[2],"token_logprobs":[-0.125],"tokens":["c"]`},
	} {
		if r := f.send(c.path, c.body); r.status != 200 || !strings.Contains(r.body, c.want) || r.text != "abc" {
			t.Errorf("%s %s: %s", c.path, c.body, r.body)
		}
	}
	if r := f.send(chatPath, chat("x", "")); strings.Contains(r.body, "logprobs") {
		t.Errorf("nobody asked: %s", r.body)
	}
	f.end()

	f = launch(t, `{}`, nil)
	f.await(worker.Idle, 1)
	if r := f.send(chatPath, chat("x", `,"logprobs":true`)); r.status != 400 || r.err["param"] != "logprobs" {
		t.Errorf("an engine without them: %+v", r)
	}
	f.end()
}

func TestTraceContextIsPassedOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	f := launch(t, `{}`, nil)
	f.await(worker.Idle, 1)
	want := map[string]string{}
	for _, c := range []struct {
		name, want string
		headers    []string
	}{
		{"a", parent, []string{"traceparent", parent, "tracestate", "a=1", "tracestate", "b=2"}},
		{"b", "", []string{"traceparent", "00-xyz"}},
		{"c", "", []string{"traceparent", parent, "traceparent", parent}},
		{"d", "", nil},
	} {
		if r := f.send(chatPath, chat("x", ""), append(c.headers, "X-Request-ID", c.name)...); r.status != 200 {
			t.Errorf("%s: %+v", c.name, r)
		}
		want[c.name] = c.want
	}
	for _, r := range f.end() {
		if r.Traceparent != want[r.RequestID] {
			t.Errorf("%s: traceparent %q", r.RequestID, r.Traceparent)
		}
	}
	h := http.Header{"Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}}
	if p, s := traceContext(h); p != parent || s != "a=1,b=2" {
		t.Errorf("%q %q", p, s)
	}
}

func TestSeveralModels(t *testing.T) {
	f := launch(t, `{"default":{"tokens":["first"]}}`, func(c *Config) {
		other := filepath.Join(t.TempDir(), "script.json")
		if err := os.WriteFile(other, []byte(`{"default":{"tokens":["second"]}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		second := c.Models[0].Workers[0]
		second.Env = []string{scriptVariable + "=" + other, "GORACE=atexit_sleep_ms=0"}
		c.Models = append(c.Models, Model{Names: []string{"n"}, Workers: []Worker{second}})
	})
	for {
		if _, r := f.readiness(); r.Ready {
			if len(r.Lanes) != 2 || r.Lanes[0].Model != "m" || r.Lanes[1].Model != "n" {
				t.Errorf("lanes %+v", r.Lanes)
			}
			break
		}
	}
	for name, want := range map[string]string{"m": "first", "alias": "first", "n": "second"} {
		if r := f.send(chatPath, strings.Replace(chat("x", ""), `"m"`, fmt.Sprintf("%q", name), 1)); r.text != want {
			t.Errorf("%s answers %q", name, r.text)
		}
	}
	if r := f.send("/tokenize", `{"content":"x"}`); r.status != 404 || r.err["code"] != "model_not_found" {
		t.Errorf("tokenize without a model: %+v", r)
	}
	if r := f.send("/tokenize", `{"content":"x","model":"n"}`); r.status != 501 {
		t.Errorf("tokenize: %+v", r)
	}
	if r := f.send("/v1/models", ""); strings.Count(r.body, `"object":"model"`) != 3 {
		t.Errorf("models: %s", r.body)
	}
	f.end()
}

// A worker of the buffered protocol serves streams too: as one increment.
func TestABufferedWorker(t *testing.T) {
	for _, offers := range []string{`"protocol":1`, `"buffered":true`} {
		f := launch(t, `{"offers":{`+offers+`},"default":{"tokens":["a","b"]},"rules":[{"when":{"prompt":"empty"},"do":{"count":0}},
			{"when":{"prompt":"slow"},"do":{"tokens":["a"],"first_delay_ms":3600000}}]}`, func(c *Config) { c.CancelGrace = 0.2 })
		f.await(worker.Idle, 1)
		for _, stream := range []string{"", streamed} {
			if r := f.send(chatPath, chat("x", stream)); r.text != "ab" || r.finish != "stop" || r.usage == nil {
				t.Errorf("%s%s: %+v", offers, stream, r)
			}
			if r := f.send(chatPath, chat("empty", stream)); r.status != 200 || r.text != "" || r.finish != "stop" {
				t.Errorf("%s%s: %+v", offers, stream, r)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		answer := make(chan reply)
		go func() { answer <- f.ask(ctx, chatPath, "slow", chat("slow", streamed)) }()
		f.await(worker.Busy, 1)
		leave()
		<-answer
		starts := 1
		if offers == `"protocol":1` { // it cannot be told to stop
			starts = 2
		}
		f.await(worker.Idle, starts)
		records := f.end()
		if r := one(t, records, "slow"); r.Outcome != record.Cancelled {
			t.Errorf("%+v", r)
		}
		if task := records[2].Task; !records[2].Stream || task.Scope != record.ScopeCall || task.FirstIncrementNS != nil {
			t.Errorf("a stream of a buffered worker: %+v", task)
		}
	}
}

// Whatever the tokens' boundaries, the client gets the same text in valid pieces.
func TestUTF8ForEverySplit(t *testing.T) {
	const text = "Grü中😀e\u0301!"
	var rules []string
	var hexed []string
	for _, b := range []byte(text) {
		hexed = append(hexed, fmt.Sprintf(`"%02x"`, b))
	}
	rules = append(rules, fmt.Sprintf(`{"when":{"prompt":"bytes"},"do":{"tokens_hex":[%s]}}`, strings.Join(hexed, ",")))
	for i := 1; i < len(text); i++ {
		rules = append(rules, fmt.Sprintf(`{"when":{"prompt":"split %02d"},"do":{"tokens_hex":["%x","%x"]}}`, i, text[:i], text[i:]))
	}
	f := launch(t, `{"rules":[`+strings.Join(rules, ",")+`,{"when":{"prompt":"torn"},"do":{"tokens_hex":["61e4b8"]}}]}`, nil)
	f.await(worker.Idle, 1)
	prompts := []string{"bytes"}
	for i := 1; i < len(text); i++ {
		prompts = append(prompts, fmt.Sprintf("split %02d", i))
	}
	for _, prompt := range prompts {
		for _, stream := range []string{"", streamed} {
			if r := f.send(chatPath, chat(prompt, stream)); r.text != text {
				t.Errorf("%s%s: %q", prompt, stream, r.text)
			}
		}
	}
	if r := f.send(chatPath, chat("torn", streamed)); r.text != "a\uFFFD" {
		t.Errorf("an answer that ends inside a character: %q", r.text)
	}
	f.end()
}

func TestTheQueueIsRecorded(t *testing.T) {
	f := launch(t, `{"rules":[{"when":{"prompt":"hold"},"do":{"tokens":["a","b"],"token_delay_ms":3600000}}]}`, func(c *Config) {
		c.Models[0].Queue = Queue{Length: 1}
	})
	f.await(worker.Idle, 1)
	ctx, leave := context.WithCancel(t.Context())
	held, err := f.open(ctx, chatPath, "hold", chat("hold", streamed))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Body.Close()
	waited := make(chan reply)
	go func() { waited <- f.ask(t.Context(), chatPath, "waits", chat("x", "")) }()
	for !strings.Contains(f.send("/metrics", "").body, `assay_queue_depth{model="m"} 1`) {
	}
	if r := f.ask(t.Context(), chatPath, "full", chat("x", "")); r.status != 429 || r.header.Get("Retry-After") == "" {
		t.Errorf("a full queue: %+v", r)
	}
	leave()
	if r := <-waited; r.status != 200 {
		t.Errorf("after the wait: %+v", r)
	}
	records := f.end()
	if r := one(t, records, "waits"); r.WaitNS == nil || *r.WaitNS <= 0 || *r.QueueDepth != 0 || *r.QueueNS < *r.WaitNS {
		t.Errorf("%+v", r)
	}
	if r := one(t, records, "full"); r.WaitNS != nil || *r.QueueDepth != 1 || r.QueueNS != nil || r.Outcome != record.Rejected {
		t.Errorf("%+v", r)
	}
	if r := one(t, records, "hold"); r.WaitNS != nil {
		t.Errorf("%+v", r)
	}
}

func TestMetricsSayWhatTheRecordsSay(t *testing.T) {
	f := launch(t, `{"default":{"tokens":["a","b"]},"rules":[{"when":{"prompt":"bad"},"do":{"fault":"error"}}]}`, nil)
	f.await(worker.Idle, 1)
	f.send(chatPath, chat("x", streamed))
	f.send(textPath, completion("x y", ""))
	f.send(chatPath, chat("bad", ""))
	f.send(chatPath, `{"model":"nobody","messages":[{"role":"user","content":"x"}]}`)
	text := f.send("/metrics", "").body
	for _, want := range []string{
		`assay_requests_total{endpoint="chat",model="m",outcome="completed",reason="",status="200"} 1`,
		`assay_requests_total{endpoint="completions",model="m",outcome="completed",reason="",status="200"} 1`,
		`assay_requests_total{endpoint="chat",model="m",outcome="failed",reason="server_error",status="500"} 1`,
		`assay_requests_total{endpoint="chat",model="",outcome="invalid",reason="",status="404"} 1`,
		`assay_tokens_total{gen_ai_token_type="output",model="m"} 4`,
		`assay_tokens_total{gen_ai_token_type="input",model="m"} 3`,
		`gen_ai_server_request_duration_seconds_count{error_type="",gen_ai_operation_name="chat",gen_ai_request_model="m"} 1`,
		`gen_ai_server_request_duration_seconds_count{error_type="server_error",gen_ai_operation_name="chat",gen_ai_request_model="m"} 1`,
		`gen_ai_server_request_duration_seconds_count{error_type="",gen_ai_operation_name="text_completion",gen_ai_request_model="m"} 1`,
		`gen_ai_server_time_to_first_token_seconds_count{gen_ai_operation_name="chat",gen_ai_request_model="m"} 1`,
		`gen_ai_server_time_per_output_token_seconds_count{gen_ai_operation_name="chat",gen_ai_request_model="m"} 1`,
		`assay_lanes{model="m",state="idle"} 1`,
		`assay_lanes{model="m",state="busy"} 0`,
		`assay_records_failing 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	f.end()
}

func TestWriteTimeIsRecorded(t *testing.T) {
	f := launch(t, `{}`, nil)
	f.await(worker.Idle, 1)
	f.ask(t.Context(), chatPath, "r", chat("x", streamed))
	r := one(t, f.end(), "r")
	if r.ClientWriteNS == nil || *r.ClientWriteNS <= 0 || *r.ClientWriteNS > r.TotalNS {
		data, _ := json.Marshal(r)
		t.Errorf("%s", data)
	}
}

func TestRepeatedIDs(t *testing.T) {
	var seen ids
	for i := range 2*remembered + 1 {
		if seen.repeated(fmt.Sprint(i)) {
			t.Fatalf("%d came once", i)
		}
	}
	if !seen.repeated(fmt.Sprint(remembered + 1)) {
		t.Error("an id of the last ones is not known")
	}
	if n := len(seen.young) + len(seen.old); n > 2*remembered {
		t.Errorf("%d ids are held", n)
	}
}

// What is written of a stream does not depend on what a model is called.
func TestAModelWithQuotesInItsName(t *testing.T) {
	const name = `a"b""`
	f := launch(t, `{"default":{"tokens":["x","y","z"]}}`, func(c *Config) { c.Models[0].Names = []string{name} })
	f.await(worker.Idle, 1)
	for _, path := range []string{chatPath, textPath} {
		body := chat("p", streamed)
		if path == textPath {
			body = completion("p", streamed)
		}
		if r := f.send(path, strings.Replace(body, `"m"`, `"a\"b\"\""`, 1)); r.text != "xyz" || !r.done {
			t.Errorf("%+v", r)
		}
	}
	f.end()
}
