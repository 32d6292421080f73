package gateway

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"assay/rules/internal/record"
	"assay/rules/internal/recordlog"
	"assay/rules/internal/worker"
)

func signalTo(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	signalTo(t, pid, syscall.SIGKILL)
}

const deathScript = `{"rules":[` + holding + `,{"when":{"prompt":"slow"},"do":{"first_delay_ms":3600000}}],"default":{"tokens":["fine"]}}`

// begin sends a request. began is closed when the header of the answer is there.
func (f *fixture) begin(id, body string) (began <-chan struct{}, answer <-chan reply) {
	header, all := make(chan struct{}), make(chan reply, 1)
	go func() {
		resp, err := f.open(f.t.Context(), chatPath, id, body)
		close(header)
		if err != nil {
			all <- reply{cut: err}
			return
		}
		defer resp.Body.Close()
		all <- f.drain(resp)
	}()
	return header, all
}

func TestAWorkerIsKilled(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		text       string
		cut        bool
		outcome    record.Outcome
		reason     record.Reason
	}{
		{"between requests", chat("x", ""), 200, "fine", false, record.Completed, ""},
		{"before the first token", chat("slow", streamed), 502, "", false, record.Failed, record.Protocol},
		{"before a buffered answer", chat("hold", ""), 502, "", false, record.Failed, record.Protocol},
		{"in a stream", chat("hold", streamed), 200, "a", true, record.Failed, record.Protocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := launch(t, deathScript, nil)
			f.await(worker.Idle, 1)
			pid := awaitWorkers(f.script, 1)[0]
			began, answer := f.begin("r", c.body)
			if c.status == 200 {
				<-began
			} else {
				f.await(worker.Busy, 1)
			}
			if c.outcome == record.Completed {
				f.await(worker.Idle, 1)
			}
			kill(t, pid)
			if r := <-answer; r.status != c.status || r.text != c.text || (r.cut != nil) != c.cut || r.done {
				t.Errorf("got %+v", r)
			}
			f.await(worker.Idle, 2)
			if r := f.ask(t.Context(), chatPath, "next", chat("x", "")); r.text != "fine" {
				t.Errorf("the next request: %+v", r)
			}
			records := f.end()
			if r := one(t, records, "r"); r.Outcome != c.outcome || r.Reason != c.reason || r.Status != c.status {
				t.Errorf("record %+v", r)
			}
			if r := one(t, records, "next"); *r.Worker != 2 {
				t.Errorf("record %+v", r)
			}
			if left := workers(f.script); len(left) > 0 {
				t.Errorf("workers %v are left", left)
			}
		})
	}
}

// A stopped process hangs in a way that no protocol can see.
func TestAWorkerIsStopped(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"between requests", chat("x", ""), 504},
		{"before the first token", chat("slow", streamed), 504},
		{"in a stream", chat("hold", streamed), 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := launch(t, deathScript, func(c *Config) { c.RequestTimeout, c.CancelGrace = 2, 0.2 })
			f.await(worker.Idle, 1)
			pid := awaitWorkers(f.script, 1)[0]
			if c.name == "between requests" {
				signalTo(t, pid, syscall.SIGSTOP)
			}
			began, answer := f.begin("r", c.body)
			switch c.name {
			case "before the first token":
				f.await(worker.Busy, 1)
				signalTo(t, pid, syscall.SIGSTOP)
			case "in a stream":
				<-began
				signalTo(t, pid, syscall.SIGSTOP)
			}
			if r := <-answer; r.status != c.status || r.err["code"] != "timeout" || r.done {
				t.Errorf("got %+v", r)
			}
			f.await(worker.Idle, 2)
			if r := f.ask(t.Context(), chatPath, "next", chat("x", "")); r.text != "fine" {
				t.Errorf("the next request: %+v", r)
			}
			signalTo(t, awaitWorkers(f.script, 1)[0], syscall.SIGSTOP) // deaf to the shutdown too
			records := f.end()
			if r := one(t, records, "r"); r.Outcome != record.Failed || r.Reason != record.Timeout || r.Status != c.status {
				t.Errorf("record %+v", r)
			}
			if left := workers(f.script); len(left) > 0 {
				t.Errorf("workers %v are left", left)
			}
		})
	}
}

// besides gives the model a second lane with a script of its own.
func besides(t *testing.T, script string) (path string, change func(*Config)) {
	path = filepath.Join(t.TempDir(), "second.json")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func(c *Config) {
		second := c.Models[0].Workers[0]
		second.Env = []string{scriptVariable + "=" + path, second.Env[1]}
		c.Models[0].Workers = append(c.Models[0].Workers, second)
	}
}

// awaitLane waits for the state of one lane.
func (f *fixture) awaitLane(lane int, state worker.State) (status worker.LaneStatus) {
	f.t.Helper()
	f.until(func() bool {
		_, r := f.readiness()
		status = r.Lanes[lane].LaneStatus
		return status.State == state
	})
	return status
}

// checkOneOut checks that lane 1 is out of service, visibly, and lane 0 serves.
func (f *fixture) checkOneOut(t *testing.T, reason string) {
	t.Helper()
	if lane := f.awaitLane(1, worker.Out); !strings.Contains(lane.Reason, reason) {
		t.Errorf("lane %+v", lane)
	}
	if status, r := f.readiness(); status != 200 || !r.Ready {
		t.Errorf("with one lane: %d %+v", status, r)
	}
	if out, idle := f.metric(`assay_lanes{model="m",state="out"}`), f.metric(`assay_lanes{model="m",state="idle"}`); out != 1 || idle != 1 {
		t.Errorf("%v lanes are out, %v idle", out, idle)
	}
	for range 3 {
		if r := f.ask(t.Context(), chatPath, "", chat("x", "")); r.text != "fine" {
			t.Errorf("the other lane: %+v", r)
		}
	}
}

