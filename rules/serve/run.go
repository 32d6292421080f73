package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"assay/rules/internal/gateway"
	"assay/rules/internal/scripted"
	"assay/rules/internal/server"
)

// Gateway runs the native server of a configuration file until ctx ends. When
// its port is open it prints one line, {"port": N}, to stdout.
func Gateway(ctx context.Context, config string, stdout, stderr io.Writer) error {
	data, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	c, err := gateway.ParseConfig(data)
	if err != nil {
		return fmt.Errorf("%s: %w", config, err)
	}
	c.Log = slog.New(slog.NewTextHandler(stderr, nil))
	// What is alive is little, and what a request leaves behind is less: at the usual
	// 100 the collector would run all the time in the measured path.
	debug.SetGCPercent(400)
	// An idle thread of Go's looks for work for a while, on a CPU that the engine or
	// the client needs just then.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
	s, err := gateway.New(c)
	if err != nil {
		return fmt.Errorf("%s: %w", config, err)
	}
	return s.Run(ctx, func(addr net.Addr) {
		// A parent that went away needs no line; it also ends this process.
		_ = json.NewEncoder(stdout).Encode(server.Listening{Port: addr.(*net.TCPAddr).Port})
	})
}

// ScriptedWorker speaks the worker protocol on stdin and stdout as a script
// says, for tests of the machinery.
func ScriptedWorker(ctx context.Context, script string, stdin io.Reader, stdout io.Writer) error {
	s, err := scripted.Load(script)
	if err != nil {
		return err
	}
	err = scripted.Run(ctx, s, stdin, stdout)
	if errors.Is(err, scripted.ErrDied) {
		os.Exit(scripted.DeathStatus) // a scripted death is a real one
	}
	return err
}
