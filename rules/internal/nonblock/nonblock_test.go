package nonblock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// pair is a connection of this package and its other end.
func pair(t *testing.T) (ours net.Conn, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if theirs, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours = Conn(accepted)
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// much is more than any buffer of the kernel, so that writers must wait.
var much = bytes.Repeat([]byte("0123456789abcdef"), 1<<20)

func TestConn(t *testing.T) {
	ours, theirs := pair(t)
	wrote := make(chan error, 1)
	go func() {
		_, err := ours.Write(much)
		wrote <- err
	}()
	got := make([]byte, len(much))
	if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, much) {
		t.Errorf("read %v", err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	go theirs.Write(much)
	if _, err := io.ReadFull(ours, got); err != nil || !bytes.Equal(got, much) {
		t.Errorf("read %v", err)
	}
	if n, err := ours.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing to read: %d, %v", n, err)
	}

	// A deadline ends what waits, and can be taken back.
	started := make(chan error, 1)
	go func() {
		_, err := ours.Read(got)
		started <- err
	}()
	ours.SetReadDeadline(time.Unix(1, 0))
	var timeout net.Error
	if err := <-started; !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("deadline: %v", err)
	}
	ours.SetReadDeadline(time.Time{})
	tcp := ours.(*conn).TCPConn
	if !Silent(tcp) {
		t.Error("nothing was sent, and something waits")
	}
	theirs.Write([]byte("x"))
	for Silent(tcp) { // until it is there
	}
	if n, err := ours.Read(got); n != 1 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}

	theirs.Close()
	for Silent(tcp) {
	}
	if _, err := ours.Read(got); err != io.EOF {
		t.Errorf("end: %v", err)
	}
	var lost *net.OpError
	for err := error(nil); lost == nil; _, err = ours.Write(much) { // until the other end refuses it
		errors.As(err, &lost)
	}
	if lost.Op != "write" || lost.Addr.String() != theirs.LocalAddr().String() {
		t.Errorf("lost: %v", lost)
	}
	ours.Close()
	if Silent(tcp) {
		t.Error("a closed connection is silent")
	}
	if _, err := ours.Read(got); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestReset(t *testing.T) {
	ours, theirs := pair(t)
	theirs.(*net.TCPConn).SetLinger(0)
	theirs.Close()
	var lost *net.OpError
	if n, err := ours.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &lost) || lost.Op != "read" {
		t.Errorf("%d, %v", n, err)
	}
}

// Close ends a read and a write that wait.
func TestClose(t *testing.T) {
	ours, _ := pair(t)
	ended := make(chan error, 2)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		_, err := ours.Write(much)
		ended <- err
	}()
	ours.Close()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	}
}

func TestPipe(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, out := Reader(from), Writer(to)
	go func(to *os.File) {
		out.Write(much)
		to.Close()
	}(to)
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, much) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	from.Close()
	if _, err := in.Read(got); err == nil {
		t.Error("read from a closed pipe")
	}

	gone, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	out = Writer(to)
	gone.Close()
	var failed *os.SyscallError
	if _, err := out.Write([]byte("x")); !errors.As(err, &failed) || failed.Syscall != "write" {
		t.Errorf("nobody reads: %v", err)
	}
}