func TestALoadThatDoesNotEndWell(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		reason string
	}{
		{"killed", syscall.SIGKILL, "signal: killed"},
		{"stopped", syscall.SIGSTOP, "not ready within"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			second, change := besides(t, `{"start":{"delay_ms":3600000}}`)
			f := launch(t, deathScript, func(cfg *Config) { change(cfg); cfg.StartupTimeout = 3 })
			f.awaitLane(0, worker.Idle)
			signalTo(t, awaitWorkers(second, 1)[0], c.signal)
			f.checkOneOut(t, c.reason)
			if left := workers(second); len(left) > 0 {
				t.Errorf("workers %v are left of the lane that is out", left)
			}
			f.end()
		})
	}
}

func TestAReplacementThatCannotLoad(t *testing.T) {
	second, change := besides(t, deathScript)
	f := launch(t, deathScript, change)
	f.awaitLane(0, worker.Idle)
	f.awaitLane(1, worker.Idle)
	if err := os.WriteFile(second, []byte(`{"start":{"mode":"fatal","message":"the memory is gone"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, awaitWorkers(second, 1)[0])
	f.checkOneOut(t, "the memory is gone")
	f.end()
}

// To start what dies without a request would be a loop without an end.
func TestAReplacementThatDiesAtOnce(t *testing.T) {
	second, change := besides(t, deathScript)
	f := launch(t, deathScript, change)
	f.awaitLane(0, worker.Idle)
	f.awaitLane(1, worker.Idle)
	first := awaitWorkers(second, 1)[0]
	kill(t, first)
	f.until(func() bool {
		pids := workers(second)
		return len(pids) == 1 && pids[0] != first
	})
	f.awaitLane(1, worker.Idle)
	kill(t, awaitWorkers(second, 1)[0])
	f.checkOneOut(t, "before it served a request")
	f.end()
}

func TestAnEndInTheMiddleOfAReplacement(t *testing.T) {
	f := launch(t, deathScript, nil)
	f.await(worker.Idle, 1)
	f.rewrite(`{"start":{"delay_ms":3600000}}`)
	kill(t, awaitWorkers(f.script, 1)[0])
	f.await(worker.Replacing, 2)
	awaitWorkers(f.script, 1)
	f.end()
	if left := workers(f.script); len(left) > 0 {
		t.Errorf("workers %v are left", left)
	}
}

// Whoever kills the gateway gets rid of its workers too, and loses no record that
// was written.
func TestTheGatewayIsKilled(t *testing.T) {
	f := spawn(t, deathScript, func(c *Config) { c.Models[0].Workers[0].Count = 3 })
	f.until(func() bool { return f.metric(`assay_lanes{model="m",state="idle"}`) == 3 })
	for i := range 5 {
		f.ask(t.Context(), chatPath, fmt.Sprint("before-", i), chat("x", ""))
	}
	f.until(func() bool { return len(f.read()) == 5 })
	held, _ := f.hold("in-flight")
	awaitWorkers(f.script, 3)
	f.cmd.Process.Kill()
	if r := f.drain(held); r.cut == nil || r.done {
		t.Errorf("the request in flight: %+v", r)
	}
	if err := <-f.ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
	awaitWorkers(f.script, 0)

	// A kill in the middle of a write leaves half a line.
	file, err := os.OpenFile(f.records, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(file, `{"schema":1,"request_id":"torn`)
	file.Close()
	again := spawn(t, deathScript, func(c *Config) { c.Records.File = f.records })
	again.await(worker.Idle, 1)
	again.ask(t.Context(), chatPath, "after", chat("x", ""))
	again.fixture.records = f.records
	records := again.end()
	if len(records) != 6 {
		t.Errorf("%d records", len(records))
	}
	for i := range 5 {
		one(t, records, fmt.Sprint("before-", i))
	}
	one(t, records, "after")
	if aside, _ := filepath.Glob(f.records + ".torn-*"); len(aside) != 1 {
		t.Errorf("the torn end is in %q", aside)
	}
	if files, err := recordlog.Files(f.records); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

// Process 1 gets no default action of TERM, and orphans to reap.
func TestTheGatewayIsProcessOne(t *testing.T) {
	if err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run(); err != nil {
		t.Skipf("a namespace of processes needs more rights: %v", err)
	}
	f := spawn(t, deathScript, nil, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
	f.await(worker.Idle, 1)
	if r := f.ask(t.Context(), chatPath, "first", chat("x", "")); r.text != "fine" {
		t.Errorf("got %+v", r)
	}
	kill(t, awaitWorkers(f.script, 1)[0])
	f.await(worker.Idle, 2)
	if r := f.ask(t.Context(), chatPath, "second", chat("x", "")); r.text != "fine" {
		t.Errorf("with a new worker: %+v", r)
	}
	one := childOf(t, f.cmd.Process.Pid)
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", one)); err != nil || !strings.Contains(string(status), fmt.Sprintf("NSpid:\t%d\t1\n", one)) {
		t.Fatalf("it is not process 1: %s %v", status, err)
	}
	f.stop = func() { signalTo(t, one, syscall.SIGTERM) }
	if records := f.end(); len(records) != 2 {
		t.Errorf("%d records", len(records))
	}
	if left := workers(f.script); len(left) > 0 {
		t.Errorf("workers %v are left", left)
	}
}

// childOf is the only child of a process.
func childOf(t *testing.T, parent int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		t.Skipf("the kernel lists no children: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
