package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// maxPending is how many bytes of events may wait for their write.
const maxPending = 16 << 10

// events are those of a stream that are not written yet: increments that came
// together go out together.
type events struct {
	bytes.Buffer
	encoder *json.Encoder
	// before and after surround the text of an increment.
	before, after []byte
}

// event adds one event. The first is preceded by the chunk that opens a chat.
func (x *exchange) event(v any) {
	e := &x.events
	if e.encoder == nil {
		e.encoder = json.NewEncoder(&e.Buffer)
		e.encoder.SetEscapeHTML(false)
		if opening, ok := x.answer.Opening(); ok {
			x.event(opening)
		}
	}
	e.WriteString("data: ")
	_ = e.encoder.Encode(v) // our own types always encode; it ends with a newline
	e.WriteByte('\n')
}

// increment adds a piece of the text.
func (x *exchange) increment(text string, logprobs json.RawMessage) {
	e := &x.events
	if e.encoder == nil || logprobs != nil {
		x.event(x.answer.Increment(text, logprobs))
		return
	}
	if e.before == nil { // all increments of an answer are alike but for the text
		start := e.Len()
		x.event(x.answer.Increment("", nil))
		empty := bytes.Clone(e.Bytes()[start:])
		text := bytes.LastIndex(empty, []byte(`""`)) // the model's name, before it, may hold quotes
		e.before, e.after = empty[:text], empty[text+len(`""`):]
		e.Truncate(start)
	}
	e.Write(e.before)
	_ = e.encoder.Encode(text)
	e.Truncate(e.Len() - len("\n"))
	e.Write(e.after)
}

// flush sends the events off. The header goes out with the first of them: until the
// engine has begun to answer, an error has a status of its own.
func (x *exchange) flush() error {
	if x.events.Len() == 0 {
		return nil
	}
	if !x.opened {
		x.opened = true
		x.rec.Status = http.StatusOK
		header := x.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
		x.w.WriteHeader(http.StatusOK)
	}
	began := time.Now()
	_, err := x.w.Write(x.events.Bytes())
	if err == nil {
		err = x.conn.Flush()
	}
	x.events.Reset()
	return x.wrote(began, err)
}

// respond sends a whole body.
func (x *exchange) respond(status int, body any) error {
	began := time.Now()
	return x.wrote(began, respond(x.w, status, body))
}

// wrote notes how long a write to the client took, and when it was over.
func (x *exchange) wrote(began time.Time, err error) error {
	now := time.Now()
	x.writes += now.Sub(began)
	if err != nil {
		return err
	}
	x.last = now
	if x.rec.FirstWriteNS == nil {
		first := now.Sub(x.arrived).Nanoseconds()
		x.rec.FirstWriteNS = &first
	}
	return nil
}
