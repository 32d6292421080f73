package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// dial opens a connection of which the test sees every byte. Its deadline only
// turns a hang into a failure.
func (f *fixture) dial() net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	f.t.Cleanup(func() { conn.Close() })
	return conn
}

// answer is one response to raw bytes.
type answer struct {
	status int
	id     string // X-Request-ID
	closes bool
}

// next reads one response.
func next(br *bufio.Reader, method string) (answer, error) {
	resp, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	io.Copy(io.Discard, resp.Body)
	return answer{resp.StatusCode, resp.Header.Get(idHeader), resp.Close}, nil
}

// post is a request with a body and its length; lines are more of its header.
func post(id, body string, lines ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-ID: %s\r\n%sContent-Length: %d\r\n\r\n%s", chatPath, id, head(lines), len(body), body)
}

// unmeasured is a request whose body has no length in the header; the body is given
// as it goes over the wire.
func unmeasured(id, wire string, lines ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-ID: %s\r\n%s\r\n%s", chatPath, id, head(lines), wire)
}

func head(lines []string) string {
	return strings.Join(append(lines, ""), "\r\n")
}

func chunk(body string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(body), body) }

func TestAttacks(t *testing.T) {
	const te = "Transfer-Encoding: chunked"
	ok := chat("x", "")
	zipped := new(bytes.Buffer)
	z := gzip.NewWriter(zipped)
	io.WriteString(z, ok)
	z.Close()
	many := func(n int) (lines []string) {
		for i := range n {
			lines = append(lines, fmt.Sprintf("X-%d: v", i))
		}
		return lines
	}
	nested := func(depth int) string {
		return chat("x", `,"x":`+strings.Repeat("[", depth)+strings.Repeat("]", depth))
	}
	at := func(target, version string) string {
		return fmt.Sprintf("POST %s %s\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", target, version, len(ok), ok)
	}
	f := launch(t, `{}`, func(c *Config) { c.MaxPromptBytes = 10_000 })
	f.await(worker.Idle, 1)
	answers := map[string][]answer{} // by case
	want := map[string]int{}         // how many of them are to requests for inference
	requests := 0
	for _, c := range []struct {
		name, send string
		want       []int // statuses of the responses, in order
		infers     int   // how many of them are to requests for inference
	}{
		{"two request ids", post("a", ok, "X-Request-ID: b"), []int{400}, 1},
		{"the same request id twice", post("a", ok, "X-Request-ID: a"), []int{400}, 1},
		{"a request id of two folded lines", post("a\r\n b", ok), []int{400}, 1},
		{"a folded header", post("folded", ok, "X-Long: a\r\n\tb"), []int{200}, 1},

		{"two lengths", post("a", ok, "Content-Length: 5"), []int{400}, 0},
		{"one length twice", post("same-length", ok, fmt.Sprint("Content-Length: ", len(ok))), []int{200}, 1},
		{"a length with a sign", unmeasured("a", ok, "Content-Length: +5"), []int{400}, 0},
		{"a negative length", unmeasured("a", ok, "Content-Length: -5"), []int{400}, 0},
		{"a length out of range", unmeasured("a", ok, "Content-Length: 99999999999999999999"), []int{400}, 0},
		{"a list of lengths", unmeasured("a", ok, "Content-Length: 5, 5"), []int{400}, 0},
		// The chunks count, not the length: what follows them is a request of its own.
		{"length and chunks", post("both", chunk(ok)+"0\r\n\r\n", te) + post("both-2", ok), []int{200, 200}, 2},
		{"a length that covers a second request", post("hidden", "0\r\n\r\n"+post("hidden-2", ok), te), []int{400, 200}, 2},
		{"chunks that cover a second request", unmeasured("covered", chunk(post("covered-2", ok))+"0\r\n\r\n", te), []int{400}, 1},
		{"bytes after the body", post("trailing", ok) + "garbage\r\n\r\n", []int{200, 400}, 1},
		{"bytes after the chunks", unmeasured("trailing-chunks", chunk(ok)+"0\r\n\r\nPOST", te) + "\r\n\r\n", []int{200, 400}, 1},

		{"an unknown coding", unmeasured("a", ok, "Transfer-Encoding: brotli"), []int{501}, 0},
		{"a coding under the chunks", unmeasured("a", ok, "Transfer-Encoding: gzip, chunked"), []int{501}, 0},
		{"chunks twice", unmeasured("a", ok, te, te), []int{501}, 0},
		{"a coding that hides", unmeasured("a", ok, "Transfer-Encoding: \x0bchunked"), []int{400}, 0},
		{"chunks of HTTP/1.0", strings.Replace(unmeasured("old-chunks", chunk(ok)+"0\r\n\r\n", te), "1.1", "1.0", 1), []int{400}, 1},
		{"chunks with extensions", unmeasured("extensions", strings.Replace(chunk(ok), "\r\n", ";a=b;c=\"d\"\r\n", 1)+"0;e\r\n\r\n", te), []int{200}, 1},
		{"chunks and a trailer", unmeasured("trailer", chunk(ok)+"0\r\nX-Request-ID: other\r\n\r\n", te), []int{200}, 1},
		{"a chunk of no size", unmeasured("no-size", "\r\n"+ok, te), []int{400}, 1},
		{"a chunk size in words", unmeasured("words", "five\r\n"+ok, te), []int{400}, 1},
		{"a negative chunk", unmeasured("negative", "-1\r\n"+ok, te), []int{400}, 1},
		{"a chunk size out of range", unmeasured("range", "ffffffffffffffffff\r\n"+ok, te), []int{400}, 1},
		{"a chunk that is longer than it says", unmeasured("longer", "2\r\n"+ok+"\r\n0\r\n\r\n", te), []int{400}, 1},
		{"an endless chunk extension", unmeasured("endless", "1;"+strings.Repeat("x", 100<<10)+"\r\n{\r\n", te), []int{400}, 1},

		{"NUL in a header", post("a", ok, "X-Nul: a\x00b"), []int{400}, 0},
		{"a bare CR in a header", post("a", ok, "X-Cr: a\rb"), []int{400}, 0},
		{"a space before the colon", post("a", ok, "X-Space : b"), []int{400}, 0},
		{"a header without a colon", post("a", ok, "nothing"), []int{400}, 0},
		{"a header larger than the limit", post("a", ok, "X-Large: "+strings.Repeat("x", 2*maxHeaderBytes)), []int{431}, 0},
		{"more small headers than the limit", post("a", ok, many(10_000)...), []int{431}, 0},
		{"many headers", post("many", ok, many(1000)...), []int{200}, 1},
		{"no host", strings.Replace(post("a", ok), "Host: x\r\n", "", 1), []int{400}, 0},
		{"two hosts", post("a", ok, "Host: y"), []int{400}, 0},

		{"an absolute target", at("http://x"+chatPath, "HTTP/1.1"), []int{200}, 1},
		{"an asterisk", at("*", "HTTP/1.1"), []int{400}, 0},
		{"a path that is not clean", at("/v1/../v1/chat/completions", "HTTP/1.1"), []int{307}, 0},
		{"a path that is encoded", at("/v1/%63hat/completions", "HTTP/1.1"), []int{200}, 1},
		{"a target with a space", at("/v1/chat completions", "HTTP/1.1"), []int{400}, 0},
		{"HTTP/1.0", at(chatPath, "HTTP/1.0"), []int{200}, 1},
		{"HTTP/0.9", "GET /v1/models\r\n\r\n", []int{400}, 0},
		{"HTTP/3.0", at(chatPath, "HTTP/3.0"), []int{505}, 0},
		{"the HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{400}, 0},
		{"CONNECT", "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", []int{404}, 0},
		{"a method in small letters", strings.Replace(post("small", ok), "POST", "post", 1), []int{405}, 1},
		{"a body after GET", strings.Replace(post("got", ok), "POST", "GET", 1) + post("got-2", ok), []int{405, 200}, 2},

		{"no body", post("empty", ""), []int{400}, 1},
		{"a body of NUL", post("nul", strings.Repeat("\x00", 100)), []int{400}, 1},
		{"a body that is not UTF-8", post("latin", strings.Replace(ok, "x", "\xfc", 1)), []int{400}, 1},
		{"a body with a byte order mark", post("mark", "\ufeff"+ok), []int{400}, 1},
		{"a body in gzip", post("gzip", zipped.String(), "Content-Encoding: gzip"), []int{400}, 1},
		{"JSON of 100,000 levels", post("deep", nested(100_000)), []int{400}, 1},
		{"JSON of 10,000 levels", post("deep-10000", nested(9999)), []int{400}, 1},
		{"JSON of 1,000 levels", post("deep-1000", nested(1000)), []int{400}, 1},
		{"JSON of 100 levels", post("deep-100", nested(100)), []int{200}, 1},
		{"brackets in a string", post("brackets", chat("x", `,"x":"\"`+strings.Repeat("[", 5000)+`"`)), []int{200}, 1},
		{"a number of 5,000 digits", post("digits", chat("x", `,"seed":`+strings.Repeat("7", 5000))), []int{400}, 1},
		{"a long string", post("long", chat(strings.Repeat("x", 10_001), "")), []int{400}, 1},
		{"a member twice", post("twice", strings.Replace(ok, "{", `{"model":"n",`, 1)), []int{400}, 1},
		{"a limit of 1e999", post("huge", chat("x", `,"max_tokens":1e999`)), []int{400}, 1},
		{"a member of 1e999 that is not ours", post("passed", chat("x", `,"temperature":1e999`)), []int{200}, 1},
		{"two values", post("values", ok+ok), []int{400}, 1},

		{"Expect", post("expect", ok, "Expect: 100-continue"), []int{100, 200}, 1},
		{"Expect and a refusal", post("a", ok, "Expect: 100-continue", "X-Request-ID: b"), []int{400}, 1},
		{"an unknown Expect", post("a", ok, "Expect: the-worst"), []int{417}, 0},
		{"pipelined requests", post("one", ok) + post("two", chat("x", streamed)) + post("three", "{") + post("four", ok), []int{200, 200, 400, 200}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := f.dial()
			go io.WriteString(conn, c.send) // the server may close before it has all
			method, _, _ := strings.Cut(c.send, " ")
			br := bufio.NewReader(conn)
			var got []int
			closes := false
			for range c.want {
				a, err := next(br, method)
				if err != nil {
					t.Fatalf("after responses %v: %v", got, err)
				}
				got = append(got, a.status)
				closes = a.closes
				answers[c.name] = append(answers[c.name], a)
			}
			if closes {
				if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
					t.Errorf("more than was expected: %q, %v", rest, err)
				}
			}
			conn.Close()
			if !slices.Equal(got, c.want) {
				t.Errorf("responses %v, not %v", got, c.want)
			}
			want[c.name] = c.infers
			requests += c.infers + 1
			if r := f.ask(t.Context(), chatPath, "", chat("x", "")); r.status != 200 {
				t.Errorf("the next request: %+v", r)
			}
		})
	}
	records := f.end()
	if len(records) != requests {
		t.Errorf("%d records of %d requests for inference", len(records), requests)
	}
	status := map[string]int{}
	for _, r := range records {
		status[r.RequestID] = r.Status
	}
	for name, n := range want {
		for _, a := range answers[name] {
			if s, recorded := status[a.id]; recorded {
				n--
				if s != a.status {
					t.Errorf("%s: the client saw %d, the record says %d", name, a.status, s)
				}
			}
		}
		if n != 0 {
			t.Errorf("%s: %d requests for inference have no record, or %d others have one", name, n, -n)
		}
	}
	for _, r := range records {
		if r.Worker != nil && *r.Worker != 1 || r.Outcome != record.Completed && r.Outcome != record.Invalid {
			t.Errorf("an attack reached its worker: %+v", r)
		}
	}
}

