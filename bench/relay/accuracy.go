package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// accuracy compares the task-call times in the records of the gateway with native
// workers with what the stand-in measured inside the call by itself. Times are µs.
type accuracy struct {
	Regime  regime `json:"regime"`
	Streams int    `json:"streams"`
	Scope   string `json:"scope"`
	// Unfit counts records without a completed task and the stand-in's figure.
	Unfit int `json:"unfit"`
	// Task is task.wall_ns minus the stand-in's figure.
	Task quantiles `json:"task_us"`
	// Gateway is total_ns minus the stand-in's figure: all that is not the engine,
	// the time that unpaced pieces wait for the client included.
	Gateway quantiles `json:"gateway_us"`
	// Beyond counts errors over maxTaskError.
	Beyond int `json:"beyond"`
	// Short counts tasks below the stand-in's figure, which cannot be.
	Short int `json:"short"`
}

// readAccuracy reads a gateway's records. The regime is in the request's id.
func readAccuracy(path string, streams int) ([]accuracy, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type times struct{ task, gateway []int64 }
	all := make([]accuracy, len(regimes))
	taken := make([]times, len(regimes))
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r struct {
			ID      string `json:"request_id"`
			Outcome string `json:"outcome"`
			TotalNS int64  `json:"total_ns"`
			Task    *struct {
				Scope  string             `json:"scope"`
				WallNS int64              `json:"wall_ns"`
				Engine map[string]float64 `json:"engine"`
			} `json:"task"`
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		i := slices.IndexFunc(regimes, func(g regime) bool { return strings.HasPrefix(r.ID, string(g)) })
		if i < 0 {
			continue // it only opened a connection
		}
		a, t := &all[i], &taken[i]
		if r.Outcome != "completed" || r.Task == nil || r.Task.Engine["true_ms"] == 0 {
			a.Unfit++
			continue
		}
		inside := int64(math.Round(r.Task.Engine["true_ms"] * 1e6))
		if a.Scope = r.Task.Scope; r.Task.WallNS < inside {
			a.Short++
		}
		if r.Task.WallNS-inside > maxTaskError {
			a.Beyond++
		}
		t.task = append(t.task, r.Task.WallNS-inside)
		t.gateway = append(t.gateway, r.TotalNS-inside)
	}
	for i, g := range regimes {
		all[i].Regime, all[i].Streams = g, streams
		all[i].Task, all[i].Gateway = quantilesOf(taken[i].task), quantilesOf(taken[i].gateway)
	}
	return all, lines.Err()
}
