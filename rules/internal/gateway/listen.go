package gateway

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"assay/rules/internal/nonblock"
)

const (
	// reservedFiles are open files that are not connections, and laneFiles those of
	// one lane: its pipes, and room to start the next worker.
	reservedFiles = 32
	laneFiles     = 8
	// minConnections is what a server needs to be of any use.
	minConnections = 8
)

// listen opens the port for as many connections as the limit of open files allows.
func (s *Server) listen(ctx context.Context) (*listener, error) {
	most := s.cfg.MaxConnections
	if files, limited := openFileLimit(); limited {
		lanes := 0
		for _, m := range s.models {
			lanes += len(m.pool.Lanes())
		}
		room := files - reservedFiles - laneFiles*lanes
		if room < minConnections {
			return nil, fmt.Errorf("only %d files may be open, and %d lanes need %d: raise the limit (ulimit -n)",
				files, lanes, reservedFiles+laneFiles*lanes+minConnections)
		}
		if most > room {
			s.cfg.Log.Warn("fewer connections than configured: the limit of open files is low", "connections", room, "configured", most, "files", files)
			most = room
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	return &listener{Listener: l, most: int64(most), connections: &s.connections}, nil
}

// openFileLimit is how many files this process may have open.
func openFileLimit() (files int, limited bool) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt32 {
		return 0, false
	}
	return int(limit.Cur), true
}

// connections counts them.
type connections struct{ open, refused atomic.Int64 }

// listener refuses connections over a limit. To leave them in the kernel's queue
// would be a wait that nobody sees.
type listener struct {
	net.Listener
	*connections
	most int64
}

const overLimit = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" +
	`{"error":{"message":"too many connections","type":"server_error","param":null,"code":"too_many_connections"}}`

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &counted{Conn: nonblock.Conn(conn), connections: l.connections}, nil
		}
		l.open.Add(-1)
		l.refused.Add(1)
		_, _ = conn.Write([]byte(overLimit)) // it fits the socket's buffer
		conn.Close()
	}
}

type counted struct {
	net.Conn
	*connections
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
