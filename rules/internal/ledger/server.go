package ledger

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"assay/rules/internal/jsonl"
	"assay/rules/internal/record"
)

// ReadServer yields the terminal records of a gateway's file. A record is valid
// until the next is asked for. name stands for the file in errors, maxLine is in
// bytes, 0 for jsonl.DefaultMaxLine. A torn or too long line is a *jsonl.TornError
// or *jsonl.TooLongError, and reading goes on; any other error is the last thing
// that is yielded.
func ReadServer(r io.Reader, name string, maxLine int64) iter.Seq2[*record.Record, error] {
	return jsonl.Records(r, name, maxLine, func() jsonl.Parser[*record.Record] { return &serverParser{} })
}

// serverParser reads one record after the other into memory of its own, which
// Reuse gives free.
type serverParser struct {
	s       jsonl.Scanner
	records []record.Record
	tasks   []record.Task
	ints    []int
	longs   []int64
}

func (p *serverParser) Reuse() {
	p.records, p.tasks, p.ints, p.longs = p.records[:0], p.tasks[:0], p.ints[:0], p.longs[:0]
}

// The members of a record, in the order in which the gateway writes them.
var (
	recordFields = jsonl.NewFields("schema", "request_id", "id_source", "repeated", "endpoint", "stream", "model", "prompt_sha256", "status", "outcome", "reason",
		"error", "traceparent", "lane", "worker", "received_wall_ns", "received_ns", "boot_id", "queue_ns", "queue_depth", "wait_ns",
		"first_write_ns", "total_ns", "client_write_ns", "task")
	taskFields = jsonl.NewFields("scope", "source", "engine_request_id", "wall_ns", "first_increment_ns", "increments", "prompt_tokens",
		"completion_tokens", "cached_tokens", "finish_reason", "text_sha256", "text_bytes", "engine")
	recordErrorFields = jsonl.NewFields("code", "type", "message")
)

func (p *serverParser) Parse(line jsonl.Line) (*record.Record, error) {
	p.s.Reset(line.Bytes)
	p.records = append(p.records, record.Record{})
	r := &p.records[len(p.records)-1]
	m := p.s.Members(recordFields)
	for m.Next() {
		if err := p.member(r, m.Key()); err != nil {
			return nil, named(m.Key(), err)
		}
	}
	err := m.Err()
	if err == nil {
		err = p.s.End()
	}
	switch {
	case err != nil:
		return nil, err
	case r.Schema != record.Schema:
		return nil, fmt.Errorf("schema %d; this build reads %d", r.Schema, record.Schema)
	case r.RequestID == "":
		return nil, errors.New("no request_id")
	case !slices.Contains(outcomes, r.Outcome):
		return nil, fmt.Errorf("unknown outcome %q", r.Outcome)
	}
	return r, nil
}

var outcomes = []record.Outcome{record.Completed, record.Rejected, record.Invalid, record.Failed, record.Cancelled}

// member reads one member. Null is as good as absent.
func (p *serverParser) member(r *record.Record, key []byte) error {
	if p.s.Null() {
		return nil
	}
	switch string(key) {
	case "schema":
		return p.int(&r.Schema)
	case "request_id":
		return p.text(&r.RequestID)
	case "id_source":
		return p.name(&r.IDSource)
	case "repeated":
		return p.bool(&r.Repeated)
	case "endpoint":
		return p.name(&r.Endpoint)
	case "stream":
		return p.bool(&r.Stream)
	case "model":
		return p.name(&r.Model)
	case "prompt_sha256":
		return p.text(&r.PromptSHA256)
	case "status":
		return p.int(&r.Status)
	case "outcome":
		return p.name((*string)(&r.Outcome))
	case "reason":
		return p.name((*string)(&r.Reason))
	case "error":
		r.Error = &record.Error{}
		return p.failure(r.Error)
	case "traceparent":
		return p.text(&r.Traceparent)
	case "lane":
		return p.optInt(&r.Lane)
	case "worker":
		return p.optInt(&r.Worker)
	case "received_wall_ns":
		return p.long(&r.ReceivedWallNS)
	case "received_ns":
		return p.long(&r.ReceivedNS)
	case "boot_id":
		return p.name(&r.BootID)
	case "queue_ns":
		return p.optLong(&r.QueueNS)
	case "queue_depth":
		return p.optInt(&r.QueueDepth)
	case "wait_ns":
		return p.optLong(&r.WaitNS)
	case "first_write_ns":
		return p.optLong(&r.FirstWriteNS)
	case "total_ns":
		return p.long(&r.TotalNS)
	case "client_write_ns":
		return p.optLong(&r.ClientWriteNS)
	case "task":
		p.tasks = append(p.tasks, record.Task{})
		r.Task = &p.tasks[len(p.tasks)-1]
		m := p.s.Members(taskFields)
		for m.Next() {
			if err := p.task(r.Task, m.Key()); err != nil {
				return named(m.Key(), err)
			}
		}
		return m.Err()
	}
	return nil
}

func (p *serverParser) task(t *record.Task, key []byte) error {
	if p.s.Null() {
		return nil
	}
	switch string(key) {
	case "scope":
		return p.name(&t.Scope)
	case "source":
		return p.name(&t.Source)
	case "engine_request_id":
		return p.text(&t.EngineRequestID)
	case "wall_ns":
		return p.long(&t.WallNS)
	case "first_increment_ns":
		return p.optLong(&t.FirstIncrementNS)
	case "increments":
		return p.int(&t.Increments)
	case "prompt_tokens":
		return p.optLong(&t.PromptTokens)
	case "completion_tokens":
		return p.optLong(&t.CompletionTokens)
	case "cached_tokens":
		return p.optLong(&t.CachedTokens)
	case "finish_reason":
		return p.name(&t.FinishReason)
	case "text_sha256":
		return p.text(&t.TextSHA256)
	case "text_bytes":
		return p.long(&t.TextBytes)
	case "engine":
		t.Engine = map[string]float64{}
		return p.s.Object(nil, func(key []byte) error {
			if p.s.Null() {
				t.Engine[string(key)] = 0 // as encoding/json has it
				return nil
			}
			v, err := p.s.Float()
			t.Engine[string(key)] = v
			return named(key, err)
		})
	}
	return nil
}

func (p *serverParser) failure(e *record.Error) error {
	return p.s.Object(recordErrorFields, func(key []byte) error {
		to := map[string]*string{"code": &e.Code, "type": &e.Type, "message": &e.Message}[string(key)]
		if to == nil || p.s.Null() {
			return nil
		}
		return named(key, p.text(to))
	})
}

func (p *serverParser) text(to *string) (err error) {
	*to, err = p.s.Text()
	return err
}

func (p *serverParser) name(to *string) (err error) {
	*to, err = p.s.Name()
	return err
}

func (p *serverParser) bool(to *bool) (err error) {
	*to, err = p.s.Bool()
	return err
}

func (p *serverParser) long(to *int64) (err error) {
	*to, err = p.s.Int()
	return err
}

func (p *serverParser) int(to *int) error {
	n, err := p.s.Int()
	*to = int(n)
	return err
}

func (p *serverParser) optLong(to **int64) error {
	n, err := p.s.Int()
	p.longs = append(p.longs, n)
	*to = &p.longs[len(p.longs)-1]
	return err
}

func (p *serverParser) optInt(to **int) error {
	n, err := p.s.Int()
	p.ints = append(p.ints, int(n))
	*to = &p.ints[len(p.ints)-1]
	return err
}

// named says in which member an error is.
func named(key []byte, err error) error {
	if err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", key, err)
}
