// Package clienttest holds the native server against the client that its users
// have: the official openai package, pinned by hash, in an environment of its
// own.
package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"assay/rules/internal/gateway"
	"assay/rules/internal/pyenv/pyenvtest"
	"assay/rules/internal/scripted"
	"assay/rules/internal/worker"
)

var update = flag.Bool("update", false, "rewrite the transcript")

const scriptVariable = "CLIENT_TEST_SCRIPT"

// The test binary is the scripted worker too.
func TestMain(m *testing.M) {
	path := os.Getenv(scriptVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	script, err := scripted.Load(path)
	if err == nil {
		err = scripted.Run(context.Background(), script, os.Stdin, os.Stdout)
	}
	if errors.Is(err, scripted.ErrDied) {
		os.Exit(scripted.DeathStatus)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestTranscript runs client.py against a server with two models and compares all
// that the client saw.
func TestTranscript(t *testing.T) {
	dir, err := filepath.Abs("../../../../testdata/openai")
	if err != nil {
		t.Fatal(err)
	}
	env := pyenvtest.Environment(t, filepath.Join(dir, "requirements.txt"))
	url := serve(t, dir)

	cmd := exec.CommandContext(t.Context(), env.Python(), "-I", "-X", "utf8", filepath.Join(dir, "client.py"), url)
	cmd.Env = []string{} // of OPENAI_… and the proxies, none is for this client
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	got, err := cmd.Output()
	if err != nil {
		t.Fatalf("client.py: %v\n%s%s", err, got, complaints.Bytes())
	}
	if complaints.Len() > 0 {
		t.Errorf("the client warns:\n%s", complaints.Bytes())
	}
	golden := filepath.Join(dir, "transcript.golden")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("the transcript differs (-want +got); if that is right, run the test with -update\n%s", diff)
	}
}

// serve starts a server and returns its address once all lanes are idle. It has
// ended in order when the test is over.
func serve(t *testing.T, dir string) string {
	t.Helper()
	model := func(script string, names ...string) gateway.Model {
		return gateway.Model{Names: names, Workers: []gateway.Worker{{
			Command: []string{os.Args[0]}, Count: 2,
			Env: []string{scriptVariable + "=" + filepath.Join(dir, script), "GORACE=atexit_sleep_ms=0"},
		}}}
	}
	s, err := gateway.New(gateway.Config{
		Models:      []gateway.Model{model("script.json", "m", "alias"), model("scores.json", "scores")},
		Records:     gateway.Records{File: filepath.Join(t.TempDir(), "records.jsonl")},
		APIKeysFile: filepath.Join(dir, "keys.txt"),
		Log:         slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	address, ended := make(chan net.Addr, 1), make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx, func(a net.Addr) { address <- a }); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	select {
	case a := <-address:
		url := "http://" + a.String()
		for !idle(t, url) {
			select {
			case <-ended:
				t.FailNow()
			case <-time.After(2 * time.Millisecond):
			}
		}
		return url
	case <-ended:
		t.FailNow()
		return ""
	}
}

// idle asks whether all lanes are.
func idle(t *testing.T, url string) bool {
	t.Helper()
	resp, err := http.Get(url + "/health/ready")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var r gateway.Readiness
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r.Ready && !slices.ContainsFunc(r.Lanes, func(l gateway.Lane) bool { return l.State != worker.Idle })
}
