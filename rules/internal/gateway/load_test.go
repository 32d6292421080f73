package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

const (
	queueDepth = `assay_queue_depth{model="m"}`
	// holding keeps a lane for as long as the client stays.
	holding = `{"when":{"prompt":"hold"},"do":{"tokens":["a","b"],"token_delay_ms":3600000}}`
)

// clients is the ledger of the clients' side.
type clients struct {
	*fixture
	mu  sync.Mutex
	saw map[string]reply
}

func (c *clients) ask(ctx context.Context, path, id, body string) reply {
	r := c.fixture.ask(ctx, path, id, body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saw[id] = r
	return r
}

// audit compares the clients' ledger with the server's, one to one, and counts how
// the requests ended. No client may have left before its request arrived.
func (c *clients) audit(t *testing.T, records []record.Record) map[string]int {
	t.Helper()
	ended := map[string]int{}
	left := len(c.saw)
	for _, s := range records {
		saw, known := c.saw[s.RequestID]
		if !known || s.Repeated {
			t.Errorf("a record of a request that nobody sent, or one more: %+v", s)
			continue
		}
		delete(c.saw, s.RequestID)
		code := ""
		if s.Error != nil {
			code = s.Error.Code
		}
		ended[fmt.Sprint(s.Outcome, " ", code)]++
		complete := saw.status == 200 && saw.finish != "" && saw.cut == nil && saw.done == s.Stream
		if complete != (s.Outcome == record.Completed) || complete && s.Task.TextSHA256 != hash(saw.text) {
			t.Errorf("the client saw %+v, the record says %+v", saw, s)
		}
		switch {
		case s.Outcome == record.Cancelled:
			if s.Status != 499 || saw.cut == nil {
				t.Errorf("the client saw %+v, the record says %+v", saw, s)
			}
		case saw.status != s.Status:
			t.Errorf("the client saw %+v, the record says %+v", saw, s)
		case saw.err != nil && saw.err["code"] != code:
			t.Errorf("the client saw %v, the record says %+v", saw.err, s.Error)
		case saw.err == nil && saw.cut == nil && s.Outcome != record.Completed && s.Reason != record.BrokenStream:
			t.Errorf("the client was not told of %+v", s)
		}
		if refused := saw.status == 429; refused != (s.Outcome == record.Rejected) || refused && saw.header.Get("Retry-After") == "" {
			t.Errorf("the client saw %+v, the record says %+v", saw, s)
		}
	}
	if len(c.saw) > 0 {
		t.Errorf("%d of %d requests have no record: %v", len(c.saw), left, c.saw)
	}
	return ended
}

// checkQueue checks what a record says of its way to a lane.
func checkQueue(t *testing.T, r record.Record, length int) {
	t.Helper()
	code := ""
	if r.Error != nil {
		code = r.Error.Code
	}
	served := r.Lane != nil
	right := (r.QueueNS != nil) == served && (r.Worker != nil) == served &&
		(r.QueueDepth != nil) == (length > 0) && // each of these requests comes to the queue
		(!served || *r.QueueNS <= r.TotalNS)
	switch {
	case length == 0:
		right = right && r.WaitNS == nil && served == (code != "capacity_exceeded")
	case r.WaitNS != nil: // with room, and behind another or without a free lane
		right = right && *r.QueueDepth < length && *r.WaitNS >= 0 && (!served || *r.WaitNS <= *r.QueueNS) && served == (code != "queue_timeout")
	case served:
		right = right && *r.QueueDepth == 0
	default:
		right = right && *r.QueueDepth >= length && code == "capacity_exceeded"
	}
	if !right {
		t.Errorf("the way to the lane, with a queue of %d: %+v, error %+v", length, r, r.Error)
	}
}

// Whatever is offered, all of it is in the server's records, and they say what the
// clients saw.
func TestLoad(t *testing.T) {
	const script = `{"rules":[
		{"when":{"prompt":"error"},"do":{"fault":"error"}},
		{"when":{"prompt":"break"},"do":{"tokens":["a","b"],"fault":"break","after":1}}],
		"default":{"count":4,"token_delay_ms":1}}`
	kinds := []string{"fine", "error", "fine", "fine", "break", "fine", "fine"}
	for _, lanes := range []int{1, 4} {
		for _, queue := range []Queue{{}, {Length: 2 * lanes, WaitSeconds: 0.006}} {
			t.Run(fmt.Sprintf("%d lanes, queue %d", lanes, queue.Length), func(t *testing.T) {
				f := launch(t, script, func(c *Config) { c.Models[0].Queue, c.Models[0].Workers[0].Count = queue, lanes })
				f.until(func() bool { return f.metric(`assay_lanes{model="m",state="idle"}`) == float64(lanes) })
				c := &clients{fixture: f, saw: map[string]reply{}}
				for _, load := range []struct{ perLane, each int }{{1, 10}, {2, 10}, {10, 5}, {100, 2}} {
					var wg sync.WaitGroup
					for n := range load.perLane * lanes {
						wg.Go(func() {
							for i := range load.each {
								path, body, more := chatPath, chat, ""
								if i%2 == 1 {
									path, body = textPath, completion
								}
								if (n+i)%3 > 0 {
									more = streamed
								}
								c.ask(t.Context(), path, fmt.Sprintf("%d-%d-%d", load.perLane, n, i), body(kinds[(n+i)%len(kinds)], more))
							}
						})
					}
					wg.Wait()
				}
				records := f.end()
				ended := c.audit(t, records)
				waited := 0
				for _, r := range records {
					checkQueue(t, r, queue.Length)
					if r.WaitNS != nil {
						waited++
					}
				}
				t.Logf("%v, %d waited", ended, waited)
				for _, how := range []string{"completed ", "rejected capacity_exceeded", "failed engine_error"} {
					if ended[how] == 0 {
						t.Errorf("no request was %s: the test shows too little", how)
					}
				}
			})
		}
	}
}

// hold takes a lane until leave is called, or the server ends the answer.
func (f *fixture) hold(id string) (answer *http.Response, leave func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	resp, err := f.open(ctx, chatPath, id, chat("hold", streamed))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	return resp, cancel
}

// enqueue sends a request and returns when it waits as the nth.
func (f *fixture) enqueue(ctx context.Context, id string, n int) <-chan reply {
	f.t.Helper()
	answer := make(chan reply, 1)
	go func() { answer <- f.ask(ctx, chatPath, id, chat("x", "")) }()
	f.until(func() bool { return f.metric(queueDepth) == float64(n) })
	return answer
}

// The worker counts its requests, so its answers tell the order in which they came
// to it.
func TestTheQueueIsFirstInFirstOut(t *testing.T) {
	const length, leaver = 10, 4
	var rules []string
	for i := range length + 1 {
		rules = append(rules, fmt.Sprintf(`{"when":{"requests":"%d"},"do":{"tokens":["%d"]}}`, i+2, i+2))
	}
	f := launch(t, `{"rules":[`+holding+","+strings.Join(rules, ",")+`]}`, func(c *Config) { c.Models[0].Queue.Length = length })
	f.await(worker.Idle, 1)
	_, leave := f.hold("hold")
	patience, giveUp := context.WithCancel(t.Context())
	var answers []<-chan reply
	for i := range length {
		ctx := t.Context()
		if i == leaver {
			ctx = patience
		}
		answers = append(answers, f.enqueue(ctx, fmt.Sprint("q", i), i+1))
	}
	giveUp()
	if r := <-answers[leaver]; r.cut == nil {
		t.Errorf("it left, and got %+v", r)
	}
	f.until(func() bool { return f.metric(queueDepth) == length-1 })
	late := f.enqueue(t.Context(), "late", length) // its place is free again
	if r := f.ask(t.Context(), chatPath, "over", chat("x", "")); r.status != 429 {
		t.Errorf("one more than the queue holds: %+v", r)
	}
	leave()
	order := slices.Concat(answers[:leaver], answers[leaver+1:], []<-chan reply{late})
	for i, answer := range order {
		if r := <-answer; r.text != fmt.Sprint(i+2) {
			t.Errorf("place %d of the queue was request %q of the worker: %+v", i, r.text, r)
		}
	}
	records := f.end()
	for i := range length {
		r := one(t, records, fmt.Sprint("q", i))
		if *r.QueueDepth != i {
			t.Errorf("%d waited when request %d came: %+v", *r.QueueDepth, i, r)
		}
		if i != leaver {
			checkQueue(t, r, length)
		}
	}
	left := one(t, records, fmt.Sprint("q", leaver))
	if left.Outcome != record.Cancelled || left.Status != 499 || left.WaitNS == nil || left.Lane != nil || left.QueueNS != nil || left.Task != nil {
		t.Errorf("record of the one that left: %+v", left)
	}
}

func TestAWaitHasAnEnd(t *testing.T) {
	f := launch(t, `{"rules":[`+holding+`]}`, func(c *Config) { c.Models[0].Queue = Queue{Length: 1, WaitSeconds: 0.05} })
	f.await(worker.Idle, 1)
	_, leave := f.hold("hold")
	r := f.ask(t.Context(), chatPath, "waits", chat("x", streamed))
	if r.status != 429 || r.err["code"] != "queue_timeout" || r.header.Get("Retry-After") == "" {
		t.Errorf("got %+v", r)
	}
	leave()
	f.await(worker.Idle, 1)
	if r := one(t, f.end(), "waits"); r.Outcome != record.Rejected || r.Error.Code != "queue_timeout" {
		t.Errorf("record %+v", r)
	} else {
		checkQueue(t, r, 1)
	}
}

// The lane stays taken: its worker is deaf, and has all the time to end.
func TestTheDeadlineEndsAWait(t *testing.T) {
	deaf := strings.Replace(holding, `"token_delay_ms"`, `"ignore_cancel":true,"token_delay_ms"`, 1)
	f := launch(t, `{"rules":[`+deaf+`]}`, func(c *Config) {
		c.Models[0].Queue.Length, c.RequestTimeout, c.CancelGrace = 1, 0.5, 3600
	})
	f.await(worker.Idle, 1)
	held, _ := f.hold("hold")
	if r := f.ask(t.Context(), chatPath, "waits", chat("x", "")); r.status != 504 || r.err["code"] != "timeout" {
		t.Errorf("got %+v", r)
	}
	kill(t, awaitWorkers(f.script, 1)[0])
	f.drain(held)
	r := one(t, f.end(), "waits")
	if r.Outcome != record.Failed || r.Reason != record.Timeout || r.Status != 504 || r.WaitNS == nil || *r.QueueDepth != 0 || r.Lane != nil || r.QueueNS != nil {
		t.Errorf("record %+v", r)
	}
}

func TestTheDrainServesTheQueue(t *testing.T) {
	f := launch(t, `{"rules":[`+holding+`]}`, func(c *Config) { c.Models[0].Queue.Length, c.DrainTimeout = 2, 3600 })
	f.await(worker.Idle, 1)
	_, leave := f.hold("hold")
	first, second := f.enqueue(t.Context(), "first", 1), f.enqueue(t.Context(), "second", 2)
	f.stop()
	for refused := false; !refused; {
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if refused = err != nil; !refused {
			conn.Close()
		}
	}
	leave()
	for _, answer := range []<-chan reply{first, second} {
		if r := <-answer; r.status != 200 || r.finish != "stop" {
			t.Errorf("got %+v", r)
		}
	}
	records := f.end()
	for _, id := range []string{"first", "second"} {
		if r := one(t, records, id); r.Outcome != record.Completed || r.WaitNS == nil {
			t.Errorf("record %+v", r)
		}
	}
}

func TestTheEndOfTheDrainEndsTheQueue(t *testing.T) {
	f := launch(t, `{"rules":[`+holding+`]}`, func(c *Config) { c.Models[0].Queue.Length, c.DrainTimeout = 2, 0.1 })
	f.await(worker.Idle, 1)
	held, _ := f.hold("hold")
	first, second := f.enqueue(t.Context(), "first", 1), f.enqueue(t.Context(), "second", 2)
	f.stop()
	if r := f.drain(held); r.err["code"] != "stopping" || r.done {
		t.Errorf("the one with the lane: %+v", r)
	}
	for _, answer := range []<-chan reply{first, second} {
		if r := <-answer; r.status != 503 || r.err["code"] != "stopping" {
			t.Errorf("got %+v", r)
		}
	}
	records := f.end()
	for _, id := range []string{"first", "second"} {
		if r := one(t, records, id); r.Outcome != record.Failed || r.Reason != record.ServerError || r.Status != 503 || r.WaitNS == nil || r.Lane != nil {
			t.Errorf("record %+v", r)
		}
	}
}

// sockets is how many this process has open.
func sockets() (n int) {
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// Nothing of 2,000 requests stays, whatever became of them.
func TestNoGoroutineIsLeft(t *testing.T) {
	before, quiet := runtime.NumGoroutine(), sockets()
	f := launch(t, `{"rules":[
		{"when":{"prompt":"error"},"do":{"fault":"error"}},
		{"when":{"prompt":"break"},"do":{"tokens":["a","b"],"fault":"break","after":1}},
		{"when":{"prompt":"die"},"do":{"tokens":["a","b"],"fault":"die","after":1}},
		`+holding+`]}`, func(c *Config) {
		c.Models[0].Workers[0].Count, c.Models[0].Queue = 2, Queue{Length: 20} // there is room for all
	})
	bothIdle := func() bool { return f.metric(`assay_lanes{model="m",state="idle"}`) == 2 }
	f.until(bothIdle)
	f.client.CloseIdleConnections()
	f.until(func() bool { return sockets() <= quiet+1 }) // the listener's
	serving := runtime.NumGoroutine()
	var wg sync.WaitGroup
	statuses := make([]map[int]int, 20)
	for n := range statuses {
		statuses[n] = map[int]int{}
		wg.Go(func() {
			for i := range 100 {
				kind, more := "fine", ""
				switch {
				case i == 50:
					kind = "die"
				case i%10 == 3:
					kind = "error"
				case i%10 == 6:
					kind, more = "break", streamed
				case i%10 == 9:
					kind, more = "hold", streamed
				case i%2 == 0:
					more = streamed
				}
				ctx, cancel := context.WithCancel(t.Context())
				if kind == "hold" {
					ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond)
				}
				statuses[n][f.ask(ctx, chatPath, "", chat(kind, more)).status]++
				cancel()
			}
		})
	}
	wg.Wait()
	f.until(bothIdle)
	f.client.CloseIdleConnections()
	f.until(func() bool { return runtime.NumGoroutine() <= serving })
	f.end()
	for runtime.NumGoroutine() > before {
		time.Sleep(2 * time.Millisecond)
	}
	sum := map[int]int{}
	for _, s := range statuses {
		for status, n := range s {
			sum[status] += n
		}
	}
	t.Logf("statuses %v; goroutines %d before, %d with an idle server", sum, before, serving)
}
