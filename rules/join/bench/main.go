// Command bench joins an AIPerf export with a server's records by the packages that
// rule join is made of, and prints what other tools are held against: counts and
// percentiles. It is a contender of bench/join, which describes the method; it is
// here because those packages are internal to the rules.
//
//	bench CLIENT SERVER REQUESTS [FOLDER]
//
// REQUESTS is how many were planned. With FOLDER the ledger is written there, as
// the rule writes it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/joined"
	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// answer is what every contender prints, in the form that bench/join reads: the
// two are programs apart, since bench may not import rules.
type answer struct {
	Client     int       `json:"client"`
	Server     int       `json:"server"`
	Matched    int       `json:"matched"`
	ClientOnly int       `json:"client_only"`
	ServerOnly int       `json:"server_only"`
	Ambiguous  int       `json:"ambiguous"`
	LatencyMS  []float64 `json:"latency_ms"`
	TaskCallMS []float64 `json:"task_call_ms"`
	Version    string    `json:"version"`
}

func run(args []string) error {
	if len(args) != 3 && len(args) != 4 {
		return errors.New("usage: bench CLIENT SERVER REQUESTS [FOLDER]")
	}
	client, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	server, err := os.Open(args[1])
	if err != nil {
		return err
	}
	defer server.Close()
	requests, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	write, flush := func(*ledger.Entry) error { return nil }, func() error { return nil }
	if len(args) == 4 {
		if write, flush, err = files(args[3]); err != nil {
			return err
		}
	}

	a := answer{Version: runtime.Version()}
	var row metrics.Builder
	var latency, call []float64
	summary, err := ledger.Build(ledger.Input{
		Plan:   ledger.Plan{Measured: requests},
		Client: aiperf.ReadRaw(client, args[0], 0),
		Server: ledger.ReadServer(server, args[1], 0),
	}, func(e *ledger.Entry) error {
		if e.Client != nil {
			a.Client++
		}
		row.Add(e)
		// The row's figures are of all completed requests, and have no call times where
		// their scopes differ; here they are of the matched ones, as the others' are.
		if e.Join == ledger.Matched && e.Class == ledger.Completed {
			latency = append(latency, float64(*e.Client.LatencyNS)/1e6)
			call = append(call, float64(*e.Server.TaskCallNS)/1e6)
		}
		return write(e)
	})
	if err := errors.Join(err, flush()); err != nil {
		return err
	}
	row.Sample(summary)
	row.Row()
	a.LatencyMS, a.TaskCallMS = percentiles(latency), percentiles(call)
	q, r := summary.Quality, summary.ServerRecords
	a.Server = r.Matched + r.Retries + r.Ambiguous + r.ServerOnly
	a.Matched, a.ClientOnly, a.ServerOnly, a.Ambiguous = q.OneToOne+q.Retried, q.ClientOnly, r.ServerOnly, q.Ambiguous
	return json.NewEncoder(os.Stdout).Encode(a)
}

// files opens both forms of the ledger.
func files(dir string) (write func(*ledger.Entry) error, flush func() error, err error) {
	lines, err := os.Create(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		return nil, nil, err
	}
	table, err := os.Create(filepath.Join(dir, "ledger.parquet"))
	if err != nil {
		return nil, nil, errors.Join(err, lines.Close())
	}
	w, t := ledger.NewWriter(lines), joined.NewWriter(table, "bench")
	write = func(e *ledger.Entry) error { return errors.Join(w.Write(e), t.Write(e)) }
	flush = func() error { return errors.Join(w.Flush(), t.Close(), lines.Close(), table.Close()) }
	return write, flush, nil
}

func percentiles(values []float64) (p []float64) {
	s := metrics.Describe(values)
	for _, q := range []metrics.Quantile{s.P50, s.P90, s.P95, s.P99} {
		if q.Value != nil {
			p = append(p, *q.Value)
		}
	}
	return p
}
