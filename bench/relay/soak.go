package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// lanes is how many workers the soak's gateway has; one client fewer uses them,
// as a cancelled request holds its lane for a moment.
const lanes = 4

// look is the state of the gateway at one time.
type look struct {
	Seconds  float64 `json:"seconds"`
	Requests int64   `json:"requests"`
	footprint
	// Metrics are the gateway's own, those named in watched; empty if it has none.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// watched are the metrics that tell of growth.
var watched = []string{
	"go_memstats_mallocs_total", "go_memstats_alloc_bytes_total", "go_memstats_heap_alloc_bytes", "go_memstats_heap_objects", "go_goroutines",
}

// soakReport is the content of soak.json.
type soakReport struct {
	Began     time.Time         `json:"began"`
	Machine   map[string]string `json:"machine"`
	Versions  map[string]string `json:"versions"`
	Streamed  int64             `json:"streamed"`
	Buffered  int64             `json:"buffered"`
	Left      int64             `json:"left"`    // streams that the client left
	Refused   int64             `json:"refused"` // 429: the lane of a client that left was not free yet
	Errors    int64             `json:"errors"`
	Error     string            `json:"error,omitempty"`
	Trends    []trend           `json:"trends"`
	Verdict   verdict           `json:"verdict"`
	Looks     []look            `json:"looks"`
	SkippedAt float64           `json:"skipped_seconds"` // of the start, before the trends
}

// trend compares the halves of the soak. The figures are means, and slopes a
// minute by least squares.
type trend struct {
	Name                    string `json:"name"`
	First, Second           float64
	FirstSlope, SecondSlope float64
}

// load is what the clients did, under mu.
type tally struct {
	mu     sync.Mutex
	report soakReport
	served int64
}

func (t *tally) count(kind *int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var status statusError
	switch {
	case err == nil:
		*kind++
		t.served++
	case errors.As(err, &status) && status == http.StatusTooManyRequests:
		t.report.Refused++
	default:
		t.report.Errors++
		if t.report.Error == "" {
			t.report.Error = err.Error()
		}
	}
}

// runSoak loads a gateway with native workers and writes how its footprint moved.
func runSoak(ctx context.Context, l *lab, length time.Duration, out string) (err error) {
	s := l.start(ctx, "assay-native", "", lanes)
	if s.missing != "" {
		return errors.New(s.missing)
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	t := &tally{report: soakReport{Began: time.Now().UTC().Truncate(time.Second), Machine: machine(), Versions: l.versions(), SkippedAt: length.Seconds() / 5}}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var clients sync.WaitGroup
	for i := range lanes - 1 {
		clients.Go(func() { t.use(ctx, s.addr, i) })
	}
	began := time.Now()
	for tick := time.NewTicker(max(length/240, 100*time.Millisecond)); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
			t.look(ctx, s, began)
		}
	}
	clients.Wait()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	r := &t.report
	r.sum()
	if err := writeJSON(filepath.Join(out, "soak.json"), r); err != nil {
		return err
	}
	text := r.markdown()
	fmt.Print(text)
	return os.WriteFile(filepath.Join(out, "soak.md"), []byte(text), 0o644)
}

// use is one client: of ten requests six are streamed, three buffered, and one is
// a stream that the client leaves.
func (t *tally) use(ctx context.Context, addr string, index int) {
	var k *client
	defer func() {
		if k != nil {
			k.close()
		}
	}()
	var s streamed
	for i := index; ctx.Err() == nil; i++ {
		if k == nil {
			var err error
			if k, err = dial(ctx, addr); err != nil {
				if ctx.Err() == nil {
					t.count(nil, err)
				}
				return
			}
		}
		kind, stop := &t.report.Streamed, 0
		var err error
		switch i % 10 {
		case 2, 5, 8:
			kind = &t.report.Buffered
			_, err = k.whole(nextID("soak"))
		case 9:
			kind, stop = &t.report.Left, 5
			fallthrough
		default:
			err = k.stream(nextID("soak"), job{Stream: true, Pieces: 32, GapUS: 500}, stop, &s)
		}
		t.count(kind, err)
		var status statusError
		if refused := errors.As(err, &status); refused {
			time.Sleep(time.Millisecond)
		} else if err != nil || stop > 0 {
			k.close()
			k = nil
		}
	}
}