const hello = "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" // of TLS

// What does not come, or comes too slowly, is not waited for beyond the limits.
func TestWhatDoesNotCome(t *testing.T) {
	stall := "Content-Length: 100\r\n\r\n{"
	keyless := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keyless, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := launch(t, `{}`, func(c *Config) {
		c.HeaderTimeout, c.RequestTimeout, c.DrainTimeout, c.APIKeysFile = 0.5, 2, 3600, keyless
	})
	f.await(worker.Idle, 1)
	const key = "Authorization: Bearer secret\r\n"
	infers := map[string]int{}
	cases := []struct {
		name, send string
		status     int // 0: nothing is said
		infers     bool
	}{
		{"anything", "", 0, false},
		{"half a request line", "POST /v1/ch", 0, false},
		{"half a header", "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nX-Slow", 0, false},
		{"the end of the header", "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\n", 0, false},
		{"a request in TLS", hello, 0, false},
		{"the body", "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\n" + key + stall, 408, true},
		{"the next chunk", "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\n" + key + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 408, true},
		// Refused before the body is read; the server still has to get past it.
		{"the body of a request without a key", "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\n" + stall, 401, true},
		{"the body of a request with a bad id", "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nX-Request-ID: ?\r\n" + stall, 400, true},
		{"the body of a GET", "GET " + chatPath + " HTTP/1.1\r\nHost: x\r\n" + key + stall, 405, true},
		{"the body of a check", "GET /health/live HTTP/1.1\r\nHost: x\r\n" + stall, 200, false},
		{"the text to tokenize", "POST /tokenize HTTP/1.1\r\nHost: x\r\n" + key + stall, 408, false},
	}
	var conns []net.Conn // all wait at the same time
	for _, c := range cases {
		conn := f.dial()
		io.WriteString(conn, c.send)
		conns = append(conns, conn)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			method, _, _ := strings.Cut(c.send, " ")
			br := bufio.NewReader(conns[i])
			a, err := next(br, method)
			switch {
			case c.status == 0 && err == nil && a.status != 400: // some are told
				t.Errorf("an answer: %+v", a)
			case c.status != 0 && (err != nil || a.status != c.status):
				t.Errorf("got %+v, %v", a, err)
			}
			if n, err := br.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection is not closed: %v", err)
			}
			if c.infers {
				infers[a.id] = c.status
			}
			if r := f.send(chatPath, chat("x", ""), "Authorization", "Bearer secret"); r.status != 200 {
				t.Errorf("the next request: %+v", r)
			}
		})
	}
	for _, r := range f.end() {
		if r.Outcome == record.Invalid && infers[r.RequestID] == r.Status {
			delete(infers, r.RequestID)
		} else if r.Outcome != record.Completed {
			t.Errorf("record %+v", r)
		}
	}
	if len(infers) > 0 {
		t.Errorf("without a record: %v", infers)
	}
}

