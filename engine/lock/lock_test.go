package lock

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary be another process that holds a lock.
func TestMain(m *testing.M) {
	if path := os.Getenv("ASSAY_TEST_HOLD"); path != "" {
		if _, err := Acquire(context.Background(), path, "the other process", nil); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("held\n")
		select {}
	}
	os.Exit(m.Run())
}

func hold(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ASSAY_TEST_HOLD="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestWaiterIsToldWhoHoldsAndGoesOnWhenTheHolderIsKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "lock")
	other := hold(t, path)
	if _, ok := Try(path); ok {
		t.Fatal("Try took a lock that another process holds")
	}
	release, err := Acquire(t.Context(), path, "me", func(holder string) {
		if !strings.Contains(holder, "the other process") {
			t.Errorf("holder = %q", holder)
		}
		other.Process.Kill()
	})
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	hold(t, path)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := Acquire(ctx, path, "me", func(string) { cancel(enough) })
	if !errors.Is(err, enough) {
		t.Fatalf("Acquire: %v", err)
	}
}

// A holder that removes the file must not let two in.
func TestRemovedFileStillExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside, most int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			release, err := Acquire(t.Context(), path, "me", nil)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			inside--
			mu.Unlock()
			os.Remove(path)
			release()
		})
	}
	wg.Wait()
	if most != 1 {
		t.Fatalf("%d were inside at once", most)
	}
}