func (t *tally) look(ctx context.Context, s *system, began time.Time) {
	metrics := scrape(ctx, s.addr)
	if ctx.Err() != nil {
		return // the end came in between
	}
	now := look{Seconds: time.Since(began).Seconds(), footprint: footprintOf(s.process.Pid()), Metrics: metrics}
	t.mu.Lock()
	defer t.mu.Unlock()
	now.Requests = t.served
	t.report.Looks = append(t.report.Looks, now)
}

// scrape reads the watched metrics, if there are any.
func scrape(ctx context.Context, addr string) map[string]float64 {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	found := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if slices.Contains(watched, name) {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				found[name] = v
			}
		}
	}
	return found
}

// sum makes the trends and the verdict.
func (r *soakReport) sum() {
	kept := r.Looks
	for len(kept) > 0 && kept[0].Seconds < r.SkippedAt {
		kept = kept[1:]
	}
	r.Verdict = verdict{Target: "no allocation growth", Where: fmt.Sprintf("soak, %d lanes", lanes), Result: "not judged", Detail: "too short, or the gateway has no metrics"}
	if len(kept) < 8 {
		return
	}
	add := func(name string, value func(l look) float64) {
		half := len(kept) / 2
		first, firstSlope := fit(kept[:half], value)
		second, secondSlope := fit(kept[half:], value)
		r.Trends = append(r.Trends, trend{name, first, second, firstSlope, secondSlope})
	}
	add("RSS, MiB", func(l look) float64 { return float64(l.RSS) / (1 << 20) })
	add("threads", func(l look) float64 { return float64(l.Threads) })
	add("open files", func(l look) float64 { return float64(l.Files) })
	const mallocs = "go_memstats_mallocs_total"
	kept = slices.DeleteFunc(slices.Clone(kept), func(l look) bool { return l.Metrics[mallocs] == 0 })
	if len(kept) < 8 {
		return
	}
	add("goroutines", func(l look) float64 { return l.Metrics["go_goroutines"] })
	add("heap, MiB", func(l look) float64 { return l.Metrics["go_memstats_heap_alloc_bytes"] / (1 << 20) })
	add("heap objects", func(l look) float64 { return l.Metrics["go_memstats_heap_objects"] })
	half := len(kept) / 2
	perRequest := func(looks []look) float64 {
		a, b := looks[0], looks[len(looks)-1]
		return (b.Metrics[mallocs] - a.Metrics[mallocs]) / float64(max(1, b.Requests-a.Requests))
	}
	first, second := perRequest(kept[:half]), perRequest(kept[half:])
	r.Trends = append(r.Trends, trend{Name: "allocations a request", First: first, Second: second})
	r.Verdict.Result = word(second <= 1.05*first && r.Errors == 0)
	r.Verdict.Detail = fmt.Sprintf("%.1f allocations a request in the first half, %.1f in the second; %d errors", first, second, r.Errors)
}

// fit is the mean of a value and its slope a minute.
func fit(looks []look, value func(look) float64) (mean, perMinute float64) {
	var x, y []float64
	for _, l := range looks {
		x, y = append(x, l.Seconds/60), append(y, value(l))
		mean += value(l) / float64(len(looks))
	}
	return mean, slope(x, y)
}

func (r *soakReport) markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Soak of the gateway\n")
	last := look{}
	if len(r.Looks) > 0 {
		last = r.Looks[len(r.Looks)-1]
	}
	p("%s, %.0f s, %d lanes, %d CPUs. %d requests streamed, %d buffered, %d left by the client, %d refused, %d errors %s\n",
		r.Began.Format(time.RFC3339), last.Seconds, lanes, runtime.NumCPU(), r.Streamed, r.Buffered, r.Left, r.Refused, r.Errors, r.Error)
	p("Versions: %s\n", pairs(r.Versions))
	p("%s: **%s**; %s.\n", r.Verdict.Target, r.Verdict.Result, r.Verdict.Detail)
	p("The first %.0f s are left out.\n\n| what | mean of first half | of second half | slope a minute, first half | second half |\n|---|---|---|---|---|", r.SkippedAt)
	for _, t := range r.Trends {
		p("| %s | %.2f | %.2f | %.3f | %.3f |", t.Name, t.First, t.Second, t.FirstSlope, t.SecondSlope)
	}
	return b.String()
}