// A client that neither sends nor reads cannot hold up the end of the server.
func TestTheEndOfTheDrainEndsWhatIsNotSent(t *testing.T) {
	token := strings.Repeat("x", 64<<10)
	script := fmt.Sprintf(`{"rules":[{"when":{"prompt":"flood"},"do":{"tokens":[%s]}}]}`, strings.TrimSuffix(strings.Repeat(`"`+token+`",`, 200), ","))
	f := launch(t, script, func(c *Config) {
		c.RequestTimeout, c.HeaderTimeout, c.DrainTimeout, c.CancelGrace = 3600, 3600, 0.5, 0.2
	})
	f.await(worker.Idle, 1)
	stall := "Content-Length: 100\r\n\r\n{"
	unsent := map[string]net.Conn{}
	for _, send := range []string{
		"POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nX-Request-ID: stalled\r\n" + stall,
		"POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nX-Request-ID: ?\r\n" + stall,
		"POST /tokenize HTTP/1.1\r\nHost: x\r\n" + stall,
		"GET /health/live HTTP/1.1\r\nHost: x\r\n" + stall,
		"GET /health/live HTTP/1.1\r\n",
		"",
	} {
		conn := f.dial()
		io.WriteString(conn, send)
		unsent[send] = conn
	}
	flood := f.dial()
	flood.(*net.TCPConn).SetReadBuffer(4096)
	io.WriteString(flood, post("unread", chat("flood", streamed)))
	if line, err := bufio.NewReader(flood).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	f.until(func() bool { return f.metric("assay_connections") == float64(len(unsent)+2) })
	records := f.end()
	if len(records) != 3 {
		t.Errorf("%d records", len(records))
	}
	for _, id := range []string{"stalled", "unread"} {
		if r := one(t, records, id); r.Outcome != record.Failed || r.Reason != record.ServerError || r.Error.Code != "stopping" {
			t.Errorf("record %+v %+v", r, r.Error)
		}
	}
}

