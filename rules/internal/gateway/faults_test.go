package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

func TestFaults(t *testing.T) {
	const protocol, server = record.Protocol, record.ServerError
	for _, c := range []struct {
		do       string
		stream   bool
		status   int // as seen by the client
		text     string
		cut      bool
		code     string // of the error body or event
		outcome  record.Outcome
		reason   record.Reason
		replaced bool
	}{
		{`{"fault":"reject"}`, false, 429, "", false, "capacity_exceeded", record.Rejected, "", false},
		{`{"fault":"reject"}`, true, 429, "", false, "capacity_exceeded", record.Rejected, "", false},
		{`{"fault":"reject","error":{"status":529,"code":"full"}}`, true, 529, "", false, "full", record.Rejected, "", false},
		{`{"fault":"reject","error":{"status":503,"code":"overloaded"}}`, true, 503, "", false, "overloaded", record.Rejected, "", false},
		{`{"fault":"error","error":{"status":503,"code":"fault"}}`, true, 503, "", false, "fault", record.Failed, server, false},
		{`{"fault":"error","error":{"status":499}}`, true, 502, "", false, "engine_error", record.Failed, server, false},
		{`{"fault":"context_exceeded"}`, false, 400, "", false, "context_length_exceeded", record.Invalid, "", false},
		{`{"fault":"context_exceeded"}`, true, 400, "", false, "context_length_exceeded", record.Invalid, "", false},
		{`{"fault":"error"}`, false, 500, "", false, "engine_error", record.Failed, server, false},
		{`{"fault":"error"}`, true, 500, "", false, "engine_error", record.Failed, server, false},
		{`{"fault":"error","after":2}`, false, 500, "", false, "engine_error", record.Failed, server, false},
		{`{"fault":"error","after":2}`, true, 200, "ab", false, "engine_error", record.Failed, record.StreamError, false},
		{`{"fault":"break","after":2}`, false, 502, "", false, "engine_error", record.Failed, record.BrokenStream, false},
		{`{"fault":"break","after":2}`, true, 200, "ab", false, "", record.Failed, record.BrokenStream, false},
		{`{"fault":"break"}`, true, 502, "", false, "engine_error", record.Failed, record.BrokenStream, false},
		{`{"fault":"die"}`, false, 502, "", false, "worker_failed", record.Failed, protocol, true},
		{`{"fault":"die"}`, true, 502, "", false, "worker_failed", record.Failed, protocol, true},
		{`{"fault":"die","after":2}`, true, 200, "ab", true, "", record.Failed, protocol, true},
		{`{"fault":"malformed_frame"}`, false, 502, "", false, "worker_failed", record.Failed, protocol, true},
		{`{"fault":"malformed_frame","after":2}`, true, 200, "ab", true, "", record.Failed, protocol, true},
		{`{"fault":"oversize_frame","after":2}`, true, 200, "ab", true, "", record.Failed, protocol, true},
		{`{"fault":"oversize_frame"}`, false, 502, "", false, "worker_failed", record.Failed, protocol, true},
		{`{"fault":"wrong_id","after":1}`, true, 200, "a", true, "", record.Failed, protocol, true},
		{`{"fault":"delta_after_done"}`, true, 200, "abc", false, "", record.Completed, "", true},
		{`{"count":0}`, true, 200, "", false, "", record.Completed, "", false},
		{`{"count":0}`, false, 200, "", false, "", record.Completed, "", false},
	} {
		t.Run(fmt.Sprintf("%s stream=%t", c.do, c.stream), func(t *testing.T) {
			do := c.do
			if !strings.Contains(do, "count") {
				do = strings.Replace(do, "{", `{"tokens":["a","b","c"],`, 1)
			}
			f := launch(t, fmt.Sprintf(`{"rules":[{"when":{"prompt":"bad"},"do":%s}],"default":{"tokens":["fine"]}}`, do), nil)
			f.await(worker.Idle, 1)
			mode := ""
			if c.stream {
				mode = streamed
			}
			r := f.ask(t.Context(), chatPath, "bad", chat("bad", mode))
			code, _ := r.err["code"].(string)
			if r.status != c.status || r.text != c.text || (r.cut != nil) != c.cut || code != c.code {
				t.Errorf("got %+v", r)
			}
			if completed := c.outcome == record.Completed; (r.finish != "") != completed || r.done != (completed && c.stream) {
				t.Errorf("finish %q, done %t", r.finish, r.done)
			}
			starts := 1
			if c.replaced {
				starts = 2
			}
			f.await(worker.Idle, starts)
			if next := f.ask(t.Context(), chatPath, "next", chat("fine", mode)); next.text != "fine" || next.finish != "stop" {
				t.Errorf("the next request: %+v", next)
			}
			records := f.end()
			got := one(t, records, "bad")
			if got.Outcome != c.outcome || got.Reason != c.reason || got.Status != c.status || (got.Error == nil) != (c.outcome == record.Completed) {
				t.Errorf("record %+v %+v", got, got.Error)
			}
			if next := one(t, records, "next"); *next.Worker != starts {
				t.Errorf("the next request went to worker %d", *next.Worker)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	for _, c := range []struct {
		name, do, mode string
		status         int
		starts         int
	}{
		{"buffered", `{"tokens":["a","b"],"token_delay_ms":3600000}`, "", 504, 1},
		{"before content", `{"first_delay_ms":3600000}`, streamed, 504, 1},
		{"after content", `{"tokens":["a","b"],"token_delay_ms":3600000}`, streamed, 200, 1},
		{"hung", `{"tokens":["a","b"],"fault":"hang","after":1}`, streamed, 200, 2},
		{"deaf", `{"tokens":["a","b"],"token_delay_ms":3600000,"ignore_cancel":true}`, "", 504, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := launch(t, `{"rules":[{"when":{"prompt":"slow"},"do":`+c.do+`}]}`, func(cfg *Config) {
				cfg.RequestTimeout, cfg.CancelGrace = 1, 0.5
			})
			f.await(worker.Idle, 1)
			r := f.ask(t.Context(), chatPath, "slow", chat("slow", c.mode))
			if r.status != c.status || r.err["code"] != "timeout" || r.done || r.finish != "" {
				t.Errorf("got %+v", r)
			}
			f.await(worker.Idle, c.starts)
			if next := f.ask(t.Context(), chatPath, "next", chat("x", "")); next.status != 200 {
				t.Errorf("the next request: %+v", next)
			}
			records := f.end()
			if got := one(t, records, "slow"); got.Outcome != record.Failed || got.Reason != record.Timeout || got.Status != c.status {
				t.Errorf("record %+v", got)
			}
			if got := one(t, records, "next"); *got.Worker != c.starts {
				t.Errorf("the next request went to worker %d", *got.Worker)
			}
		})
	}
}

func TestDisconnect(t *testing.T) {
	for _, c := range []struct {
		name, do, mode string
		starts         int
	}{
		{"while nothing is written", `{"first_delay_ms":3600000}`, streamed, 1},
		{"buffered", `{"first_delay_ms":3600000}`, "", 1},
		{"from a deaf worker", `{"first_delay_ms":3600000,"ignore_cancel":true}`, "", 2},
		{"from a hung worker", `{"fault":"hang"}`, streamed, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := launch(t, `{"rules":[{"when":{"prompt":"slow"},"do":`+c.do+`}]}`, func(cfg *Config) { cfg.CancelGrace = 0.3 })
			f.await(worker.Idle, 1)
			ctx, leave := context.WithCancel(t.Context())
			answer := make(chan reply)
			go func() { answer <- f.ask(ctx, chatPath, "slow", chat("slow", c.mode)) }()
			f.await(worker.Busy, 1)
			leave()
			<-answer
			f.await(worker.Idle, c.starts)
			records := f.end()
			if got := one(t, records, "slow"); got.Outcome != record.Cancelled || got.Status != 499 || got.FirstWriteNS != nil {
				t.Errorf("record %+v", got)
			}
		})
	}
}

func TestDisconnectInTheMiddleOfTheBody(t *testing.T) {
	f := launch(t, `{}`, nil)
	f.await(worker.Idle, 1)
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nX-Request-ID: torn\r\nContent-Length: 1000\r\n\r\n{", chatPath)
	conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, conn)
	conn.Close()
	if got := one(t, f.end(), "torn"); got.Outcome != record.Cancelled || got.Status != 499 {
		t.Errorf("record %+v", got)
	}
}

// A client that stops reading stops the worker, and is given up in the end.
func TestSlowReader(t *testing.T) {
	token := strings.Repeat("x", 64<<10)
	script := fmt.Sprintf(`{"rules":[{"when":{"prompt":"flood"},"do":{"tokens":[%s]}}]}`, strings.TrimSuffix(strings.Repeat(`"`+token+`",`, 200), ","))
	f := launch(t, script, func(cfg *Config) { cfg.RequestTimeout, cfg.CancelGrace = 2, 0.5 })
	f.await(worker.Idle, 1)
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4096)
	body := chat("flood", `,"stream":true`)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nX-Request-ID: flood\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	f.await(worker.Busy, 1)
	f.await(worker.Idle, 1)
	if got := one(t, f.end(), "flood"); got.Outcome != record.Failed || got.Reason != record.Timeout {
		t.Errorf("record %+v", got)
	}
}
