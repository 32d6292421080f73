package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"time"

	"assay/rules/internal/openai"
	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

const idHeader = "X-Request-ID"

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)

// statusClientGone is what a record says of a client that left first. It is
// never sent.
const statusClientGone = 499

var errTimeout = errors.New("the request did not finish in time")

// exchange is one inference request and what became of it.
type exchange struct {
	s       *Server
	w       http.ResponseWriter
	conn    *http.ResponseController
	r       *http.Request
	arrived time.Time
	rec     record.Record
	answer  openai.Answer

	opened bool // the header of a stream is out
	abort  bool // the connection is to be cut, so that the client sees no end
	last   time.Time
}

// infer serves an endpoint. Whatever happens to a request, it leaves by way of
// finish, which writes its record.
func (s *Server) infer(endpoint openai.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.requests.enter() {
			panic(http.ErrAbortHandler) // the server is gone already
		}
		defer s.requests.leave()
		now := time.Now()
		x := &exchange{s: s, w: w, conn: http.NewResponseController(w), r: r, arrived: now}
		x.rec = record.Record{
			Schema: record.Schema, Endpoint: string(endpoint),
			ReceivedWallNS: now.UnixNano(), ReceivedNS: now.Sub(s.journal.began).Nanoseconds(), BootID: s.journal.bootID,
		}
		defer x.finish()
		x.serve(endpoint)
	}
}

// finish writes the record. It also settles a request that ended in a panic.
func (x *exchange) finish() {
	if p := recover(); p != nil {
		x.s.cfg.Log.Error("panic in a request", "request", x.rec.RequestID, "panic", p, "stack", string(debug.Stack()))
		if x.rec.Outcome == "" {
			x.fail(http.StatusInternalServerError, record.ServerError, "internal_error", "the server failed")
		}
		x.abort = true
	}
	if x.last.IsZero() {
		x.last = time.Now()
	}
	x.rec.TotalNS = x.last.Sub(x.arrived).Nanoseconds()
	if err := x.s.journal.write(&x.rec); err != nil {
		x.s.cfg.Log.Error("no record", "request", x.rec.RequestID, "error", err)
	}
	if x.abort {
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) serve(endpoint openai.Endpoint) {
	if !x.identify() {
		return
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	deadline := x.arrived.Add(seconds(x.s.cfg.RequestTimeout))
	ctx, cancelTimeout := context.WithDeadlineCause(ctx, deadline, errTimeout)
	defer cancelTimeout()
	defer context.AfterFunc(x.s.stopping, func() { cancel(errStopping) })()

	request := x.read(endpoint, deadline)
	if request == nil {
		return
	}
	lease, err := x.s.pool.Acquire()
	switch {
	case errors.Is(err, worker.ErrBusy):
		x.w.Header().Set("Retry-After", "1")
		x.refuse(http.StatusTooManyRequests, record.Rejected, "", &openai.Error{
			Type: "rate_limit_error", Code: "capacity_exceeded", Message: "all lanes are busy; try again"})
		return
	case err != nil:
		x.fail(http.StatusServiceUnavailable, record.ServerError, "not_ready", err.Error())
		return
	}
	queued := time.Since(x.arrived).Nanoseconds()
	x.rec.QueueNS, x.rec.Lane, x.rec.Worker = &queued, &lease.Lane, &lease.Worker
	x.run(ctx, lease, request)
}

// identify settles the request's id.
func (x *exchange) identify() bool {
	given := x.r.Header.Values(idHeader)
	valid := len(given) == 1 && idForm.MatchString(given[0])
	if valid {
		x.rec.RequestID, x.rec.IDSource = given[0], "client"
		x.rec.Repeated = x.s.journal.repeated(given[0])
	} else {
		x.rec.RequestID, x.rec.IDSource = newID(), "server"
	}
	x.w.Header().Set(idHeader, x.rec.RequestID)
	if len(given) > 0 && !valid {
		x.refuse(http.StatusBadRequest, record.Invalid, "", openai.Invalid(idHeader,
			fmt.Sprintf("%s must be given once and match %s", idHeader, idForm)))
		return false
	}
	return true
}

// newID makes a random UUID (version 4).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// read reads and checks the body. A request that ends here gives nil.
func (x *exchange) read(endpoint openai.Endpoint, deadline time.Time) *openai.Request {
	invalid := func(status int, err *openai.Error) *openai.Request {
		x.refuse(status, record.Invalid, "", err)
		return nil
	}
	if x.r.Method != http.MethodPost {
		x.w.Header().Set("Allow", "POST")
		return invalid(http.StatusMethodNotAllowed, openai.Invalid("", x.r.URL.Path+" takes POST"))
	}
	// Only the body has this deadline: later the server's own reading, which
	// notices a client that leaves, must not time out.
	_ = x.conn.SetReadDeadline(deadline)
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, x.s.cfg.MaxBodyBytes))
	_ = x.conn.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	var lost *net.OpError
	switch {
	case errors.As(err, &tooLarge):
		return invalid(http.StatusRequestEntityTooLarge, openai.Invalid("", fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)))
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.abort = true // the rest of the body may come yet
		return invalid(http.StatusRequestTimeout, openai.Invalid("", "the body did not arrive in time"))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &lost):
		x.gone()
		return nil
	case err != nil:
		return invalid(http.StatusBadRequest, openai.Invalid("", "the body cannot be read: "+err.Error()))
	}
	request, refusal := openai.Parse(endpoint, body, x.s.cfg.MaxOutputTokens)
	if refusal != nil {
		return invalid(http.StatusBadRequest, refusal)
	}
	x.rec.Stream, x.rec.Model = request.Stream, request.Model
	if !slices.Contains(x.s.cfg.Models, request.Model) {
		refusal := openai.Invalid("model", fmt.Sprintf("there is no model %q here", request.Model))
		refusal.Code = "model_not_found"
		return invalid(http.StatusNotFound, refusal)
	}
	if !slices.Contains(x.s.cfg.Endpoints, endpoint) {
		return invalid(http.StatusBadRequest, openai.Invalid("model", fmt.Sprintf("%q does not offer %s", request.Model, endpoint)))
	}
	x.answer = openai.Answer{Endpoint: endpoint, ID: x.rec.RequestID, Model: request.Model, Created: x.arrived}
	return request
}

