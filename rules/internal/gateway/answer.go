package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"assay/rules/internal/openai"
	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// wrote notes that something went out to the client.
func (x *exchange) wrote() {
	x.last = time.Now()
	if x.rec.FirstWriteNS == nil {
		first := x.last.Sub(x.arrived).Nanoseconds()
		x.rec.FirstWriteNS = &first
	}
}

// whole sends a buffered answer.
func (x *exchange) whole(done *worker.Done) error {
	if done.FinishReason == nil {
		x.fail(http.StatusBadGateway, record.BrokenStream, "engine_error", "the engine's answer broke off")
		return nil
	}
	usage := openai.NewUsage(done.Usage.PromptTokens, done.Usage.CompletionTokens, done.Usage.CachedTokens)
	if err := respond(x.w, http.StatusOK, x.answer.Whole(*done.Text, *done.FinishReason, usage)); err != nil {
		return err
	}
	x.wrote()
	x.rec.Status, x.rec.Outcome = http.StatusOK, record.Completed
	return nil
}

// events starts the next write of a stream, with the opening chunk if it is the
// first. The header goes out with the first write too: until the engine has
// begun to answer, an error has its own status.
func (x *exchange) events() *bytes.Buffer {
	events := new(bytes.Buffer)
	if opening, ok := x.answer.Opening(); ok && !x.opened {
		writeEvent(events, opening)
	}
	return events
}

// increment passes on a piece of the text.
func (x *exchange) increment(text string) error {
	events := x.events()
	writeEvent(events, x.answer.Increment(text))
	return x.flush(events)
}

// flush sends events of a stream at once.
func (x *exchange) flush(events *bytes.Buffer) error {
	if !x.opened {
		x.opened = true
		x.rec.Status = http.StatusOK
		header := x.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
		x.w.WriteHeader(http.StatusOK)
	}
	if _, err := x.w.Write(events.Bytes()); err != nil {
		return err
	}
	if err := x.conn.Flush(); err != nil {
		return err
	}
	x.wrote()
	return nil
}

func writeEvent(b *bytes.Buffer, event any) {
	b.WriteString("data: ")
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	// The events are our own types, which always encode.
	_ = e.Encode(event) // ends with a newline
	b.WriteByte('\n')
}

// endStream ends a stream the way the engine's answer ended.
func (x *exchange) endStream(done *worker.Done, includeUsage bool) error {
	if done.FinishReason == nil {
		if !x.opened {
			x.fail(http.StatusBadGateway, record.BrokenStream, "engine_error", "the engine's answer broke off")
			return nil
		}
		// The response ends here, without a finish reason and without [DONE].
		x.settle(record.Failed, record.BrokenStream, &openai.Error{
			Type: "server_error", Code: "engine_error", Message: "the engine's answer broke off"})
		return nil
	}
	events := x.events()
	writeEvent(events, x.answer.Finish(*done.FinishReason))
	if includeUsage {
		usage := openai.NewUsage(done.Usage.PromptTokens, done.Usage.CompletionTokens, done.Usage.CachedTokens)
		writeEvent(events, x.answer.Counts(usage))
	}
	events.WriteString("data: [DONE]\n\n")
	if err := x.flush(events); err != nil {
		return err
	}
	x.rec.Outcome = record.Completed
	return nil
}

// engineError passes on an error of the engine.
func (x *exchange) engineError(e *worker.Error) {
	told := &openai.Error{Message: e.Message, Type: e.Type, Code: e.Code}
	switch {
	case x.opened:
		x.breakOff(record.StreamError, told)
	case e.Status == statusClientGone: // nobody cancelled
		x.fail(http.StatusBadGateway, record.ServerError, e.Code, e.Message)
	case isOverload(e):
		x.refuse(e.Status, record.Rejected, "", told)
	case e.Status < 500:
		x.refuse(e.Status, record.Invalid, "", told)
	default:
		x.refuse(e.Status, record.Failed, record.ServerError, told)
	}
}

// isOverload reports a refusal for capacity. A bare 503 is none: it may as well
// be a fault.
func isOverload(e *worker.Error) bool {
	return e.Status == http.StatusTooManyRequests || e.Status == 529 ||
		e.Status == http.StatusServiceUnavailable && e.Code == "overloaded"
}

// broke ends a request that its worker did not end: the context has ended, or
// the worker failed.
func (x *exchange) broke(ctx context.Context, err error) {
	failure := &openai.Error{Type: "server_error", Code: "worker_failed", Message: err.Error()}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		x.fail(http.StatusGatewayTimeout, record.Timeout, "timeout", errTimeout.Error())
	case errors.Is(cause, errStopping):
		x.fail(http.StatusServiceUnavailable, record.ServerError, "stopping", errStopping.Error())
	case cause != nil:
		x.gone()
	case x.opened:
		// The client must see that the answer has no end.
		x.settle(record.Failed, record.Protocol, failure)
		x.abort = true
	default:
		x.refuse(http.StatusBadGateway, record.Failed, record.Protocol, failure)
	}
}

// unread ends a request whose answer could not be written: the client left, or
// did not read it before the request's time was over.
func (x *exchange) unread(ctx context.Context) {
	if errors.Is(context.Cause(ctx), errTimeout) {
		x.rec.Status = http.StatusOK
		x.settle(record.Failed, record.Timeout, &openai.Error{Type: "server_error", Code: "timeout", Message: "the client did not read the answer in time"})
		x.abort = true
		return
	}
	x.gone()
}

// gone notes that the client left.
func (x *exchange) gone() {
	x.rec.Status = statusClientGone
	x.rec.Outcome, x.rec.Reason = record.Cancelled, ""
	x.rec.Error = &record.Error{Type: "cancelled", Code: "client_gone", Message: "the client left before the end"}
	x.abort = true
}

// fail ends the request as failed: by a response of its own, or by an error
// event if the stream is open.
func (x *exchange) fail(status int, reason record.Reason, code, message string) {
	told := &openai.Error{Type: "server_error", Code: code, Message: message}
	if x.opened {
		x.breakOff(reason, told)
		return
	}
	x.refuse(status, record.Failed, reason, told)
}

// breakOff ends an open stream with an error event, and without [DONE].
func (x *exchange) breakOff(reason record.Reason, told *openai.Error) {
	x.settle(record.Failed, reason, told)
	event := new(bytes.Buffer)
	writeEvent(event, openai.ErrorBody{Error: told})
	if x.flush(event) != nil {
		x.abort = true // the reason stands: it came before the client left
	}
}

// refuse ends a request with an error response.
func (x *exchange) refuse(status int, outcome record.Outcome, reason record.Reason, told *openai.Error) {
	x.rec.Status = status
	x.settle(outcome, reason, told)
	if respond(x.w, status, openai.ErrorBody{Error: told}) == nil {
		x.wrote()
	}
}

func (x *exchange) settle(outcome record.Outcome, reason record.Reason, told *openai.Error) {
	x.rec.Outcome, x.rec.Reason = outcome, reason
	x.rec.Error = &record.Error{Code: told.Code, Type: told.Type, Message: told.Message}
}
