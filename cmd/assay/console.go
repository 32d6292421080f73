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

func newConsole(name string, w io.Writer) (*console, error) {
	c := &console{w: w, running: map[string]*running{}, stopped: make(chan struct{})}
	width := 0
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if cols, _, err := term.GetSize(int(f.Fd())); err == nil {
			width = cols
		}
	}
	switch name {
	case "auto":
		c.width = width
	case "tty":
		c.width = max(width, 80)
	case "plain":
	case "quiet":
		c.quiet = true
	default:
		return nil, fmt.Errorf("--console %q: it is auto, tty, plain or quiet", name)
	}
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
	return c, nil
}

// Expect says how many actions the build has.
func (c *console) Expect(total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total = total
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

// draw rewrites the status line: what is done of all, and what runs.
func (c *console) draw() {
	if c.width == 0 || c.quiet || len(c.running) == 0 {
		return
	}
	var parts []string
	for _, id := range c.names() {
		parts = append(parts, id+" "+describe(c.running[id]))
	}
	text := fmt.Sprintf("[%d/%d] %s", c.finished, c.total, strings.Join(parts, " · "))
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
