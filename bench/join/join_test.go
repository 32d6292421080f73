package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The same seed gives the same files, of lines that are JSON, with all that a join
// must not stumble over.
func TestGenerate(t *testing.T) {
	const n = 20_000
	read := func(seed uint64) (client, server []byte) {
		dir := t.TempDir()
		if err := generate(dir, n, seed); err != nil {
			t.Fatal(err)
		}
		client, err := os.ReadFile(filepath.Join(dir, clientFile))
		if err != nil {
			t.Fatal(err)
		}
		server, err = os.ReadFile(filepath.Join(dir, serverFile))
		if err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	client, server := read(1)
	if again, records := read(1); !bytes.Equal(client, again) || !bytes.Equal(server, records) {
		t.Error("another run gave other files")
	}
	if other, _ := read(2); bytes.Equal(client, other) {
		t.Error("another seed gave the same file")
	}

	sent, seen := map[string]int{}, map[string]int{}
	for line := range bytes.Lines(client) {
		var r struct {
			Metadata struct {
				ID string `json:"x_request_id"`
			}
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		sent[r.Metadata.ID]++
	}
	for line := range bytes.Lines(server) {
		var r struct {
			ID string `json:"request_id"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		seen[r.ID]++
	}
	total, shared, alone, again := 0, 0, 0, 0
	for id, times := range sent {
		if total += times; times > 1 {
			shared++
		}
		if seen[id] == 0 {
			alone++
		}
		if times == 1 && seen[id] > 1 {
			again++
		}
	}
	if total != n || shared == 0 || alone == 0 || again == 0 {
		t.Errorf("%d requests; %d ids shared, %d without a record, %d with several", total, shared, alone, again)
	}
}

func TestAnswersAreHeldAgainstEachOther(t *testing.T) {
	a := answer{Client: 9, Matched: 8, LatencyMS: []float64{1, 2}, TaskCallMS: []float64{1}}
	for name, c := range map[string]struct {
		change func(*answer)
		says   string
	}{
		"the same":           {func(*answer) {}, ""},
		"another version":    {func(b *answer) { b.Version = "2" }, ""},
		"rounded elsewhere":  {func(b *answer) { b.LatencyMS = []float64{1, 2 + 1e-12} }, ""},
		"another count":      {func(b *answer) { b.Matched = 7 }, "counts"},
		"another percentile": {func(b *answer) { b.LatencyMS = []float64{1, 2.001} }, "latencies"},
		"one too few":        {func(b *answer) { b.TaskCallMS = nil }, "task calls"},
	} {
		b := a
		c.change(&b)
		if got := agree([]result{{Name: "a", Answer: a}, {Name: "b", Answer: b}}); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