// run has the request served by a worker and relays the answer.
func (x *exchange) run(ctx context.Context, lease *worker.Lease, request *openai.Request) {
	defer func() {
		// What a cancelled worker still says completes the record.
		if late := lease.Close(); late != nil {
			x.note(late)
		}
	}()
	body, err := json.Marshal(request.Body)
	if err == nil {
		err = lease.Generate(ctx, &worker.Generate{
			ID: x.rec.RequestID, Endpoint: string(x.answer.Endpoint), Stream: request.Stream, Body: body})
	}
	if err != nil {
		x.broke(ctx, err)
		return
	}
	for {
		reply, err := lease.Next(ctx)
		if err != nil {
			x.broke(ctx, err)
			return
		}
		x.note(reply)
		switch reply := reply.(type) {
		case *worker.Delta:
			if x.increment(reply.Text) != nil {
				x.unread(ctx)
				return
			}
		case *worker.Done:
			if request.Stream {
				err = x.endStream(reply, request.IncludeUsage)
			} else {
				err = x.whole(reply)
			}
			if err != nil {
				x.unread(ctx)
			}
			return
		case *worker.Error:
			x.engineError(reply)
			return
		}
	}
}

// note takes the worker's account of the call into the record.
func (x *exchange) note(reply worker.Reply) {
	var task *worker.Task
	var usage worker.Usage
	finish := ""
	switch reply := reply.(type) {
	case *worker.Done:
		task, usage = reply.Task, reply.Usage
		if reply.FinishReason != nil {
			finish = *reply.FinishReason
		}
	case *worker.Error:
		task = reply.Task
	}
	if task == nil {
		return
	}
	x.rec.Task = &record.Task{
		Scope: task.Scope, WallNS: task.WallNS, FirstIncrementNS: task.FirstIncrementNS, Increments: task.Increments,
		PromptTokens: usage.PromptTokens, CompletionTokens: usage.CompletionTokens, CachedTokens: usage.CachedTokens,
		FinishReason: finish, TextSHA256: task.TextSHA256, TextBytes: task.TextBytes, Engine: task.Engine,
	}
}
