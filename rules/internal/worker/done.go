package worker

import (
	"bytes"
	"errors"
	"strconv"

	"assay/rules/internal/jsonl"
)

var (
	doneMembers  = jsonl.NewFields("frame", "id", "finish_reason", "usage", "task", "text", "logprobs")
	usageMembers = jsonl.NewFields("prompt_tokens", "completion_tokens", "cached_tokens")
	taskMembers  = jsonl.NewFields("scope", "wall_ns", "first_increment_ns", "increments", "text_sha256", "text_bytes",
		"engine", "source", "engine_request_id")
)

var errUnusual = errors.New("a form for the general reader")

// plainDone reads a done frame in its usual form, a client waits for it: with these
// members and no others, none twice, none null that need not be. All other lines are
// for the general reader.
func plainDone(line []byte) (*Done, bool) {
	if !bytes.HasPrefix(line, []byte(`{"frame":"done",`)) {
		return nil, false
	}
	var s jsonl.Scanner
	s.Reset(line)
	d := new(Done)
	err := s.Object(doneMembers, func(key []byte) (err error) {
		switch string(key) {
		case "frame": // was looked at
		case "id":
			d.ID, err = s.Text()
		case "finish_reason":
			d.FinishReason, err = optional(&s, (*jsonl.Scanner).Text)
		case "usage":
			err = d.Usage.scan(&s)
		case "task":
			d.Task = new(Task)
			err = d.Task.scan(&s)
		case "text":
			d.Text, err = optional(&s, (*jsonl.Scanner).Text)
		case "logprobs":
			d.Logprobs, err = s.Raw()
			d.Logprobs = bytes.Clone(d.Logprobs)
		default:
			err = errUnusual
		}
		return err
	})
	return d, err == nil && s.End() == nil
}

func (u *Usage) scan(s *jsonl.Scanner) error {
	return s.Object(usageMembers, func(key []byte) (err error) {
		switch string(key) {
		case "prompt_tokens":
			u.PromptTokens, err = optional(s, integer)
		case "completion_tokens":
			u.CompletionTokens, err = optional(s, integer)
		case "cached_tokens":
			u.CachedTokens, err = optional(s, integer)
		default:
			err = errUnusual
		}
		return err
	})
}

func (t *Task) scan(s *jsonl.Scanner) error {
	return s.Object(taskMembers, func(key []byte) (err error) {
		switch string(key) {
		case "scope":
			t.Scope, err = s.Text()
		case "wall_ns":
			t.WallNS, err = integer(s)
		case "first_increment_ns":
			t.FirstIncrementNS, err = optional(s, integer)
		case "increments":
			var n int64
			n, err = integer(s)
			t.Increments = int(n)
		case "text_sha256":
			t.TextSHA256, err = s.Text()
		case "text_bytes":
			t.TextBytes, err = integer(s)
		case "engine":
			t.Engine = map[string]float64{}
			err = s.Object(nil, func(name []byte) error {
				value, err := s.Float()
				t.Engine[string(name)] = value
				return err
			})
		case "source":
			t.Source, err = s.Text()
		case "engine_request_id":
			t.EngineRequestID, err = s.Text()
		default:
			err = errUnusual
		}
		return err
	})
}

// optional reads a value or null.
func optional[T any](s *jsonl.Scanner, read func(*jsonl.Scanner) (T, error)) (*T, error) {
	if s.Null() {
		return nil, nil
	}
	value, err := read(s)
	return &value, err
}

// integer reads a number without a point.
func integer(s *jsonl.Scanner) (int64, error) {
	raw, err := s.Number()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(raw), 10, 64)
}
