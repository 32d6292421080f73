package aiperf

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"assay/rules/internal/jsonl"
)

var done = []byte("[DONE]")

var (
	receivedFields = jsonl.NewFields("perf_ns", "packets", "text", "content_type")
	packetFields   = jsonl.NewFields("name", "value")
	documentFields = jsonl.NewFields("id", "object", "created", "model", "code", "type", "message", "error", "choices", "usage")
	choiceFields   = jsonl.NewFields("index", "delta", "message", "text", "logprobs", "finish_reason")
	messageFields  = jsonl.NewFields("role", "content", "reasoning_content", "reasoning", "tool_calls")
	callFields     = jsonl.NewFields("function")
	functionFields = jsonl.NewFields("name", "arguments")
	usageFields    = jsonl.NewFields("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details")
	detailFields   = jsonl.NewFields("cached_tokens", "reasoning_tokens")
)

var responsesKey = []byte("responses")

func (p *parser) responses() error {
	e := p.line.Elements()
	for e.Next() {
		if err := p.received(); err != nil {
			return err
		}
	}
	return e.Err()
}

// received reads one element of responses: an event of a stream as packets
// (one field each, as AIPerf split it), or a whole body as text.
func (p *parser) received() error {
	s, a := &p.line, &p.answer
	var perf int64
	var e event
	stamped := false
	p.data = p.data[:0]
	m := s.Members(receivedFields)
	for m.Next() {
		var err error
		switch string(m.Key()) {
		case "perf_ns":
			stamped, err = setInt(s, &perf)
		case "text":
			if !s.Null() {
				e.data = true
				p.data, err = s.AppendText(p.data)
			}
		case "packets":
			if !s.Null() {
				a.Stream = true
				list := s.Elements()
				for err == nil && list.Next() {
					err = p.packet(&e)
				}
				if err == nil {
					err = list.Err()
				}
			}
		}
		if err != nil {
			return in(responsesKey, in(m.Key(), err))
		}
	}
	if err := m.Err(); err != nil {
		return in(responsesKey, err)
	}
	if !stamped {
		return errors.New("responses: an element has no perf_ns")
	}
	a.arrived(perf)
	if e.data {
		a.Bodies++
		p.documents(perf, e.failed)
	}
	return nil
}

// event is what the packets of one event, apart from its data, say.
type event struct {
	data   bool // there is a data field
	failed bool // event: error
}

// packet reads one field of an event; several data fields are joined by LF, as
// the standard for event streams says.
func (p *parser) packet(e *event) error {
	s := &p.line
	start := len(p.data)
	if e.data {
		p.data = append(p.data, '\n')
	}
	value := len(p.data)
	p.name = p.name[:0]
	m := s.Members(packetFields)
	for m.Next() {
		var err error
		switch string(m.Key()) {
		case "name":
			p.name, err = s.AppendText(p.name)
		case "value":
			if !s.Null() {
				p.data, err = s.AppendText(p.data)
			}
		}
		if err != nil {
			return in(m.Key(), err)
		}
	}
	if err := m.Err(); err != nil {
		return err
	}
	switch string(p.name) {
	case "data":
		e.data = true
		return nil
	case "event":
		e.failed = string(p.data[value:]) == "error"
	case "comment":
		p.answer.Comments++
	}
	p.data = p.data[:start]
	return nil
}

// documents reads the data of one event, or a body. AIPerf 0.13.0 takes two
// events for one where a stream mixes line endings, so there may be several
// documents, the last of them [DONE].
func (p *parser) documents(perf int64, failed bool) {
	a, s := &p.answer, &p.inner
	var err error
	for s.Reset(p.data); err == nil; {
		rest := s.Rest()
		if len(rest) == 0 {
			break
		}
		if a.Stream && bytes.HasPrefix(rest, done) {
			a.Done = true
			s.Advance(len(done))
			continue
		}
		err = a.document(s, perf, failed)
	}
	if err != nil && a.Malformed == "" {
		a.Malformed = fmt.Sprintf("response %d: %v", a.Bodies, err)
	}
	if failed {
		a.fail(Failure{Message: string(p.data)})
	}
}

