package wheel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// quoted is how many of pip's last lines an error has: the reason is at the end.
const quoted = 12

// download lets pip put the wheel into tmp and returns its path. Which index,
// proxy and credentials are used is the user's configuration of pip.
func download(ctx context.Context, python, tmp string, req Requirement, progress func(string)) (string, error) {
	pin := req.Name + "==" + req.Version
	for _, h := range req.Hashes {
		pin += " --hash=" + h
	}
	requirements := filepath.Join(tmp, "requirements.txt")
	if err := os.WriteFile(requirements, []byte(pin+"\n"), 0o644); err != nil {
		return "", err
	}
	last, err := run(ctx, progress, python, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
		"--require-hashes", "--disable-pip-version-check", "--no-input", "-d", tmp, "-r", requirements)
	said := strings.Join(last, "\n  ")
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("downloading: %w", context.Cause(ctx))
	case errors.As(err, &exit) && strings.Contains(said, "No module named pip"):
		return "", fmt.Errorf("%s has no pip; install it with `%s -m ensurepip`, or name another Python", python, python)
	case errors.As(err, &exit):
		return "", fmt.Errorf("pip download failed (%w); its last lines:\n  %s", err, said)
	case err != nil:
		return "", fmt.Errorf("running pip: %w", err)
	}
	wheels, err := wheelsIn(tmp)
	if err != nil {
		return "", err
	}
	if len(wheels) != 1 {
		return "", fmt.Errorf("pip ended well and left %d wheels, want 1; its last lines:\n  %s", len(wheels), said)
	}
	return wheels[0], nil
}

// run runs a command in a session of its own, hands each line of its output to
// progress and returns the last few. When the context ends, everything that the
// command started is killed.
func run(ctx context.Context, progress func(string), name string, args ...string) (last []string, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for a pipe that a stray grandchild still holds
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			if line = strings.TrimRight(line, "\r\n"); line != "" {
				progress(line)
				last = append(last, line)
				last = last[max(0, len(last)-quoted):]
			}
			if err != nil {
				return
			}
		}
	}()
	err = cmd.Wait()
	w.Close()
	<-done
	return last, err
}
