package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// echo is a handler that answers every request with its id.
func echo(ctx context.Context, calls <-chan Call, say func(Reply) error) error {
	return serveWith(ctx, calls, say, Capabilities{Endpoints: []string{"chat"}, Cancel: true}, nil)
}

func serveWith(ctx context.Context, calls <-chan Call, say func(Reply) error, can Capabilities, hold func(Call)) error {
	if err := errors.Join(say(&Hello{Protocol: Version, Worker: "w", Engine: Engine{Name: "e"}, Capabilities: can}), say(new(Ready))); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-calls:
			if hold != nil {
				hold(c)
			}
			g := c.Request.(*Generate)
			if err := say(&Done{ID: g.ID, Task: task(), Text: &g.ID}); err != nil {
				return err
			}
		}
	}
}

func handled(t *testing.T, opt Options, handlers ...Handler) *Pool {
	t.Helper()
	var specs []Spec
	for _, h := range handlers {
		specs = append(specs, Spec{Handler: h})
	}
	opt.StartupTimeout, opt.CancelGrace, opt.Log = time.Minute, 100*time.Millisecond, slog.New(slog.DiscardHandler)
	p := NewPool(specs, opt)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return p
}

func ready(t *testing.T, p *Pool) {
	t.Helper()
	for _, l := range p.Lanes() {
		for p.Lanes()[l.Lane].State == Loading {
			time.Sleep(time.Millisecond)
		}
	}
}

func ask(ctx context.Context, l *Lease, id string) error {
	defer l.Close()
	if err := l.Generate(ctx, &Generate{ID: id}); err != nil {
		return err
	}
	r, err := l.Next(ctx)
	if d, ok := r.(*Done); err == nil && (!ok || *d.Text != id) {
		return errors.New("not my answer")
	}
	return err
}