// answer builds a Response.
type answer struct {
	*Response
	ints            *ints
	chunks          []Chunk // of all responses since Reuse
	first           int     // of this one
	text, reasoning []byte
	buf             []byte
}

func (a *answer) start(r *Response, ints *ints) {
	a.Response, a.ints, a.first = r, ints, len(a.chunks)
	a.text, a.reasoning = a.text[:0], a.reasoning[:0]
}

func (a *answer) arrived(perf int64) {
	if a.FirstPerfNS == nil {
		a.FirstPerfNS, a.LastPerfNS = a.ints.keep(perf), a.ints.keep(perf)
	}
	*a.LastPerfNS = perf
}

func (a *answer) fail(f Failure) {
	if a.Failure == nil {
		a.Failure, a.AfterContent = &f, len(a.chunks) > a.first
	}
}

// document reads one completion object or chunk of the chat or the
// completions endpoint.
func (a *answer) document(s *jsonl.Scanner, perf int64, failed bool) error {
	chunk := Chunk{PerfNS: perf}
	role := false
	var failure Failure // wrapped in "error" or at the top
	m, err := s.Members(documentFields), error(nil)
	for err == nil && m.Next() {
		switch string(m.Key()) {
		case "choices":
			if s.Null() {
				continue
			}
			list, first := s.Elements(), true
			for err == nil && list.Next() {
				var c Chunk
				var r bool
				c, r, err = a.choice(s, first)
				first, role = false, role || r
				chunk.TextSize += c.TextSize
				chunk.ReasoningSize += c.ReasoningSize
				chunk.ToolSize += c.ToolSize
			}
			if err == nil {
				err = list.Err()
			}
			continue
		case "usage":
			err = a.usage(s)
		case "error":
			switch s.Peek() {
			case '{':
				failed = true
				err = s.Object(errorFields, func(key []byte) error { return failureField(s, key, &failure) })
			case '"':
				if failure.Message, err = s.Text(); failure.Message != "" {
					failed = true
				}
			}
		case "object":
			if s.Peek() == '"' {
				a.buf, err = s.AppendText(a.buf[:0])
				failed = failed || string(a.buf) == "error"
			}
		case "code", "type", "message":
			err = failureField(s, m.Key(), &failure)
		}
		if err != nil {
			err = in(m.Key(), err)
		}
	}
	if err == nil {
		err = m.Err()
	}
	if chunk.TextSize+chunk.ReasoningSize+chunk.ToolSize > 0 {
		a.chunks = append(a.chunks, chunk)
	} else if role {
		a.RoleChunks++
	}
	if failed {
		a.fail(failure)
	}
	return err
}

// failureField reads a member of an error object, if it is one.
func failureField(s *jsonl.Scanner, key []byte, f *Failure) error {
	var to *string
	switch string(key) {
	case "code":
		to = &f.Code
	case "type":
		to = &f.Type
	case "message":
		to = &f.Message
	default:
		return nil
	}
	var err error
	switch c := s.Peek(); {
	case c == '"':
		*to, err = s.Text()
	case '0' <= c && c <= '9':
		var n []byte
		n, err = s.Number()
		*to = string(n)
	}
	if code, bad := strconv.ParseInt(f.Code, 10, 64); bad == nil && code >= 400 && code <= 599 {
		f.Status = &code
	}
	return err
}

