package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"time"

	"assay/rules/internal/nonblock"
)

const (
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 1 << 20
	// maxInterim is how many answers of status 1xx may come before the answer.
	maxInterim = 8
	// lastChunk is how long a next request waits for the end of a stream's body, which
	// may come after its last event.
	lastChunk = time.Millisecond
	bufSize   = 16 << 10
)

// conn is a connection to a server of HTTP/1.1, for one exchange after the other.
// Who asks also reads the answer: net/http's transport has two goroutines for each
// connection, and both would have to be woken for each request.
type conn struct {
	net.Conn
	tcp  *net.TCPConn // below TLS, if there is
	in   *bufio.Reader
	out  *bufio.Writer
	left int64     // bytes that may be read
	rest io.Reader // of the last answer's body; nil if it was read to its end
}

// dial connects to a server of http or https.
func dial(ctx context.Context, to *url.URL) (*conn, error) {
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	tcp, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nonblock.Conn(tcp), tcp: tcp.(*net.TCPConn)}
	if to.Scheme == "https" {
		secure := tls.Client(c.Conn, &tls.Config{ServerName: to.Hostname(), NextProtos: []string{"http/1.1"}})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, tcp.Close())
		}
		c.Conn = secure
	}
	c.in, c.out = bufio.NewReaderSize(c, bufSize), bufio.NewWriterSize(c.Conn, bufSize)
	return c, nil
}

func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("the answer's header is too large")
	}
	n, err := c.Conn.Read(p)
	c.left -= int64(n)
	return n, err
}

// exchange sends a request and reads the header of its answer.
func (c *conn) exchange(req *http.Request) (*http.Response, error) {
	sent := req.Write(c.out)
	if sent == nil {
		sent = c.out.Flush()
	}
	// A server that refuses a request need not read it to its end.
	c.left = maxHeader
	for range maxInterim {
		resp, err := http.ReadResponse(c.in, req)
		if err != nil {
			return nil, errors.Join(sent, err)
		}
		if resp.StatusCode >= http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols {
			c.left, c.rest = math.MaxInt64, resp.Body
			resp.Close = resp.Close || sent != nil || resp.StatusCode < http.StatusOK
			return resp, nil
		}
	}
	return nil, errors.New("the server does not come to its answer")
}

// usable says whether the connection can take another request: the last answer has
// been read to its end, and the server has neither said more nor hung up.
func (c *conn) usable() bool {
	if c.rest != nil {
		_ = c.SetReadDeadline(time.Now().Add(lastChunk))
		_, err := io.Copy(io.Discard, c.rest)
		if err != nil || c.SetReadDeadline(time.Time{}) != nil {
			return false
		}
	}
	return c.in.Buffered() == 0 && nonblock.Silent(c.tcp)
}

// body is that of an answer. Close keeps its connection if the answer was read to
// its end, and closes it otherwise, so that the server stops.
type body struct {
	io.Reader
	wire *wire
	conn *conn
	keep bool        // the server takes another request
	done bool        // what is left is no part of the answer
	stop func() bool // false if the request's context has ended
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.conn.rest, b.done = nil, true
	}
	return n, err
}

func (b *body) Close() error {
	if !b.stop() || !b.keep || !b.done {
		return b.conn.Close()
	}
	b.wire.idle = b.conn
	return nil
}
