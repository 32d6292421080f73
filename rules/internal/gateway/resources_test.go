package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"assay/rules/internal/record"
	"assay/rules/internal/recordlog"
	"assay/rules/internal/worker"
)

const openConnections = "assay_connections"

// resident is the memory of a process in bytes, files how many it has open.
func (c *child) resident() int {
	c.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		c.t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func (c *child) files() int {
	c.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	return len(entries)
}

// raced says that this binary has the race detector, which takes memory of its own.
func raced() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" {
			return true
		}
	}
	return false
}

// room is how many connections this process can open, and the gateway too.
func room(t *testing.T, wanted int) int {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Logf("the limit of open files stays: %v", err)
		}
	}
	const own = 200
	if most := int(min(limit.Cur, 1<<20)) - own; most < wanted {
		t.Logf("%d connections, not %d: only %d files may be open", most, wanted, limit.Cur)
		return most
	}
	return wanted
}

func TestTenThousandIdleConnections(t *testing.T) {
	n := room(t, 10_000)
	f := spawn(t, `{"default":{"tokens":["fine"]}}`, func(c *Config) { c.HeaderTimeout = 3600 })
	f.await(worker.Idle, 1)
	f.client.CloseIdleConnections()
	f.until(func() bool { return f.metric(openConnections) == 1 })
	memory, files := f.resident(), f.files()

	conns := make([]net.Conn, n)
	address := strings.TrimPrefix(f.url, "http://")
	var wg sync.WaitGroup
	const dialers = 8
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < n; i += dialers {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
				conns[i] = conn
				if i%10 == 0 { // idle after a request
					io.WriteString(conn, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	f.until(func() bool { return f.metric(openConnections) == float64(n+1) })
	for i := range 3 {
		if r := f.ask(t.Context(), chatPath, fmt.Sprint("meanwhile-", i), chat("x", streamed)); r.text != "fine" {
			t.Errorf("meanwhile: %+v", r)
		}
	}
	each := (f.resident() - memory) / n
	most := 64 << 10
	if raced() {
		most *= 4
	}
	t.Logf("%d connections, %d bytes of memory each", n, each)
	if each > most {
		t.Errorf("a connection takes %d bytes", each)
	}
	if grown := f.files() - files; grown < n {
		t.Errorf("%d connections and only %d files: the count is wrong", n, grown)
	}
	for _, conn := range conns {
		conn.Close()
	}
	f.until(func() bool { return f.metric(openConnections) == 1 })
	f.until(func() bool { return f.files() <= files })
	if records := f.end(); len(records) != 3 {
		t.Errorf("%d records", len(records))
	}
}

// refused opens a connection and checks that it is turned away with a reason.
func (f *fixture) refused(t *testing.T) {
	t.Helper()
	said, err := io.ReadAll(f.dial())
	if err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 503 ") || !strings.Contains(string(said), `"code":"too_many_connections"`) {
		t.Errorf("got %q, %v", said, err)
	}
}

func TestMoreConnectionsThanConfigured(t *testing.T) {
	const most = 10
	f := launch(t, `{}`, func(c *Config) { c.MaxConnections, c.HeaderTimeout = most, 3600 })
	f.await(worker.Idle, 1)
	var conns []net.Conn
	for range most - 1 {
		conns = append(conns, f.dial())
	}
	f.until(func() bool { return f.metric(openConnections) == most })
	for range 3 {
		f.refused(t)
	}
	if r := f.ask(t.Context(), chatPath, "inside", chat("x", "")); r.status != 200 {
		t.Errorf("on a connection that is open: %+v", r)
	}
	if n := f.metric("assay_connections_refused_total"); n != 3 {
		t.Errorf("%v were refused", n)
	}
	for _, conn := range conns {
		conn.Close()
	}
	f.until(func() bool { return f.metric(openConnections) == 1 })
	conn := f.dial()
	io.WriteString(conn, post("new", chat("x", "")))
	if a, err := next(bufio.NewReader(conn), "POST"); err != nil || a.status != 200 {
		t.Errorf("%+v, %v", a, err)
	}
	conn.Close()
	records := f.end()
	if len(records) != 2 {
		t.Errorf("%d records", len(records))
	}
}

// limited runs a command with few open files.
func limited(files int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0"`, files)}
}

func TestFewOpenFiles(t *testing.T) {
	t.Run("enough for some connections", func(t *testing.T) {
		f := spawn(t, deathScript, func(c *Config) { c.HeaderTimeout = 3600 }, limited(64)...)
		f.await(worker.Idle, 1)
		const most = 64 - reservedFiles - laneFiles
		if !strings.Contains(f.errors(), fmt.Sprintf("connections=%d", most)) {
			t.Errorf("it says %s", f.errors())
		}
		var conns []net.Conn
		for range most - 1 {
			conns = append(conns, f.dial())
		}
		f.until(func() bool { return f.metric(openConnections) == most })
		f.refused(t)
		// What is left is enough for a new worker, as often as it takes.
		for i := range 5 {
			kill(t, awaitWorkers(f.script, 1)[0])
			f.await(worker.Idle, i+2)
			if r := f.ask(t.Context(), chatPath, "", chat("x", streamed)); r.text != "fine" {
				t.Errorf("with worker %d: %+v", i+2, r)
			}
		}
		for _, conn := range conns { // an unused one would hold up the end by 5 s
			conn.Close()
		}
		if records := f.end(); len(records) != 5 {
			t.Errorf("%d records", len(records))
		}
	})
	t.Run("too few", func(t *testing.T) {
		f := spawn(t, deathScript, nil, limited(24)...)
		if err := <-f.ended; err == nil || !strings.Contains(f.errors(), "only 24 files may be open, and 1 lanes need 48") {
			t.Errorf("%v: %s", err, f.errors())
		}
	})
}

func TestThePortIsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := spawn(t, deathScript, func(c *Config) { c.Listen = l.Addr().String() })
	if err := <-f.ended; err == nil || !strings.Contains(f.errors(), "listen on "+l.Addr().String()) || !strings.Contains(f.errors(), "address already in use") {
		t.Errorf("%v: %s", err, f.errors())
	}
	if left := workers(f.script); len(left) > 0 {
		t.Errorf("workers %v are left", left)
	}
}

// smallDisk is a file system with room for some records; free makes more.
func smallDisk(t *testing.T) (dir string, free func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("to mount a small file system needs more rights: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 40<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
}

// The disk really is full, and then is not.
func TestTheDiskIsFull(t *testing.T) {
	dir, free := smallDisk(t)
	f := launch(t, `{}`, func(c *Config) {
		c.Records = Records{File: filepath.Join(dir, "records.jsonl"), MaxBytes: 4 << 10}
	})
	f.await(worker.Idle, 1)
	type seen struct {
		id     string
		status int
	}
	var client []seen // in order: one request after the other, on one connection
	ask := func() reply {
		id := fmt.Sprint("r", len(client))
		r := f.ask(t.Context(), chatPath, id, chat("x", streamed))
		client = append(client, seen{id, r.status})
		return r
	}
	for {
		r := ask()
		if r.status == 503 {
			if r.err["code"] != "records_unavailable" {
				t.Errorf("got %+v", r)
			}
			break
		}
		if r.status != 200 || len(client) > 1000 {
			t.Fatalf("after %d requests: %+v", len(client), r)
		}
	}
	for range 3 {
		if r := ask(); r.status != 503 {
			t.Errorf("while the disk is full: %+v", r)
		}
	}
	if status, r := f.readiness(); status != 503 || r.Ready || r.Error == "" || !strings.Contains(f.log.text(), "no space left") {
		t.Errorf("while the disk is full: %d %+v, log %s", status, r, f.log.text())
	}
	if f.metric("assay_records_failing") != 1 {
		t.Error("the metrics do not tell")
	}
	free()
	for range 10 {
		if r := ask(); r.status != 200 {
			t.Errorf("there is space again: %+v", r)
		}
	}
	if status, r := f.readiness(); status != 200 || !r.Ready || f.metric("assay_records_failing") != 0 {
		t.Errorf("there is space again: %d %+v", status, r)
	}
	f.client.CloseIdleConnections()
	f.stop()
	if err := <-f.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	files, err := recordlog.Files(filepath.Join(dir, "records.jsonl"))
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	var server []seen
	for _, f.records = range files {
		for _, r := range f.read() {
			server = append(server, seen{r.RequestID, r.Status})
			if (r.Outcome == record.Completed) != (r.Status == 200) {
				t.Errorf("record %+v", r)
			}
		}
	}
	if diff := cmp.Diff(client, server, cmp.AllowUnexported(seen{})); diff != "" {
		t.Errorf("the ledgers of the client and of the server differ:\n%s", diff)
	}
}

// What was never written is said to be lost.
func TestTheDiskStaysFull(t *testing.T) {
	dir, _ := smallDisk(t)
	f := launch(t, `{}`, func(c *Config) { c.Records.File = filepath.Join(dir, "records.jsonl") })
	f.await(worker.Idle, 1)
	n := 0
	for ; ; n++ {
		if r := f.ask(t.Context(), chatPath, fmt.Sprint("r", n), chat("x", "")); r.status != 200 {
			break
		}
	}
	f.client.CloseIdleConnections()
	f.stop()
	// The last that was served, and the first that was refused.
	err := <-f.ended
	for _, want := range []string{"lost records: 2", fmt.Sprint("request r", n-1), fmt.Sprint("request r", n), "no space left"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run does not say %q: %v", want, err)
		}
	}
}