func TestClientsThatBreakOff(t *testing.T) {
	reset := func(c *net.TCPConn) { c.SetLinger(0); c.Close() }
	half := func(c *net.TCPConn) { c.CloseWrite() }
	const expect = "Expect: 100-continue" // the server says so when it begins with the body
	for _, c := range []struct {
		name, send string
		leave      func(*net.TCPConn)
		reads      string // in the first line of the answer, before it leaves
		lane       bool
	}{
		{"reset in a stream", post("r", chat("hold", streamed)), reset, "200", true},
		{"closed in a stream", post("r", chat("hold", streamed)), func(c *net.TCPConn) { c.Close() }, "200", true},
		// Half a connection is no client: net/http takes its end for that of the whole.
		{"half closed in a stream", post("r", chat("hold", streamed)), half, "200", true},
		{"half closed while it waits", post("r", chat("slow", "")), half, "", true},
		{"reset while it waits", post("r", chat("slow", "")), reset, "", true},
		{"reset in the body", strings.TrimSuffix(post("r", chat("x", ""), expect), "}"), reset, "100", false},
		{"half closed in the body", strings.TrimSuffix(post("r", chat("x", ""), expect), "}"), half, "100", false},
		{"half closed in a chunk", unmeasured("r", "ff\r\n{", "Transfer-Encoding: chunked", expect), half, "100", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := launch(t, `{"rules":[`+holding+`,{"when":{"prompt":"slow"},"do":{"first_delay_ms":3600000}}]}`, nil)
			f.await(worker.Idle, 1)
			conn := f.dial().(*net.TCPConn)
			io.WriteString(conn, c.send)
			if c.lane {
				f.await(worker.Busy, 1)
			}
			if c.reads != "" {
				if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, c.reads) {
					t.Fatalf("%q, %v", line, err)
				}
			}
			c.leave(conn)
			f.await(worker.Idle, 1)
			if r := f.ask(t.Context(), chatPath, "next", chat("x", "")); r.status != 200 {
				t.Errorf("the next request: %+v", r)
			}
			records := f.end()
			if r := one(t, records, "r"); r.Outcome != record.Cancelled || r.Status != 499 || (r.Lane != nil) != c.lane {
				t.Errorf("record %+v", r)
			}
			if r := one(t, records, "next"); *r.Worker != 1 {
				t.Errorf("a new worker: %+v", r)
			}
		})
	}
}

