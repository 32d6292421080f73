package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lab is what a measurement needs.
type lab struct {
	assay, python, peers string
	threads, rounds      int
	contenders           []contender
}

// contender is a program that joins two files and prints an answer.
type contender struct {
	name    string
	command func(l *lab, client, server, dir string, n int) []string
}

var contenders = []contender{
	{"assay", func(l *lab, client, server, _ string, n int) []string {
		return []string{l.assay, client, server, strconv.Itoa(n)}
	}},
	{"assay-files", func(l *lab, client, server, dir string, n int) []string {
		return []string{l.assay, client, server, strconv.Itoa(n), dir}
	}},
	{"duckdb", peer("join_duckdb.py")},
	{"polars", peer("join_polars.py")},
	{"python", peer("join_python.py")},
}

func peer(script string) func(*lab, string, string, string, int) []string {
	return func(l *lab, client, server, _ string, _ int) []string {
		return []string{l.python, filepath.Join(l.peers, script), client, server, strconv.Itoa(l.threads)}
	}
}

func allNames() (names []string) {
	for _, c := range contenders {
		names = append(names, c.name)
	}
	return names
}

// answer is what a contender found out.
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

// differs says what another contender found out differently, "" for nothing. The
// percentiles are sums of products of float64, in any order.
func (a *answer) differs(b *answer) string {
	if x, y := a.counts(), b.counts(); x != y {
		return fmt.Sprintf("counts %v and %v", x, y)
	}
	if !near(a.LatencyMS, b.LatencyMS) {
		return fmt.Sprintf("latencies %v and %v", a.LatencyMS, b.LatencyMS)
	}
	if !near(a.TaskCallMS, b.TaskCallMS) {
		return fmt.Sprintf("task calls %v and %v", a.TaskCallMS, b.TaskCallMS)
	}
	return ""
}

func (a *answer) counts() [6]int {
	return [...]int{a.Client, a.Server, a.Matched, a.ClientOnly, a.ServerOnly, a.Ambiguous}
}

func near(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-9*math.Abs(a[i]) {
			return false
		}
	}
	return true
}

// turn is one run of a contender.
type turn struct {
	answer       answer
	seconds, cpu float64
	peak         int64 // resident bytes
}

// time runs a contender from its start to its end as a process.
func (l *lab) time(ctx context.Context, c contender, dir string, n int) (turn, error) {
	args := c.command(l, filepath.Join(dir, clientFile), filepath.Join(dir, serverFile), dir, n)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", l.threads))
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return turn{}, fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint.String()))
	}
	t := turn{seconds: time.Since(began).Seconds(), cpu: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		t.peak = int64(usage.Maxrss) << 10 // Linux counts in KiB
	}
	return t, json.Unmarshal(out.Bytes(), &t.answer)
}