func TestAHandlerIsAWorker(t *testing.T) {
	p := handled(t, Options{}, echo, echo)
	ready(t, p)
	for range 5 {
		l, ticket, err := p.Acquire(t.Context())
		if err != nil || ticket != (Ticket{}) {
			t.Fatal(err, ticket)
		}
		if err := ask(t.Context(), l, "r"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAHandlerThatBreaksTheProtocolIsReplaced(t *testing.T) {
	once := false
	p := handled(t, Options{}, func(ctx context.Context, calls <-chan Call, say func(Reply) error) error {
		return serveWith(ctx, calls, say, Capabilities{Endpoints: []string{"chat"}}, func(c Call) {
			if !once {
				once = true
				say(&Done{ID: "another", Task: task()})
			}
		})
	})
	ready(t, p)
	l, _, _ := p.Acquire(t.Context())
	if err := ask(t.Context(), l, "r"); err == nil || !strings.Contains(err.Error(), `"another" while "r"`) {
		t.Errorf("got %v", err)
	}
	until(t, p, func(l LaneStatus) bool { return l.State == Idle && l.Worker == 2 })
	l, _, _ = p.Acquire(t.Context())
	if err := ask(t.Context(), l, "r2"); err != nil {
		t.Error(err)
	}
}

// An engine that serves one lane and dies is no reason to give up the others.
func TestLanesThatShareAnEngine(t *testing.T) {
	var mu sync.Mutex
	var crash context.CancelFunc
	var engine context.Context
	restart := func() context.Context {
		mu.Lock()
		defer mu.Unlock()
		if engine == nil || engine.Err() != nil {
			engine, crash = context.WithCancel(context.Background())
		}
		return engine
	}
	shared := func(ctx context.Context, calls <-chan Call, say func(Reply) error) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(restart(), cancel)()
		return echo(ctx, calls, say)
	}
	p := handled(t, Options{}, shared, shared)
	ready(t, p)
	for round := range 4 {
		l, _, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := ask(t.Context(), l, "r"); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		crash()
		mu.Unlock()
		for _, lane := range p.Lanes() {
			for {
				now := p.Lanes()[lane.Lane]
				if now.State == Out {
					t.Fatalf("lane %d is out: %s", now.Lane, now.Reason)
				}
				if now.State == Idle && now.Worker == round+2 {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// The order of lanes is the order of arrival, and nobody waits where there is no room.
func TestTheQueueIsFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		length := rapid.IntRange(1, 5).Draw(rt, "length")
		arrivals := rapid.IntRange(1, 8).Draw(rt, "arrivals")
		p := NewPool([]Spec{{Handler: echo}}, Options{Queue: length, QueueWait: time.Minute, StartupTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		if err := p.WaitReady(ctx); err != nil {
			rt.Fatal(err)
		}
		held, _, err := p.Acquire(ctx)
		if err != nil {
			rt.Fatal(err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i := range arrivals {
			if i >= length {
				if _, ticket, err := p.Acquire(ctx); !errors.Is(err, ErrBusy) || ticket.Queued || ticket.Depth != length {
					rt.Fatalf("a full queue: %+v, %v", ticket, err)
				}
				continue
			}
			wg.Go(func() {
				l, ticket, err := p.Acquire(ctx)
				if err != nil || !ticket.Queued || ticket.Depth != i {
					rt.Errorf("arrival %d: %+v, %v", i, ticket, err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				l.Close()
			})
			for p.Waiting() <= i {
				time.Sleep(10 * time.Microsecond)
			}
		}
		held.Close()
		wg.Wait()
		for i, who := range order {
			if who != i {
				rt.Fatalf("order %v", order)
			}
		}
		stop()
		if err := <-ended; err != nil {
			rt.Fatal(err)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	p := handled(t, Options{Queue: 5, QueueWait: 20 * time.Millisecond}, echo)
	ready(t, p)
	held, _, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ticket, err := p.Acquire(t.Context()); !errors.Is(err, ErrWaited) || !ticket.Queued || ticket.Wait < 20*time.Millisecond {
		t.Errorf("%+v, %v", ticket, err)
	}
	gone := errors.New("the client left")
	ctx, leave := context.WithCancelCause(t.Context())
	leave(gone)
	if _, _, err := p.Acquire(ctx); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	if p.Waiting() != 0 {
		t.Errorf("%d still wait", p.Waiting())
	}
	held.Close()
	if l, _, err := p.Acquire(t.Context()); err != nil {
		t.Error(err)
	} else {
		l.Close()
	}
}

// When the last lane goes out of service, those who wait are told.
func TestNothingToWaitFor(t *testing.T) {
	left := false
	p := handled(t, Options{Queue: 5, QueueWait: time.Minute}, func(ctx context.Context, calls <-chan Call, say func(Reply) error) error {
		if left {
			return errors.New("it does not load again")
		}
		left = true
		return serveWith(ctx, calls, say, Capabilities{Endpoints: []string{"chat"}}, func(c Call) { <-c.Context.Done() })
	})
	ready(t, p)
	held, _, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Generate(t.Context(), &Generate{ID: "hangs"}); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() {
		_, _, err := p.Acquire(t.Context())
		waiting <- err
	}()
	for p.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	held.Close() // it does not end within the grace, and its worker cannot be replaced
	if err := <-waiting; !errors.Is(err, ErrNotReady) {
		t.Errorf("got %v", err)
	}
}

func TestLanesThatDiffer(t *testing.T) {
	p := handled(t, Options{}, echo, func(ctx context.Context, calls <-chan Call, say func(Reply) error) error {
		return serveWith(ctx, calls, say, Capabilities{Endpoints: []string{"chat"}, Logprobs: true}, nil)
	})
	ready(t, p)
	out := 0
	for _, l := range p.Lanes() {
		if l.State == Out && strings.Contains(l.Reason, "differs from the first") && strings.Contains(l.Reason, `"logprobs":true`) {
			out++
		}
	}
	if out != 1 {
		t.Errorf("lanes %+v", p.Lanes())
	}
}

func TestTextForEverySplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text")
		var whole Text
		var got strings.Builder
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "token")
			piece := whole.Add(rest[:n])
			if strings.ToValidUTF8(piece, "") != piece {
				rt.Fatalf("%q is not UTF-8", piece)
			}
			got.WriteString(piece)
			rest = rest[n:]
		}
		got.WriteString(whole.Rest())
		if want := strings.ToValidUTF8(text, "\uFFFD"); got.String() != want {
			rt.Fatalf("%q became %q", want, got.String())
		}
	})
}

func TestTextThatIsNotUTF8(t *testing.T) {
	for _, c := range []struct {
		tokens []string
		want   string
	}{
		{[]string{"a\xe4", "\xb8"}, "a\uFFFD"},
		{[]string{"\xff", "b"}, "\uFFFDb"},
		{[]string{"\xf0\x9f", "x"}, "\uFFFDx"},
	} {
		var text Text
		got := ""
		for _, token := range c.tokens {
			got += text.Add([]byte(token))
		}
		if got += text.Rest(); got != c.want {
			t.Errorf("%q gave %q", c.tokens, got)
		}
	}
}
