package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"assay/engine/event"
)

// consoles are the ways to show progress.
var consoles = []string{"auto", "tty", "plain", "json", "quiet"}

// display shows the events of a build until it is closed.
type display interface {
	event.Sink
	Close()
}

// newConsole makes the display with one of the names in consoles.
func newConsole(name string, w io.Writer) display {
	width := 0
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if cols, _, err := term.GetSize(int(f.Fd())); err == nil {
			width = cols
		}
	}
	switch name {
	case "json":
		return jsonConsole{event.NewLog(w)}
	case "tty":
		width = max(width, 80)
	case "plain", "quiet":
		width = 0
	}
	return startConsole(w, width, name == "quiet")
}

// jsonConsole writes each event as a line of JSON.
type jsonConsole struct{ *event.Log }

// Close implements display. That the console went away is not the build's trouble.
func (jsonConsole) Close() {}

// console shows the events of a build to a person.
type console struct {
	w io.Writer
	// width is the terminal's width, 0 if there is none: then there is no status
	// line, and progress comes as lines of its own, seldom.
	width int
	quiet bool

	mu       sync.Mutex
	total    int
	finished int
	running  map[string]*running
	drawn    bool
	tick     *time.Ticker
	stopped  chan struct{}
}

type running struct {
	since, told time.Time
	progress    event.Event
}

// Progress lines of a plain console are this far apart; a terminal's status line
// is drawn at the other interval.
const (
	plainInterval  = 5 * time.Second
	statusInterval = 200 * time.Millisecond
)

func startConsole(w io.Writer, width int, quiet bool) *console {
	c := &console{w: w, width: width, quiet: quiet, running: map[string]*running{}, stopped: make(chan struct{})}
	interval := statusInterval
	if c.width == 0 {
		interval = plainInterval
	}
	c.tick = time.NewTicker(interval)
	go func() {
		for {
			select {
			case <-c.stopped:
				return
			case <-c.tick.C:
				c.refresh()
			}
		}
	}()
	return c
}

// Close ends the display.
func (c *console) Close() {
	c.tick.Stop()
	close(c.stopped)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
}

// Handle implements event.Sink.
func (c *console) Handle(e event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case event.Begin:
		c.total = e.Total
	case event.Note:
		c.line("note   %s", e.What)
	case event.Started:
		c.running[e.Action] = &running{since: time.Now(), told: time.Now()}
		c.line("run    %s  (%s)", e.Action, e.Reason)
	case event.Progress:
		if r, ok := c.running[e.Action]; ok {
			r.progress = e
		} else if e.What != "" {
			c.line("wait   %s  (%s)", e.Action, e.What)
		}
	case event.Finished:
		delete(c.running, e.Action)
		c.finished++
		switch e.Status {
		case event.Ran:
			c.line("done   %s  %s", e.Action, round(time.Duration(e.Seconds*float64(time.Second))))
		case event.Reproduced:
			c.line("done   %s  %s, same bytes as before", e.Action, round(time.Duration(e.Seconds*float64(time.Second))))
		case event.Skipped:
			c.line("skip   %s  (%s)", e.Action, e.Reason)
		case event.Failed:
			c.line("FAILED %s", e.Action)
		case event.GateFailed:
			c.line("GATE   %s did not pass", e.Action)
		}
	}
	c.draw()
}

// line prints a lasting line above the status line.
func (c *console) line(format string, args ...any) {
	if c.quiet {
		return
	}
	c.erase()
	fmt.Fprintf(c.w, format+"\n", args...)
}

func (c *console) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.width > 0 {
		c.draw()
		return
	}
	for _, id := range c.names() {
		if r := c.running[id]; r.progress.What != "" && time.Since(r.told) >= plainInterval {
			c.line("       %s  %s", id, describe(r))
			r.told = time.Now()
		}
	}
}

func (c *console) names() []string {
	var names []string
	for id := range c.running {
		names = append(names, id)
	}
	slices.Sort(names)
	return names
}

// bar shows how far a build is: what is done, what runs, and what is not known
// yet, because whether it must run depends on what runs before it.
func bar(done, running, total int) string {
	const width = 20
	if total == 0 {
		return "[" + strings.Repeat(".", width) + "]"
	}
	cells := func(n int) int { return (n*width + total - 1) / total }
	known := min(width, cells(done+running))
	// A build that is not done has room left, and what runs is always seen.
	if done+running < total {
		known = min(known, width-1)
	}
	ahead := 0
	if running > 0 {
		ahead = max(1, known-done*width/total)
	}
	known = max(known, ahead)
	return "[" + strings.Repeat("=", known-ahead) + strings.Repeat(">", ahead) + strings.Repeat(".", width-known) + "]"
}

// draw rewrites the status line: what is done of all, and what runs.
func (c *console) draw() {
	if c.width == 0 || c.quiet || len(c.running) == 0 {
		return
	}
	var parts []string
	for _, id := range c.names() {
		parts = append(parts, id+" "+describe(c.running[id]))
	}
	text := fmt.Sprintf("%s %d/%d %s", bar(c.finished, len(c.running), c.total), c.finished, c.total, strings.Join(parts, " · "))
	if runes := []rune(text); len(runes) >= c.width {
		text = string(runes[:max(0, c.width-2)]) + "…"
	}
	fmt.Fprintf(c.w, "\r\x1b[K%s", text)
	c.drawn = true
}

func (c *console) erase() {
	if c.drawn {
		fmt.Fprint(c.w, "\r\x1b[K")
		c.drawn = false
	}
}

func describe(r *running) string {
	age := time.Since(r.since).Round(time.Second)
	switch p := r.progress; {
	case p.Total > 0:
		return fmt.Sprintf("%d/%d %s, %s", p.Done, p.Total, p.What, age)
	case p.What != "":
		return fmt.Sprintf("%s, %s", p.What, age)
	}
	return age.String()
}
