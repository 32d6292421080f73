package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const configVariable = "GATEWAY_TEST_CONFIG"

// runGateway is a gateway's whole process: it prints its address and ends on TERM.
func runGateway(path string) (status int) {
	err := func() error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		cfg, err := ParseConfig(data)
		if err != nil {
			return err
		}
		s, err := New(cfg)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return s.Run(ctx, func(a net.Addr) { fmt.Println(a) })
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is a fixture whose server has a process of its own. Its end is the
// process's end.
type child struct {
	*fixture
	cmd    *exec.Cmd
	stderr string // path
}

// spawn starts a gateway in a process of its own, under a command if one is given.
// The gateway need not come up: then its url is empty.
func spawn(t *testing.T, script string, change func(*Config), under ...string) *child {
	t.Helper()
	f, cfg := prepare(t, script, change)
	dir := filepath.Dir(f.script)
	c := &child{fixture: f, stderr: filepath.Join(dir, "stderr")}
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.json")
	if err := os.WriteFile(config, data, 0o600); err != nil {
		t.Fatal(err)
	}
	// A file: workers hold it too, and must not hold up the end of the process.
	stderr, err := os.Create(c.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	line := append(under, os.Args[0])
	c.cmd = exec.Command(line[0], line[1:]...)
	c.cmd.Env = append(os.Environ(), configVariable+"="+config, "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.stop = func() { c.cmd.Process.Signal(syscall.SIGTERM) }
	address, _ := bufio.NewReader(stdout).ReadString('\n')
	if address != "" {
		f.url = "http://" + strings.TrimSpace(address)
	}
	go func() { f.ended <- c.cmd.Wait() }()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		f.client.CloseIdleConnections()
		if t.Failed() {
			t.Log(c.errors())
		}
	})
	return c
}

// errors is what the gateway and its workers wrote to their standard error.
func (c *child) errors() string {
	data, err := os.ReadFile(c.stderr)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// until waits for a condition.
func (f *fixture) until(condition func() bool) {
	f.t.Helper()
	for !condition() {
		select {
		case err := <-f.ended:
			f.t.Fatalf("the server ended: %v", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// metric is one figure of /metrics, named with its labels.
func (f *fixture) metric(name string) float64 {
	f.t.Helper()
	text := f.send("/metrics", "").body
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				f.t.Fatal(err)
			}
			return value
		}
	}
	f.t.Fatalf("there is no %s in %s", name, text)
	return 0
}

// workers are the ids of the living worker processes of a script, wherever they are.
func workers(script string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environ, err := os.ReadFile(path) // a zombie has none
		if err != nil || !bytes.Contains(environ, []byte(scriptVariable+"="+script+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitWorkers waits until a script has that many workers.
func awaitWorkers(script string, n int) []int {
	for {
		if pids := workers(script); len(pids) == n {
			return pids
		}
		time.Sleep(2 * time.Millisecond)
	}
}