// The server takes no more of a body than its limit, whoever sends it.
func TestABodyWithoutEnd(t *testing.T) {
	const limit, whole = 1 << 20, 256 << 20
	f := launch(t, `{}`, func(c *Config) { c.MaxBodyBytes = limit })
	f.await(worker.Idle, 1)
	for id, header := range map[string]string{
		"measured": fmt.Sprint("Content-Length: ", whole), "chunked": "Transfer-Encoding: chunked", "forged": "Content-Length: 9223372036854775807",
	} {
		conn := f.dial()
		piece := strings.Repeat("x", 64<<10)
		if id == "chunked" {
			piece = chunk(piece)
		}
		sent := make(chan int)
		go func() {
			n, _ := io.WriteString(conn, unmeasured(id, "", header))
			for err := error(nil); err == nil && n < whole; {
				var m int
				m, err = io.WriteString(conn, piece)
				n += m
			}
			sent <- n
		}()
		if a, err := next(bufio.NewReader(conn), "POST"); err != nil || a.status != 413 || a.id != id || !a.closes {
			t.Errorf("%s: %+v, %v", id, a, err)
		}
		if n := <-sent; n >= whole {
			t.Errorf("%s: all %d bytes were taken", id, n)
		}
		if r := f.ask(t.Context(), chatPath, "", chat("x", "")); r.status != 200 {
			t.Errorf("the next request: %+v", r)
		}
	}
	records := f.end()
	for _, id := range []string{"measured", "chunked", "forged"} {
		if r := one(t, records, id); r.Status != 413 || r.Outcome != record.Invalid {
			t.Errorf("record %+v", r)
		}
	}
}
