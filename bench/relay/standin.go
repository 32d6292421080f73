package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The engine stand-in has no model. It emits pieces of text on a schedule, and
// each piece carries the time at which it was handed over. It is one program in
// two roles: an HTTP server that streams as OpenAI's interface has it, and a
// worker on the gateway's protocol (docs/worker-protocol.md).

const model = "m"

// job is what a request asks of the stand-in: max_tokens pieces, gap apart. A
// buffered answer is one piece.
type job struct {
	Stream bool  `json:"stream"`
	Pieces int   `json:"max_tokens"`
	GapUS  int64 `json:"gap_us"`
}

// now is CLOCK_MONOTONIC in ns, which all processes of a host share.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails for unknown clocks only
	return t.Nano()
}

// A piece is "@", the time in 19 digits, a comma, its number in 5 digits, and
// words that bring a chunk to about 250 bytes.
const filler = " the quick brown fox jumps over the lazy dog again and"

func appendPiece(b []byte, number int) []byte {
	return fmt.Appendf(b, "@%019d,%05d%s", now(), number, filler)
}

// play emits the pieces on an absolute schedule and returns how long it took by
// its own clock, in ns. That is the true time of the call.
func (j job) play(ctx context.Context, emit func(piece []byte) error) (int64, error) {
	began := now()
	start := time.Now()
	pieces := j.Pieces
	if !j.Stream {
		pieces = 1
	}
	var piece []byte
	for i := range pieces {
		if i > 0 && j.GapUS > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Duration(j.GapUS) * time.Microsecond)))
		}
		if ctx.Err() != nil {
			return now() - began, ctx.Err()
		}
		piece = appendPiece(piece[:0], i)
		if err := emit(piece); err != nil {
			return now() - began, err
		}
	}
	return now() - began, nil
}

// engine is the role of the HTTP server.
func engine() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", chat)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","created":1,"owned_by":"standin"}]}`, model)
	})
	return mux
}

// listen serves on a free port, and prints it.
func listen(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("{\"port\": %d}\n", l.Addr().(*net.TCPAddr).Port)
	return http.Serve(l, h)
}

const (
	chunkHead = `data: {"id":"chatcmpl-standin","object":"chat.completion.chunk","created":1700000000,"model":"` + model + `","choices":[{"index":0,"delta":{"content":"`
	chunkTail = "\"},\"finish_reason\":null}]}\n\n"
	lastChunk = `data: {"id":"chatcmpl-standin","object":"chat.completion.chunk","created":1700000000,"model":"` + model + `","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	wholeBody = `{"id":"chatcmpl-standin","object":"chat.completion","created":1700000000,"model":"` + model + `","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
)

func chat(w http.ResponseWriter, r *http.Request) {
	var j job
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &j)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !j.Stream {
		var text []byte
		_, err = j.play(r.Context(), func(piece []byte) error { text = append(text, piece...); return nil })
		if err != nil {
			return // the client is gone
		}
		body := fmt.Appendf(nil, wholeBody, text)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	conn := http.NewResponseController(w)
	var event []byte
	_, err = j.play(r.Context(), func(piece []byte) error {
		event = append(append(append(event[:0], chunkHead...), piece...), chunkTail...)
		if _, err := w.Write(event); err != nil {
			return err
		}
		return conn.Flush()
	})
	if err == nil {
		io.WriteString(w, lastChunk)
	}
}

// serveWorker is the role of the worker.
func serveWorker() error {
	// A read that the runtime's poller waits for leaves the thread to the answer.
	if err := syscall.SetNonblock(0, true); err != nil {
		return err
	}
	return work(os.NewFile(0, "stdin"), os.Stdout)
}

func work(in io.Reader, out io.Writer) error {
	_, err := io.WriteString(out, `{"frame":"hello","protocol":2,"worker":"standin","engine":{"name":"standin","version":"1"},`+
		`"capabilities":{"endpoints":["chat","completions"],"cancel":true,"max_context":0}}`+"\n"+`{"frame":"ready","load_ms":0}`+"\n")
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	var current struct {
		id     string
		cancel context.CancelFunc
	}
	ended := make(chan error, 1)
	ended <- nil // no call is in progress
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the gateway is gone
		} else if err != nil {
			return err
		}
		var f struct {
			Frame, ID string
			Stream    bool
			Body      job
		}
		if err := json.Unmarshal(line, &f); err != nil {
			return err
		}
		switch f.Frame {
		case "generate":
			if err := <-ended; err != nil {
				return err
			}
			f.Body.Stream = f.Stream
			if current.cancel != nil {
				current.cancel()
			}
			var call context.Context
			current.id = f.ID
			call, current.cancel = context.WithCancel(ctx)
			go func() { ended <- answer(call, out, f.ID, f.Body) }()
		case "cancel":
			if f.ID == current.id {
				current.cancel()
			}
		case "shutdown":
			return nil
		default:
			return fmt.Errorf("unexpected frame %q", f.Frame)
		}
	}
}

// answer serves one call. wall_ns is taken around the call of the engine, as
// authors of workers are told to; the engine's own figure is beside it.
func answer(ctx context.Context, out io.Writer, id string, j job) error {
	head := fmt.Sprintf(`"id":%q`, id) // ids are printable ASCII without quotes
	sum := sha256.New()
	var frame, text []byte
	var first time.Duration
	pieces, bytes := 0, 0

	began := time.Now()
	took, err := j.play(ctx, func(piece []byte) error {
		var err error
		if j.Stream {
			frame = append(append(append(append(append(frame[:0], `{"frame":"delta",`...), head...), `,"text":"`...), piece...), "\"}\n"...)
			_, err = out.Write(frame)
		} else {
			text = append(text, piece...)
		}
		if pieces == 0 {
			first = time.Since(began)
		}
		pieces++
		bytes += len(piece)
		sum.Write(piece)
		return err
	})
	wall := time.Since(began)

	scope, more := "public_task_call_wall", ""
	if j.Stream {
		scope = "public_task_stream_wall_including_backpressure"
		if pieces > 0 {
			more = fmt.Sprintf(`,"first_increment_ns":%d`, first.Nanoseconds())
		}
	}
	task := fmt.Sprintf(`"task":{"scope":%q,"wall_ns":%d%s,"increments":%d,"text_sha256":%q,"text_bytes":%d,"engine":{"true_ms":%.6f}}`,
		scope, wall.Nanoseconds(), more, pieces, hex.EncodeToString(sum.Sum(nil)), bytes, float64(took)/1e6)
	switch {
	case errors.Is(err, context.Canceled):
		_, err = fmt.Fprintf(out, `{"frame":"error",%s,"status":499,"code":"cancelled","type":"cancelled","message":"cancelled",%s}`+"\n", head, task)
	case err == nil && j.Stream:
		_, err = fmt.Fprintf(out, `{"frame":"done",%s,"finish_reason":"stop","usage":{"prompt_tokens":1,"completion_tokens":%d,"cached_tokens":null},%s}`+"\n", head, pieces, task)
	case err == nil:
		_, err = fmt.Fprintf(out, `{"frame":"done",%s,"finish_reason":"stop","usage":{"prompt_tokens":1,"completion_tokens":1,"cached_tokens":null},%s,"text":"%s"}`+"\n", head, task, text)
	}
	return err
}
