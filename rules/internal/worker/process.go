package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"assay/engine/supervise"
	"assay/rules/internal/nonblock"
)

// exitNotice is how long the end of a worker's output may precede the end of
// its process, when both are one event.
const exitNotice = time.Second

// process is a worker in a process of its own, reached by pipes.
//
// Its output is read by who has the lane, without a goroutine in between: each
// hand-over of an increment would cost as much as the rest of its way. While the
// lane is idle a watcher reads, so that a worker that ends or says something then
// is noticed.
type process struct {
	*worker
	proc   *supervise.Process
	stdin  *os.File
	stdout *os.File
	frames io.Writer       // to stdin
	lines  *lineReader     // of whoever may read
	idle   chan struct{}   // gives the reading to the watcher
	busy   chan Reply      // takes it back, with a reply if one came first; closed when the watcher has ended
	held   bool            // the lane's user reads
	bound  context.Context // may end the reading; nil for none
	unbind func()          // and then not any more
	send   sync.Mutex      // one frame at a time
	tasks  sync.WaitGroup
}

func spawn(w *worker, spec Spec) (*process, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the worker: %w", err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the worker: %w", err), theirIn.Close(), in.Close())
	}
	// The context is the lane's concern: it ends a worker in order.
	proc, err := supervise.Start(context.Background(), supervise.Spec{
		Path: spec.Command[0], Args: spec.Command[1:], Env: spec.Env, CPUs: spec.CPUs,
		Stdin: theirIn, Stdout: theirOut, Stderr: os.Stderr,
	})
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	p := &process{
		worker: w, proc: proc, stdin: in, stdout: out,
		frames: nonblock.Writer(in), lines: newLineReader(nonblock.Reader(out), MaxReply),
		idle: make(chan struct{}, 1), busy: make(chan Reply), held: true,
	}
	p.tasks.Go(p.watch)
	p.tasks.Go(func() {
		// Children of a dead worker may hold its output open: end them too.
		<-proc.Done()
		if err := proc.Stop(0); err != nil {
			w.retire(err)
		}
	})
	return p, nil
}

func (p *process) ended() <-chan struct{} { return p.proc.Done() }

// watch reads while the lane is idle. What it reads then retires the worker, unless
// it answers a request that was sent in the same moment.
func (p *process) watch() {
	defer close(p.busy)
	for {
		select {
		case <-p.idle:
		case <-p.retired:
			return
		}
		reply, err := p.read()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		select {
		case p.busy <- reply:
		case <-p.retired:
			return
		}
	}
}

// rest gives the reading to the watcher.
func (p *process) rest() {
	if !p.held {
		return
	}
	p.held = false
	p.release()
	p.idle <- struct{}{}
}

// hold takes the reading back from the watcher, with a reply that it may have read.
func (p *process) hold() Reply {
	_ = p.stdout.SetReadDeadline(time.Unix(1, 0))
	reply := <-p.busy
	_ = p.stdout.SetReadDeadline(time.Time{})
	p.held = true
	return reply
}

func (p *process) next(ctx context.Context) (Reply, error) {
	if !p.held {
		if reply := p.hold(); reply != nil {
			return reply, nil
		}
	}
	if p.lines.ready() {
		return p.read()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p.bind(ctx)
	reply, err := p.read()
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return reply, err
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, p.reason() // the lane is giving the worker up
}

// bind lets ctx end the reading, until another context does or release is called: to
// do it anew for each increment would cost more than to read it.
func (p *process) bind(ctx context.Context) {
	if p.bound == ctx {
		return
	}
	p.release()
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = p.stdout.SetReadDeadline(time.Unix(1, 0))
	})
	p.bound, p.unbind = ctx, func() {
		if !stop() {
			<-expired
			_ = p.stdout.SetReadDeadline(time.Time{})
		}
	}
}

func (p *process) release() {
	if p.bound != nil {
		p.unbind()
		p.bound, p.unbind = nil, nil
	}
}

func (p *process) more() bool { return p.lines.ready() }

// read reads one reply. An error retires the worker and is the reason, but for
// os.ErrDeadlineExceeded, which says that the reading was ended from here.
func (p *process) read() (Reply, error) {
	line, err := p.lines.next()
	switch {
	case err == nil:
		var reply Reply
		if reply, err = DecodeReply(line); err == nil {
			err = p.accept(reply)
		}
		if err == nil {
			return reply, nil
		}
		err = fmt.Errorf("protocol violation: %w", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, err
	case errors.Is(err, bufio.ErrTooLong):
		err = fmt.Errorf("protocol violation: a line of more than %d bytes", MaxReply)
	case errors.Is(err, errTorn):
		err = fmt.Errorf("%w; %w", p.exit(), err)
	default:
		err = p.exit()
	}
	p.retire(err)
	return nil, p.reason()
}

// exit says how the worker's process ended, after its output has.
func (p *process) exit() error {
	select {
	case <-p.proc.Done():
	case <-time.After(exitNotice):
		return errors.New("the worker closed its output and lives on")
	}
	if err := p.proc.Wait(); err != nil {
		return fmt.Errorf("the worker died: %w", err)
	}
	return errors.New("the worker ended: exit status 0")
}

func (p *process) write(ctx context.Context, frame Request) error {
	line, err := Encode(frame)
	if err != nil {
		return err
	}
	p.send.Lock()
	defer p.send.Unlock()
	// The pipe may be full and the worker may not read.
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = p.stdin.SetWriteDeadline(time.Now().Add(writeGrace))
	})
	_, err = p.frames.Write(line)
	if !stop() {
		<-expired
		_ = p.stdin.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		p.retire(errors.New("the worker does not read its requests"))
		return context.Cause(ctx)
	}
	p.retire(fmt.Errorf("send to the worker: %w", err))
	return p.reason()
}

func (p *process) end() error {
	err := p.proc.Stop(0)
	// Nothing holds the pipe now, unless a descendant left the group.
	_ = p.stdout.SetReadDeadline(time.Now().Add(exitNotice))
	p.tasks.Wait()
	p.stdin.Close()
	p.stdout.Close()
	return err
}
