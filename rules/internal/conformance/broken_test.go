package conformance

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"

	"assay/rules/internal/worker"
)

// brokenModel is a worker with one fault and the checks that it must fail, or must
// be noted by.
type brokenModel struct {
	name  string
	want  []string
	says  string // in the reason of the first
	noted bool
	fault fault
	// Limits for faults that are seen by waiting in vain.
	answer, end time.Duration
}

func (b brokenModel) within() Limits {
	limits := patient
	if b.answer > 0 {
		limits.Answer = b.answer
	}
	if b.end > 0 {
		limits.End = b.end
	}
	return limits
}

// frames changes the frames of a kind.
func frames(kind string, change func(frame map[string]any) []any) fault {
	return fault{out: func(frame map[string]any) []any {
		if frame["frame"] == kind {
			return change(frame)
		}
		return []any{frame}
	}}
}

// sets changes a member of the frames of a kind; the path may lead into an object.
func sets(kind, path string, value any) fault {
	return frames(kind, func(frame map[string]any) []any {
		set(frame, path, value)
		return []any{frame}
	})
}

// inStreams does the same to the done frames of streams.
func inStreams(path string, value any) fault {
	return frames("done", func(frame map[string]any) []any {
		if frame["text"] == nil {
			set(frame, path, value)
		}
		return []any{frame}
	})
}

func set(frame map[string]any, path string, value any) {
	if outer, inner, ok := strings.Cut(path, "."); ok {
		frame, path = frame[outer].(map[string]any), inner
	}
	frame[path] = value
}

func diesAt(text string) fault {
	return fault{in: func(line []byte) []byte {
		if bytes.Contains(line, []byte(text)) {
			die()
		}
		return line
	}}
}

func refuses(status int, member string) fault {
	return fault{ask: func(body map[string]any) *refusing {
		if body[member] != nil {
			return &refusing{status, "no " + member}
		}
		return nil
	}}
}

func refusesImages(status int) fault {
	return fault{ask: func(body map[string]any) *refusing {
		if messages, ok := body["messages"].([]any); ok {
			if _, ok := messages[0].(map[string]any)["content"].([]any); ok {
				return &refusing{status, "no image"}
			}
		}
		return nil
	}}
}

const (
	helloCheck    = "hello comes first and says what the worker is"
	readyCheck    = "ready follows hello"
	wholeCheck    = "whole answers at every endpoint"
	digestCheck   = "task has the digest and the length of the text"
	figureCheck   = "task has figures that fit the answer"
	charCheck     = "characters arrive whole"
	asciiCheck    = "a prompt beyond ASCII is taken"
	unknownCheck  = "unknown members do no harm"
	refusalCheck  = "a body of the wrong form is refused"
	contextCheck  = "a prompt beyond max_context is refused"
	cancelCheck   = "cancel ends a request early"
	lateCheck     = "a cancel for no request is ignored"
	imageCheck    = "an image does no harm"
	tokenCheck    = "texts are tokenized"
	endCheck      = "the end of its input ends it"
	endInCheck    = "the end of its input ends it in a request"
	shutdownCheck = "shutdown ends it with status 0"
	frameCheck    = "frames are complete and in order"
	outputCheck   = "standard output carries frames only"
)

