// Command relay measures what a relay adds between an engine and its client:
// Assay's gateway against a direct connection, nginx, HAProxy and Go's
// httputil.ReverseProxy, all in one run, from the moment an engine emits a chunk
// until the client has parsed it. ../README.md describes the method.
//
// The program also plays the parts that it measures with: it starts itself as
// engine, as worker and as Go's reverse proxy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "engine":
		return listen(engine())
	case len(args) == 1 && args[0] == "worker":
		return serveWorker()
	case len(args) == 2 && args[0] == "proxy":
		return serveProxy(args[1])
	}
	flags := flag.NewFlagSet("relay", flag.ExitOnError)
	assay := flags.String("assay", "bin/assay", "the program whose gateway is measured")
	out := flags.String("out", "out/bench", "folder for the results")
	systems := flags.String("systems", strings.Join(names, ","), "what to measure, in this order")
	streams := flags.String("streams", "1,8,64,512", "numbers of streams at a time")
	rounds := flags.Int("rounds", 6, "rounds; in each, every system has its turn under every load")
	window := flags.Duration("window", 2*time.Second, "how long a turn lasts")
	soak := flags.Duration("soak", 0, "instead: load the gateway for so long and watch what it holds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := plan{systems: strings.Split(*systems, ","), rounds: *rounds, window: *window}
	for _, text := range strings.Split(*streams, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1024 {
			return fmt.Errorf("-streams: %q is not a number from 1 to 1024", text)
		}
		p.streams = append(p.streams, n)
	}
	for _, name := range p.systems {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-systems: there is no %q, only %s", name, strings.Join(names, ", "))
		}
	}
	if flags.NArg() > 0 || p.rounds < 1 || p.window <= 0 || *soak < 0 {
		return errors.New("-rounds and -window must be positive, and there are no arguments besides flags")
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "relay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := filepath.Abs(*assay)
	if err != nil {
		return err
	}
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("the program to measure: %w; make build", err)
	}
	l := &lab{dir: dir, assay: program, self: self}
	if *soak > 0 {
		return runSoak(ctx, l, *soak, *out)
	}
	return runBench(ctx, l, p, *out)
}

// runBench measures and writes the report.
func runBench(ctx context.Context, l *lab, p plan, out string) error {
	r := report{
		Began: time.Now().UTC().Truncate(time.Second), Machine: machine(), Versions: l.versions(),
		Rounds: p.rounds, WindowSeconds: p.window.Seconds(), LoadBefore: load(), OthersBefore: usedShare(),
	}
	used, own, began := busy(), ownCPU(), time.Now()
	var ours time.Duration
	var err error
	r.Cells, r.Tasks, ours, err = p.measure(ctx, l, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	if err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	r.OthersDuring = othersShare(busy()-used, ours+ownCPU()-own, time.Since(began))
	r.OthersAfter, r.LoadAfter = usedShare(), load()
	r.judge()
	if err := writeJSON(filepath.Join(out, "relay.json"), r); err != nil {
		return err
	}
	text := r.markdown()
	fmt.Print(text)
	return os.WriteFile(filepath.Join(out, "relay.md"), []byte(text), 0o644)
}
