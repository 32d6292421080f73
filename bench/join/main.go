// Command join measures how long it takes to join a load generator's export with a
// server's records: the packages of rule join against DuckDB, Polars and plain
// Python, over the same generated files, in turns. README.md describes the method.
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
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "join:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("join", flag.ExitOnError)
	l := lab{}
	flags.StringVar(&l.assay, "assay", "bin/join-assay", "the program of rules/join/bench")
	flags.StringVar(&l.python, "python", "out/bench/python/bin/python", "Python with the packages of requirements.txt")
	flags.StringVar(&l.peers, "peers", "bench/join/peers", "folder of the other contenders")
	flags.IntVar(&l.threads, "threads", 2, "threads for each contender that can use several")
	flags.IntVar(&l.rounds, "rounds", 5, "rounds; in each, every contender has its turn")
	out := flags.String("out", "out/bench", "folder for the results")
	sizes := flags.String("requests", "200000,1000000", "numbers of requests")
	names := flags.String("contenders", strings.Join(allNames(), ","), "who takes part")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || l.rounds < 1 || l.threads < 1 {
		return errors.New("-rounds and -threads must be positive, and there are no arguments besides flags")
	}
	var requests []int
	for text := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-requests: %q is no positive number", text)
		}
		requests = append(requests, n)
	}
	for name := range strings.SplitSeq(*names, ",") {
		i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == name })
		if i < 0 {
			return fmt.Errorf("-contenders: there is no %q, only %s", name, strings.Join(allNames(), ", "))
		}
		l.contenders = append(l.contenders, contenders[i])
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := newReport(&l)
	for _, n := range requests {
		t, err := l.measure(ctx, n)
		if err != nil {
			return err
		}
		r.Tables = append(r.Tables, t)
	}
	if err := r.write(*out); err != nil {
		return err
	}
	fmt.Print(r.markdown())
	return nil
}

// measure generates the files of n requests and lets the contenders join them.
func (l *lab) measure(ctx context.Context, n int) (table, error) {
	dir, err := os.MkdirTemp("", "join-")
	if err != nil {
		return table{}, err
	}
	defer os.RemoveAll(dir)
	if err := generate(dir, n, 1); err != nil {
		return table{}, err
	}
	t := table{Requests: n, Rows: make([]result, len(l.contenders))}
	for _, name := range []string{clientFile, serverFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return table{}, err
		}
		t.Bytes += info.Size()
	}
	// Round 0 fills the page cache and is not counted.
	for round := range l.rounds + 1 {
		for turn := range l.contenders {
			i := (turn + round) % len(l.contenders)
			c := l.contenders[i]
			fmt.Fprintf(os.Stderr, "%d requests, round %d of %d: %s\n", n, round, l.rounds, c.name)
			run, err := l.time(ctx, c, dir, n)
			if err != nil {
				return table{}, fmt.Errorf("%s: %w", c.name, err)
			}
			row := &t.Rows[i]
			row.Name, row.Answer = c.name, run.answer
			if round > 0 {
				row.Seconds, row.CPUSeconds, row.PeakBytes = append(row.Seconds, run.seconds), append(row.CPUSeconds, run.cpu), append(row.PeakBytes, run.peak)
			}
		}
	}
	t.Agree = agree(t.Rows)
	return t, nil
}
