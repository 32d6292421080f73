package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"assay/rules/internal/openai"
	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

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
	model   *model // nil until it is known
	answer  openai.Answer
	request *openai.Request // nil if its body was not accepted

	events events
	opened bool // the header of a stream is out
	abort  bool // the connection is to be cut, so that the client sees no end
	last   time.Time
	writes time.Duration // spent in writes to the client
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
			ReceivedWallNS: now.UnixNano(), ReceivedNS: now.Sub(s.clock.began).Nanoseconds(), BootID: s.clock.bootID,
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
	if x.request != nil { // here, where nobody waits for it
		x.rec.PromptSHA256 = x.request.PromptSHA256()
	}
	if x.writes > 0 {
		spent := x.writes.Nanoseconds()
		x.rec.ClientWriteNS = &spent
	}
	if err := x.s.records.Append(&x.rec); err != nil {
		x.s.cfg.Log.Error("record waits or is lost", "request", x.rec.RequestID, "error", err)
	}
	name := ""
	if x.model != nil {
		name = x.model.name()
	}
	x.s.metrics.observe(&x.rec, name)
	if x.abort {
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) serve(endpoint openai.Endpoint) {
	if !x.identify() {
		return
	}
	deadline := x.arrived.Add(seconds(x.s.cfg.RequestTimeout))
	ctx, cancel := context.WithDeadlineCause(x.r.Context(), deadline, errTimeout)
	defer cancel()
	defer context.AfterFunc(x.s.stopping, cancel)()

	request := x.read(endpoint)
	if request == nil {
		return
	}
	if lease := x.acquire(ctx); lease != nil {
		x.run(ctx, lease, request)
	}
}

// acquire gets the request a lane. A request that ends here gives nil.
func (x *exchange) acquire(ctx context.Context) *worker.Lease {
	if err := x.s.records.Failure(); err != nil {
		// What cannot be accounted for is not served.
		x.fail(http.StatusServiceUnavailable, record.ServerError, "records_unavailable", "the server cannot write its records")
		return nil
	}
	lease, ticket, err := x.model.pool.Acquire(ctx)
	if x.model.Queue.Length > 0 {
		x.rec.QueueDepth = &ticket.Depth
	}
	if ticket.Queued {
		wait := ticket.Wait.Nanoseconds()
		x.rec.WaitNS = &wait
	}
	full := func(code, message string) {
		x.w.Header().Set("Retry-After", "1")
		x.refuse(http.StatusTooManyRequests, record.Rejected, "", &openai.Error{Type: "rate_limit_error", Code: code, Message: message})
	}
	switch {
	case err == nil:
		queued := time.Since(x.arrived).Nanoseconds()
		x.rec.QueueNS, x.rec.Lane, x.rec.Worker = &queued, &lease.Lane, &lease.Worker
	case errors.Is(err, worker.ErrBusy):
		full("capacity_exceeded", "all lanes are busy; try again")
	case errors.Is(err, worker.ErrWaited):
		full("queue_timeout", "no lane became free in time; try again")
	case errors.Is(err, worker.ErrNotReady):
		x.fail(http.StatusServiceUnavailable, record.ServerError, "not_ready", err.Error())
	default:
		x.broke(ctx, err)
	}
	return lease
}

// identify settles the request's id, and whether it may come in.
func (x *exchange) identify() bool {
	id, given := requestID(x.r.Header)
	x.rec.RequestID, x.rec.IDSource = id, "server"
	if given {
		x.rec.IDSource = "client"
	}
	x.w.Header().Set(idHeader, id)
	if !given && x.r.Header.Values(idHeader) != nil {
		x.refuse(http.StatusBadRequest, record.Invalid, "", openai.Invalid(idHeader,
			fmt.Sprintf("%s must be given once and match %s", idHeader, idForm)))
		return false
	}
	if refusal := x.s.keys.admit(x.r); refusal != nil {
		x.w.Header().Set("WWW-Authenticate", "Bearer")
		x.refuse(http.StatusUnauthorized, record.Invalid, "", refusal)
		return false
	}
	x.rec.Repeated = given && x.s.ids.repeated(id)
	return true
}

