//go:build linux

package supervise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays the child processes too.
func TestMain(m *testing.M) {
	switch os.Getenv("SUPERVISE_TEST_ROLE") {
	case "":
		os.Exit(m.Run())
	case "parent": // starts a stubborn child and leaves
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SUPERVISE_TEST_ROLE=stubborn")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		if os.Getenv("SUPERVISE_TEST_STAY") != "" {
			cmd.Wait()
		}
		os.Exit(0)
	case "stubborn": // ignores TERM, holds a port and the pipe
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(l.Addr())
		time.Sleep(time.Hour)
	case "owner": // starts a child through this package and waits to be killed
		p, err := Start(context.Background(), Spec{
			Path: os.Args[0], Env: append(os.Environ(), "SUPERVISE_TEST_ROLE=stubborn"), Stdout: os.Stdout,
		})
		if err != nil {
			panic(err)
		}
		p.Wait()
	case "affinity":
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			panic(err)
		}
		for line := range strings.Lines(string(status)) {
			if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				fmt.Println(strings.TrimSpace(list))
			}
		}
		os.Exit(3)
	}
}

// launch starts the test binary in a role and returns a reader of its output.
func launch(t *testing.T, ctx context.Context, spec Spec, env ...string) (*Process, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	spec.Path, spec.Stdout = os.Args[0], w
	spec.Env = append(os.Environ(), env...)
	p, err := Start(ctx, spec)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	return p, bufio.NewReader(r)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the child said nothing: %v", err)
	}
	return strings.TrimSpace(text)
}

func mustBeGone(t *testing.T, p *Process, address string, out *bufio.Reader) {
	t.Helper()
	if groupAlive(p.Pid()) {
		t.Errorf("group %d still has processes", p.Pid())
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Errorf("port %s is still held", address)
	}
	if _, err := out.ReadByte(); err == nil {
		t.Error("the pipe is still open")
	}
}

func TestStopEndsAGrandchildThatIgnoresTERM(t *testing.T) {
	for _, stay := range []string{"", "yes"} {
		t.Run("leader stays="+stay, func(t *testing.T) {
			p, out := launch(t, t.Context(), Spec{}, "SUPERVISE_TEST_ROLE=parent", "SUPERVISE_TEST_STAY="+stay)
			address := line(t, out)
			if stay == "" {
				// The grandchild holds the pipe, and Wait returns all the same.
				if err := p.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Stop(50 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
			mustBeGone(t, p, address, out)
			if err := p.Stop(time.Second); err != nil {
				t.Errorf("a second Stop: %v", err)
			}
		})
	}
}

func TestContextStopsTheGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, out := launch(t, ctx, Spec{Grace: 50 * time.Millisecond}, "SUPERVISE_TEST_ROLE=parent", "SUPERVISE_TEST_STAY=yes")
	address := line(t, out)
	cancel()
	out.ReadByte() // blocks until the last holder of the pipe is gone
	<-p.Done()
	if !p.awaitGone(killLimit) {
		t.Fatal("the group is still there")
	}
	mustBeGone(t, p, address, out)
}

func TestASecondStopHurriesTheFirst(t *testing.T) {
	p, out := launch(t, t.Context(), Spec{}, "SUPERVISE_TEST_ROLE=stubborn")
	line(t, out)
	patient := make(chan error)
	go func() { patient <- p.Stop(time.Hour) }()
	if err := p.Stop(0); err != nil {
		t.Fatal(err)
	}
	if err := <-patient; err != nil {
		t.Fatal(err)
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	owner, out := launch(t, t.Context(), Spec{}, "SUPERVISE_TEST_ROLE=owner")
	address := line(t, out)
	// Only the owner is killed; its child is in another group.
	if err := syscall.Kill(owner.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	out.ReadByte()
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("the child outlived its parent")
	}
}

func TestCPUs(t *testing.T) {
	allowed, err := AllowedCPUs()
	if err != nil || len(allowed) == 0 {
		t.Fatalf("AllowedCPUs: %v, %v", allowed, err)
	}
	last := allowed[len(allowed)-1]
	p, out := launch(t, t.Context(), Spec{CPUs: []int{last}}, "SUPERVISE_TEST_ROLE=affinity")
	if got := line(t, out); got != fmt.Sprint(last) {
		t.Errorf("the child may use CPUs %s, want %d", got, last)
	}
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("Wait: %v, want exit status 3", err)
	}
	if again, _ := AllowedCPUs(); !slices.Equal(again, allowed) {
		t.Errorf("our own affinity became %v", again)
	}
	for _, cpu := range []int{-1, 1 << 20, 1023} {
		if _, err := Start(t.Context(), Spec{Path: os.Args[0], CPUs: []int{cpu}}); err == nil {
			t.Errorf("CPU %d was accepted", cpu)
		}
	}
}

func TestStartErrors(t *testing.T) {
	if _, err := Start(t.Context(), Spec{Path: "/nonexistent/program"}); err == nil || !strings.Contains(err.Error(), "/nonexistent/program") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Spec{Path: os.Args[0]}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("x", 1000) + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"short", "a\nb\n", "a\nb"},
		{"cut", "a\nb\nc\nd", "b\nc\nd"},
		{"long", strings.Repeat(long, 100) + "y\n", long + long + "y"},
		{"one endless line", strings.Repeat("z", 2*tailWindow), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := Tail(path, 3); err != nil || got != c.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	if _, err := Tail(filepath.Join(t.TempDir(), "none"), 3); err == nil {
		t.Error("a missing file gave no error")
	}
}
