// Package nonblock reads and writes sockets and pipes without telling Go's scheduler
// of the system calls.
//
// The scheduler is told of calls because they may block: after a pause each wakes a
// thread that looks after it. But a descriptor that the runtime's poller watches
// never blocks: the call says that it would have to wait, and then the goroutine
// waits in the poller. A relay pauses between any two chunks, and there that
// thread takes a third of the processor time of a chunk.
package nonblock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Conn returns a TCP connection with another way to read and write; deadlines, Close
// and errors are as before. Any other connection stays as it is.
func Conn(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil { // it is closed, which its next use tells
		return c
	}
	return &conn{TCPConn: tcp, in: newStream(raw.Read, read), out: newStream(raw.Write, write)}
}

// Silent says that nothing waits to be read from a connection, not even its end.
func Silent(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var heard error
	err = raw.Read(func(fd uintptr) bool {
		_, _, heard = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && heard == syscall.EAGAIN
}

// Reader reads from a pipe.
func Reader(pipe *os.File) io.Reader {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return pipe
	}
	return reader{newStream(raw.Read, read)}
}

// Writer writes to a pipe.
func Writer(pipe *os.File) io.Writer {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return pipe
	}
	return writer{newStream(raw.Write, write)}
}

// stream is one direction of a descriptor.
type stream struct {
	mu   sync.Mutex
	wait func(done func(fd uintptr) bool) error
	try  func(fd uintptr) bool
	// What is tried, and its result.
	buf []byte
	n   int
	err error
}

func newStream(wait func(func(uintptr) bool) error, call func(fd int, p []byte) (int, error)) *stream {
	s := &stream{wait: wait}
	s.try = func(fd uintptr) bool { // made once, as it is used for each call
		for {
			if s.n, s.err = call(int(fd), s.buf); s.err != syscall.EINTR {
				return s.err != syscall.EAGAIN
			}
		}
	}
	return s
}

// do makes the call when it needs not wait.
func (s *stream) do(name string, p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = p
	err := s.wait(s.try)
	s.buf = nil
	if err == nil {
		err = os.NewSyscallError(name, s.err)
	}
	if err != nil {
		return 0, err
	}
	return s.n, nil
}

func (s *stream) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.do("read", p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (s *stream) write(p []byte) (int, error) {
	for done := 0; ; {
		n, err := s.do("write", p[done:])
		if done += n; err != nil || done == len(p) {
			return done, err
		}
	}
}

type reader struct{ *stream }

func (r reader) Read(p []byte) (int, error) { return r.read(p) }

type writer struct{ *stream }

func (w writer) Write(p []byte) (int, error) { return w.write(p) }

type conn struct {
	*net.TCPConn
	in, out *stream
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.describe("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.describe("write", err)
}

// describe makes an error one of package net.
func (c *conn) describe(op string, err error) error {
	if errno := new(os.SyscallError); errors.As(err, &errno) {
		return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: errno}
	}
	return err
}
