package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// client is one kept-alive connection. It reads in the goroutine that measures,
// as an HTTP client with its own goroutines would add their hand-over to every
// chunk.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	body *bufio.Reader
	out  []byte
}

// patience bounds one request.
const patience = 60 * time.Second

func dial(ctx context.Context, addr string) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, in: bufio.NewReaderSize(conn, 32<<10), body: bufio.NewReaderSize(nil, 32<<10)}, nil
}

// redial replaces the connection.
func (c *client) redial(ctx context.Context) error {
	c.close()
	fresh, err := dial(ctx, c.conn.RemoteAddr().String())
	if err == nil {
		*c = *fresh
	}
	return err
}

func (c *client) close() { c.conn.Close() }

// statusError is an answer with another status than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// send writes a request and reads the header of its answer.
func (c *client) send(id string, j job) (*http.Response, error) {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}],"stream":%t,"max_tokens":%d,"gap_us":%d}`, model, j.Stream, j.Pieces, j.GapUS)
	c.out = fmt.Appendf(c.out[:0], "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nX-Request-ID: %s\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_, err := io.Copy(io.Discard, resp.Body)
		return nil, errors.Join(statusError(resp.StatusCode), err)
	}
	return resp, nil
}

// streamed is what one streamed request showed. Times are ns.
type streamed struct {
	sent    int64
	emitted []int64 // by the engine's stamp
	seen    []int64 // when the chunk had been parsed
	end     int64   // when the body had ended
}

var mark = []byte("@")

// stream makes a streamed request and checks that every piece came once, in
// order, and that the stream ended as it should. stop > 0 leaves after so many
// pieces; the connection is of no use then.
func (c *client) stream(id string, j job, stop int, s *streamed) error {
	s.emitted, s.seen = s.emitted[:0], s.seen[:0]
	s.sent = now()
	resp, err := c.send(id, j)
	if err != nil {
		return err
	}
	c.body.Reset(resp.Body)
	done := false
	for {
		line, err := c.body.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		done = bytes.HasPrefix(data, []byte("[DONE]"))
		// A relay may join pieces into one chunk.
		for {
			_, rest, ok := bytes.Cut(data, mark)
			if !ok {
				break
			}
			emitted, number, err := parsePiece(rest)
			if err != nil {
				return err
			}
			if number != len(s.seen) {
				return fmt.Errorf("piece %d came where %d was due", number, len(s.seen))
			}
			s.emitted, s.seen = append(s.emitted, emitted), append(s.seen, now())
			data = rest
		}
		if stop > 0 && len(s.seen) >= stop {
			return nil
		}
	}
	s.end = now()
	if !done || len(s.seen) != j.Pieces {
		return fmt.Errorf("the stream ended after %d of %d pieces, [DONE] %t", len(s.seen), j.Pieces, done)
	}
	return nil
}

// whole makes a buffered request and returns how long it took, in ns.
func (c *client) whole(id string) (int64, error) {
	sent := now()
	resp, err := c.send(id, job{Pieces: 1})
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	_, piece, ok := bytes.Cut(body, mark)
	if !ok {
		return 0, errors.New("the answer has no text")
	}
	_, _, err = parsePiece(piece)
	return now() - sent, err
}

// parsePiece reads what follows the mark.
func parsePiece(b []byte) (emitted int64, number int, err error) {
	if len(b) < 25 || b[19] != ',' {
		return 0, 0, fmt.Errorf("not a piece: %.40q", b)
	}
	if emitted, err = strconv.ParseInt(string(b[:19]), 10, 64); err != nil {
		return 0, 0, err
	}
	number, err = strconv.Atoi(string(b[20:25]))
	return emitted, number, err
}
