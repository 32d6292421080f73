package upstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"assay/engine/supervise"
)

const (
	// stopGrace is how long an engine may take to end when it is told to.
	stopGrace = 5 * time.Second
	// probePause lies between two probes of an engine that starts.
	probePause = 20 * time.Millisecond
)

var errStopped = errors.New("the engine was stopped")

// process is an engine that was started here.
type process struct {
	wire  wire          // known once ready is closed
	ready chan struct{} // closed when it takes requests
	ended chan struct{} // closed when nothing of it is left
	err   error         // why, once ended is closed
	stop  context.CancelFunc
	// Under Engine.mu: how many lanes hold it. Nobody joins one that all have left.
	holders int
	left    bool
}

// join returns the running process, and starts it if there is none. Lanes that
// come together start it once.
func (e *Engine) join(ctx context.Context) (*process, error) {
	e.mu.Lock()
	if p := e.process; p == nil || p.left || p.over() {
		e.process = e.launch(p)
	}
	p := e.process
	p.holders++
	e.mu.Unlock()

	select {
	case <-p.ready:
		return p, nil
	case <-p.ended:
	case <-ctx.Done():
	}
	e.leave(p)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, p.err
}

// leave gives a process back. The last lane stops it and waits for its end.
func (e *Engine) leave(p *process) {
	e.mu.Lock()
	p.holders--
	p.left = p.holders == 0
	last := p.left
	e.mu.Unlock()
	if last {
		p.stop()
		<-p.ended
	}
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// launch starts a process when nothing is left of the one before it.
func (e *Engine) launch(before *process) *process {
	ctx, stop := context.WithCancel(context.Background())
	p := &process{ready: make(chan struct{}), ended: make(chan struct{}), stop: stop}
	go func() {
		defer stop()
		defer close(p.ended)
		if before != nil {
			<-before.ended
		}
		p.err = e.live(ctx, p)
	}()
	return p
}

// live is the life of a process; it returns when nothing of it is left.
func (e *Engine) live(ctx context.Context, p *process) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	key, env := "", append(os.Environ(), e.config.Env...)
	if variable := e.adapter.KeyVariable; variable != "" {
		// Nobody is to use the engine past the gateway.
		key = rand.Text()
		env = append(env, variable+"="+key)
	}
	p.wire = newWire("http://127.0.0.1:"+port, key)
	command := make([]string, len(e.config.Command))
	for i, arg := range e.config.Command {
		command[i] = strings.ReplaceAll(arg, portPlace, port)
	}
	// Its standard input ends when this process does, however that ends.
	stdin, hold, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the engine: %w", err)
	}
	defer hold.Close()
	proc, err := supervise.Start(context.WithoutCancel(ctx), supervise.Spec{
		Path: command[0], Args: command[1:], Env: env, CPUs: e.config.CPUs,
		Stdin: stdin, Stdout: os.Stderr, Stderr: os.Stderr,
	})
	stdin.Close()
	if err != nil {
		return fmt.Errorf("the engine: %w", err)
	}
	if e.await(ctx, p, proc) {
		if err := e.warmUp(ctx, p); err != nil {
			return errors.Join(err, proc.Stop(0))
		}
		close(p.ready)
		select {
		case <-proc.Done():
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		hold.Close()
		return errors.Join(errStopped, proc.Stop(stopGrace))
	}
	how := "exit status 0"
	if err := proc.Wait(); err != nil {
		how = err.Error()
	}
	// Children of a dead engine may hold what the next one needs.
	return errors.Join(fmt.Errorf("the engine ended: %s; what it said is in the server's log", how), proc.Stop(0))
}

// await reports whether the engine became ready before it or ctx ended.
func (e *Engine) await(ctx context.Context, p *process, proc *supervise.Process) bool {
	for {
		resp, err := p.wire.get(ctx, e.adapter.Ready)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-proc.Done():
			return false
		case <-ctx.Done():
			return false
		case <-time.After(probePause):
		}
	}
}

// warmUp has a request served, if the engine wants one.
func (e *Engine) warmUp(ctx context.Context, p *process) error {
	if e.adapter.WarmUp == nil {
		return nil
	}
	body, err := json.Marshal(e.adapter.WarmUp)
	if err != nil {
		return err
	}
	resp, err := p.wire.post(ctx, paths["completions"], nil, body)
	if err != nil {
		return fmt.Errorf("the engine did not answer its first request: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the engine's first request: %w", refusal(resp))
	}
	_, err = read(resp.Body)
	return err
}

// freePort finds a port of 127.0.0.1 that is free now. Should somebody else take
// it first, the engine ends and says so.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port for the engine: %w", err)
	}
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), l.Close()
}
