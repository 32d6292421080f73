package gateway

import (
	"context"
	"errors"
	"net/http"

	"assay/rules/internal/openai"
	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// whole sends a buffered answer.
func (x *exchange) whole(done *worker.Done) error {
	if done.FinishReason == nil {
		x.fail(http.StatusBadGateway, record.BrokenStream, "engine_error", "the engine's answer broke off")
		return nil
	}
	usage := openai.NewUsage(done.Usage.PromptTokens, done.Usage.CompletionTokens, done.Usage.CachedTokens)
	if err := x.respond(http.StatusOK, x.answer.Whole(*done.Text, *done.FinishReason, done.Logprobs, usage)); err != nil {
		return err
	}
	x.rec.Status, x.rec.Outcome = http.StatusOK, record.Completed
	return nil
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
	if done.Text != nil && (*done.Text != "" || done.Logprobs != nil) { // of a worker that does not stream
		x.increment(*done.Text, done.Logprobs)
	}
	x.event(x.answer.Finish(*done.FinishReason))
	if includeUsage {
		x.event(x.answer.Counts(openai.NewUsage(done.Usage.PromptTokens, done.Usage.CompletionTokens, done.Usage.CachedTokens)))
	}
	x.events.WriteString("data: [DONE]\n\n")
	if err := x.flush(); err != nil {
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
	case cause != nil && x.s.stopping.Err() != nil:
		x.stopped()
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

// stopped ends a request that the server did not wait for.
func (x *exchange) stopped() {
	x.fail(http.StatusServiceUnavailable, record.ServerError, "stopping", errStopping.Error())
}

// unread ends a request whose answer could not be written: the client left, or
// did not read it before the request's time, or the server's, was over.
func (x *exchange) unread(ctx context.Context) {
	late := func(reason record.Reason, code, message string) {
		x.rec.Status = http.StatusOK
		x.settle(record.Failed, reason, &openai.Error{Type: "server_error", Code: code, Message: message})
		x.abort = true
	}
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		late(record.Timeout, "timeout", "the client did not read the answer in time")
	case x.s.stopping.Err() != nil:
		late(record.ServerError, "stopping", errStopping.Error())
	default:
		x.gone()
	}
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
	x.event(openai.ErrorBody{Error: told})
	if x.flush() != nil {
		x.abort = true // the reason stands: it came before the client left
	}
}

// refuse ends a request with an error response.
func (x *exchange) refuse(status int, outcome record.Outcome, reason record.Reason, told *openai.Error) {
	x.rec.Status = status
	x.settle(outcome, reason, told)
	_ = x.respond(status, openai.ErrorBody{Error: told}) // the record has no first write then
}

func (x *exchange) settle(outcome record.Outcome, reason record.Reason, told *openai.Error) {
	x.rec.Outcome, x.rec.Reason = outcome, reason
	x.rec.Error = &record.Error{Code: told.Code, Type: told.Type, Message: told.Message}
}