// broken is filled in here: the test binary looks its fault up by name.
var broken = []brokenModel{
	{name: "ready first", want: []string{helloCheck}, says: "ready frame out of order", fault: frames("hello", func(f map[string]any) []any { return []any{map[string]any{"frame": "ready"}, f} })},
	{name: "a version of its own", want: []string{helloCheck}, says: "protocol 3", fault: sets("hello", "protocol", 3)},
	{name: "no name", want: []string{helloCheck}, says: "worker and engine.name", fault: sets("hello", "worker", "")},
	{name: "an endpoint of its own", want: []string{helloCheck}, says: `"embeddings"`, fault: fault{can: func(c map[string]any) { c["endpoints"] = []string{"chat", "embeddings"} }}},
	{name: "an endpoint twice", want: []string{helloCheck}, says: "twice", fault: fault{can: func(c map[string]any) { c["endpoints"] = []string{"chat", "chat"} }}},
	{name: "text as a kind of media", want: []string{helloCheck}, says: "beside text", fault: fault{can: func(c map[string]any) { c["content"] = []string{"text"}; c["max_context"] = -1 }}},
	{name: "cannot start", want: []string{helloCheck}, says: "no GPU", fault: frames("hello", func(map[string]any) []any { return []any{map[string]any{"frame": "fatal", "message": "no GPU"}} })},
	{name: "dies at once", want: []string{helloCheck}, says: "died", fault: fault{start: die}},
	{name: "cannot load", want: []string{readyCheck}, says: "no such file", fault: frames("ready", func(map[string]any) []any {
		return []any{map[string]any{"frame": "fatal", "message": "no such file"}}
	})},
	{name: "hello twice", want: []string{readyCheck}, says: "followed by hello", fault: frames("hello", func(f map[string]any) []any { return []any{f, f} })},
	{name: "whole answers without a reason", want: []string{wholeCheck}, says: "broke off", fault: frames("done", func(f map[string]any) []any {
		if f["text"] != nil {
			f["finish_reason"] = nil
		}
		return []any{f}
	})},
	{name: "says nothing", want: []string{wholeCheck}, says: "empty", fault: fault{in: func(line []byte) []byte {
		return bytes.ReplaceAll(line, []byte(`"max_tokens":16`), []byte(`"max_tokens":0`))
	}}},
	{name: "hangs", want: []string{wholeCheck}, says: "did not end within", answer: 200 * time.Millisecond, fault: frames("done", func(map[string]any) []any { return nil })},
	{name: "ids of its own", want: []string{wholeCheck, frameCheck}, says: "never asked for", fault: sets("done", "id", "mine")},
	{name: "a line without an end", want: []string{wholeCheck}, says: "a line of more than", fault: sets("done", "text", strings.Repeat("x", worker.MaxReply))},
	{name: "a frame inside a line", want: []string{wholeCheck}, says: "not a frame", fault: frames("done", func(f map[string]any) []any { return []any{"100% done ", f} })},
	{name: "streams without a reason", want: []string{"answers in pieces at every endpoint"}, says: "broke off", fault: inStreams("finish_reason", nil)},
	{name: "a digest of something else", want: []string{digestCheck}, says: "text_sha256 is 0000", fault: sets("done", "task.text_sha256", strings.Repeat("0", 64))},
	{name: "characters for bytes", want: []string{digestCheck}, says: "text_bytes is 7", fault: sets("done", "task.text_bytes", 7)},
	{name: "tokens for increments", want: []string{figureCheck}, says: "increments is 99", fault: inStreams("task.increments", 99)},
	{name: "two clocks", want: []string{figureCheck}, says: "is after wall_ns", fault: inStreams("task.first_increment_ns", int64(1)<<60)},
	{name: "no first increment", want: []string{figureCheck}, says: "is missing", fault: inStreams("task.first_increment_ns", nil)},
	{name: "a scope of its own", want: []string{figureCheck}, says: `scope is "request"`, fault: sets("done", "task.scope", "request")},
	{name: "no clock", want: []string{figureCheck}, says: "wall_ns is 0", fault: frames("done", func(f map[string]any) []any {
		set(f, "task.wall_ns", 0)
		if f["text"] == nil {
			set(f, "task.first_increment_ns", 0)
		}
		return []any{f}
	})},
	{name: "cuts characters", want: []string{charCheck}, says: "U+FFFD", fault: fault{cut: true}},
	{name: "cuts characters always", want: []string{charCheck}, noted: true, says: "end inside a character", fault: fault{cutAll: true}},
	{name: "ignores max_tokens", want: []string{"max_tokens limits the answer"}, says: "is 9 with max_tokens 3", fault: fault{in: func(line []byte) []byte {
		return bytes.ReplaceAll(line, []byte(`"max_tokens":3`), []byte(`"max_tokens":9`))
	}}},
	{name: "lives for a while", want: []string{"requests are served one after the other"}, says: "exit status 3", fault: diesAt("request 5 of 8")},
	{name: "knows ASCII only", want: []string{digestCheck, charCheck, asciiCheck, tokenCheck}, says: "died", fault: fault{in: func(line []byte) []byte {
		if bytes.ContainsFunc(line, func(r rune) bool { return r > 127 }) {
			die()
		}
		return line
	}}},
	{name: "refuses stop", want: []string{"settings of sampling are taken"}, says: "no stop", fault: refuses(400, "stop")},
	{name: "strict about frames", want: []string{unknownCheck}, says: "members of the frame", fault: diesAt(`"traceparent"`)},
	{name: "fails at an unknown member", want: []string{unknownCheck}, says: "status 500", fault: refuses(500, "x_assay")},
	{name: "takes any body and any length", want: []string{refusalCheck, contextCheck}, says: "it was answered", fault: fault{careless: true}},
	{name: "a refusal that looks like a failure", want: []string{refusalCheck, contextCheck}, says: "status 500", fault: frames("error", func(f map[string]any) []any {
		if f["status"] == 400.0 {
			f["status"] = 500
		}
		return []any{f}
	})},
	{name: "dies of a bad body", want: []string{refusalCheck}, says: "died", fault: diesAt(`"messages":7`)},
	{name: "short lines", want: []string{"a long line is taken or refused"}, says: "2 MiB", fault: diesAt(strings.Repeat("x", 1<<20))},
	{name: "deaf to cancel", want: []string{cancelCheck}, says: "of its cancel", end: 2 * time.Second, fault: fault{in: func(line []byte) []byte {
		if bytes.Contains(line, []byte(`"cancel"`)) {
			return nil
		}
		return line
	}}},
	{name: "fails when cancelled", want: []string{cancelCheck}, says: "status 500", fault: frames("error", func(f map[string]any) []any {
		if f["status"] == 499.0 {
			f["status"] = 500
		}
		return []any{f}
	})},
	{name: "a cancel hits the next request", want: []string{lateCheck}, says: "status 499", fault: fault{sticky: true}},
	{name: "dies of an unknown cancel", want: []string{lateCheck}, says: "died", fault: diesAt("no-such-request")},
	{name: "negative tokens", want: []string{tokenCheck}, says: "negative", fault: sets("tokens", "tokens", []int{1, -1})},
	{name: "no tokens", want: []string{tokenCheck}, says: "no tokens", fault: sets("tokens", "tokens", []int{})},
	{name: "other tokens each time", want: []string{tokenCheck}, says: "and then", fault: frames("tokens", func(f map[string]any) []any {
		f["tokens"] = []int64{time.Now().UnixNano()}
		return []any{f}
	})},
	{name: "offers logprobs and has none", want: []string{"log-probabilities are given"}, says: "no frame has logprobs", fault: fault{out: func(f map[string]any) []any {
		delete(f, "logprobs")
		return []any{f}
	}}},
	{name: "fails at an image", want: []string{imageCheck}, says: "no image", fault: refusesImages(500)},
	{name: "refuses this image", want: []string{imageCheck}, noted: true, says: "no image", fault: refusesImages(400)},
	{name: "other answers each time", want: []string{"the same request gets the same answer"}, noted: true, says: "and then", fault: fault{moody: true}},
	{name: "lives without a gateway", want: []string{endCheck, endInCheck}, says: "did not exit", end: 2 * time.Second, fault: fault{deafToEnd: true}},
	{name: "answers first when the gateway is gone", want: []string{endInCheck}, says: "did not exit", end: 2 * time.Second, fault: fault{deafInARequest: true}},
	{name: "starts only once", want: []string{endInCheck}, says: "started again: the worker died", fault: fault{start: func() {
		f, err := os.OpenFile(os.Getenv(onceVariable), os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			die()
		}
		f.Close()
	}}},
	{name: "a bad status at shutdown", want: []string{shutdownCheck}, says: "exit status 3", fault: diesAt(`"shutdown"`)},
	{name: "leaves a child", want: []string{"no process outlives it"}, says: "after its own end (and 2 more)", end: time.Second, fault: fault{start: func() {
		if err := exec.Command("sleep", "1000").Start(); err != nil {
			panic(err)
		}
	}}},
	{name: "a library prints", want: []string{outputCheck}, says: "more)", fault: frames("delta", func(f map[string]any) []any { return []any{"generating\n", f} })},
	{name: "a library prints numbers", want: []string{outputCheck}, says: "not a frame", fault: frames("ready", func(f map[string]any) []any { return []any{"{\"progress\": 100}\n", f} })},
	{name: "empty deltas", want: []string{frameCheck}, says: "text is empty", fault: frames("delta", func(f map[string]any) []any {
		return []any{map[string]any{"frame": "delta", "id": f["id"], "text": ""}, f}
	})},
	{name: "deltas in whole answers", want: []string{frameCheck}, says: "not a stream", fault: frames("done", func(f map[string]any) []any {
		if f["text"] == nil {
			return []any{f}
		}
		return []any{map[string]any{"frame": "delta", "id": f["id"], "text": "x"}, f}
	})},
	{name: "a text after a stream", want: []string{frameCheck}, says: "text belongs to buffered", fault: inStreams("text", "x")},
	{name: "done twice", want: []string{frameCheck}, says: "done frame for", fault: frames("done", func(f map[string]any) []any { return []any{f, f} })},
	{name: "a delta after done", want: []string{frameCheck}, says: "delta frame for", fault: frames("done", func(f map[string]any) []any {
		return []any{f, map[string]any{"frame": "delta", "id": f["id"], "text": "x"}}
	})},
	{name: "no task", want: []string{frameCheck}, says: "task is required", fault: frames("done", func(f map[string]any) []any {
		delete(f, "task")
		return []any{f}
	})},
	{name: "a negative count", want: []string{frameCheck}, says: "negative count", fault: sets("done", "usage.cached_tokens", -1)},
	{name: "a foreign encoding", want: []string{digestCheck, charCheck, frameCheck}, says: "text_sha256", fault: frames("delta", func(f map[string]any) []any {
		return []any{"{\"frame\":\"delta\",\"id\":\"" + f["id"].(string) + "\",\"text\":\"Gr\xfc\xdfe\",\"logprobs\":{}}\n"}
	})},
}