// read reads and checks the body. A request that ends here gives nil.
func (x *exchange) read(endpoint openai.Endpoint) *openai.Request {
	invalid := func(status int, err *openai.Error) *openai.Request {
		x.refuse(status, record.Invalid, "", err)
		return nil
	}
	if x.r.Method != http.MethodPost {
		x.w.Header().Set("Allow", "POST")
		return invalid(http.StatusMethodNotAllowed, openai.Invalid("", x.r.URL.Path+" takes POST"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, x.s.cfg.MaxBodyBytes))
	if err == nil {
		// Only the body has a deadline: the server's own reading from now on, which
		// notices a client that leaves, must not time out.
		_ = x.conn.SetReadDeadline(time.Time{})
	}
	var tooLarge *http.MaxBytesError
	var lost *net.OpError
	switch {
	case errors.As(err, &tooLarge):
		return invalid(http.StatusRequestEntityTooLarge, openai.Invalid("", fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)))
	case errors.Is(err, os.ErrDeadlineExceeded) && x.s.stopping.Err() != nil:
		x.abort = true
		x.stopped()
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.abort = true // the rest of the body may come yet
		return invalid(http.StatusRequestTimeout, openai.Invalid("", "the body did not arrive in time"))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &lost):
		x.gone()
		return nil
	case err != nil:
		return invalid(http.StatusBadRequest, openai.Invalid("", "the body cannot be read: "+err.Error()))
	}
	request, refusal := openai.Parse(endpoint, body, openai.Limits{OutputTokens: x.s.cfg.MaxOutputTokens, PromptBytes: x.s.cfg.MaxPromptBytes})
	if refusal != nil {
		return invalid(http.StatusBadRequest, refusal)
	}
	x.rec.Stream, x.rec.Model, x.request = request.Stream, request.Model, request
	if x.model = x.s.find(request.Model); x.model == nil {
		return invalid(http.StatusNotFound, unknownModel(request.Model))
	}
	if refusal := x.model.suits(endpoint, request); refusal != nil {
		return invalid(http.StatusBadRequest, refusal)
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
	generate := &worker.Generate{ID: x.rec.RequestID, Endpoint: string(x.answer.Endpoint), Body: request.JSON()}
	generate.Stream = request.Stream && !lease.Can().Buffered
	generate.Traceparent, generate.Tracestate = traceContext(x.r.Header)
	x.rec.Traceparent = generate.Traceparent
	if err := lease.Generate(ctx, generate); err != nil {
		x.broke(ctx, err)
		return
	}
	for {
		reply, err := lease.Next(ctx)
		if delta, ok := reply.(*worker.Delta); ok {
			x.increment(delta.Text, delta.Logprobs)
			if lease.More() && x.events.Len() < maxPending {
				continue
			}
			if x.flush() != nil {
				x.unread(ctx)
				return
			}
			continue
		}
		x.note(reply)
		done, ok := reply.(*worker.Done)
		if !ok || done.FinishReason == nil {
			// What came before the fault is the client's.
			if x.flush() != nil {
				x.unread(ctx)
				return
			}
		}
		switch failure, _ := reply.(*worker.Error); {
		case err != nil:
			x.broke(ctx, err)
		case failure != nil:
			x.engineError(failure)
		case request.Stream:
			err = x.endStream(done, request.IncludeUsage)
		default:
			err = x.whole(done)
		}
		if reply != nil && err != nil {
			x.unread(ctx)
		}
		return
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
		Scope: task.Scope, Source: cmp.Or(task.Source, record.SourceWorker), EngineRequestID: task.EngineRequestID, WallNS: task.WallNS, FirstIncrementNS: task.FirstIncrementNS, Increments: task.Increments,
		PromptTokens: usage.PromptTokens, CompletionTokens: usage.CompletionTokens, CachedTokens: usage.CachedTokens,
		FinishReason: finish, TextSHA256: task.TextSHA256, TextBytes: task.TextBytes, Engine: task.Engine,
	}
}