// choice reads one choice. Only choice 0 counts; the index may stand behind
// the text, so what another one has brought is taken back.
func (a *answer) choice(s *jsonl.Scanner, first bool) (c Chunk, role bool, err error) {
	index := int64(0)
	if !first {
		index = -1
	}
	text, reasoning, finish := len(a.text), len(a.reasoning), a.FinishReason
	m := s.Members(choiceFields)
	for err == nil && m.Next() {
		switch string(m.Key()) {
		case "index":
			index, err = s.Int()
		case "delta", "message":
			if !s.Null() {
				role, err = a.message(s, &c)
			}
		case "text":
			a.text, c.TextSize, err = piece(s, a.text)
		case "finish_reason":
			var reason string
			if reason, err = optName(s); reason != "" {
				a.FinishReason = reason
			}
		}
		if err != nil {
			err = in(m.Key(), err)
		}
	}
	if err == nil {
		err = m.Err()
	}
	if index != 0 {
		a.text, a.reasoning, a.FinishReason = a.text[:text], a.reasoning[:reasoning], finish
		return Chunk{}, false, err
	}
	a.Choice = true
	return c, role, err
}

func (a *answer) message(s *jsonl.Scanner, c *Chunk) (role bool, err error) {
	m := s.Members(messageFields)
	for m.Next() {
		n := 0
		switch string(m.Key()) {
		case "role":
			role = true
		case "content":
			a.text, c.TextSize, err = piece(s, a.text)
		case "reasoning_content", "reasoning":
			// Some servers send both names with one text.
			if c.ReasoningSize == 0 {
				a.reasoning, c.ReasoningSize, err = piece(s, a.reasoning)
			}
		case "tool_calls":
			if !s.Null() {
				n, err = toolSize(s)
				c.ToolSize += n
			}
		}
		if err != nil {
			return role, in(m.Key(), err)
		}
	}
	return role, m.Err()
}

// piece appends a string to dst and returns its size in bytes; null has none.
func piece(s *jsonl.Scanner, dst []byte) ([]byte, int, error) {
	if s.Null() {
		return dst, 0, nil
	}
	n := len(dst)
	dst, err := s.AppendText(dst)
	return dst, len(dst) - n, err
}

// toolSize counts the bytes of names and arguments in a list of tool calls.
func toolSize(s *jsonl.Scanner) (n int, err error) {
	err = s.Array(func() error {
		return s.Object(callFields, func(key []byte) error {
			if string(key) != "function" || s.Null() {
				return nil
			}
			return s.Object(functionFields, func(key []byte) error {
				if k := string(key); k != "name" && k != "arguments" || s.Peek() != '"' {
					return nil
				}
				text, err := s.Text()
				n += len(text)
				return err
			})
		})
	})
	return n, err
}

// usage reads token counts; the last object that is not empty counts.
func (a *answer) usage(s *jsonl.Scanner) error {
	if s.Null() {
		return nil
	}
	var u Usage
	m, err := s.Members(usageFields), error(nil)
	for err == nil && m.Next() {
		switch string(m.Key()) {
		case "prompt_tokens":
			if u.Prompt, err = a.ints.read(s); u.Prompt != nil && *u.Prompt == 0 {
				u.Prompt = nil
			}
		case "completion_tokens":
			u.Completion, err = a.ints.read(s)
		case "prompt_tokens_details":
			u.Cached, err = detail(s, "cached_tokens")
		case "completion_tokens_details":
			u.Reasoning, err = detail(s, "reasoning_tokens")
		}
		if err != nil {
			err = in(m.Key(), err)
		}
	}
	if err == nil {
		err = m.Err()
	}
	if err == nil && u != (Usage{}) {
		a.Usage = u
	}
	return err
}

func detail(s *jsonl.Scanner, name string) (n *int64, err error) {
	if s.Null() {
		return nil, nil
	}
	err = s.Object(detailFields, func(key []byte) (err error) {
		if string(key) == name {
			n, err = optInt(s)
		}
		return err
	})
	return n, err
}

// finish fixes the chunks, the texts and their digest.
func (a *answer) finish() {
	if len(a.chunks) > a.first {
		a.Chunks = a.chunks[a.first:len(a.chunks):len(a.chunks)]
	}
	a.Text, a.Reasoning = string(a.text), string(a.reasoning)
	a.SHA256 = sha256.Sum256(a.text)
}
