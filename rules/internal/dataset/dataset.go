// Package dataset is a prepared workload on disk: what a rule that understands a
// kind of data (conversations, traces) hands to aiperf_run, which only has to
// send it. It holds AIPerf's input file, the plan that names every request
// before it is sent, and where all this is from.
package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"assay/rules/internal/jsonfile"
)

// Places in a prepared data set.
const (
	HeaderFile   = "dataset.json"   // a Header
	PlanFile     = "plan.jsonl"     // a Planned a line, in the order of the requests file
	RequestsFile = "requests.jsonl" // what AIPerf reads; see [Fill]
)

// The kinds of data sets.
const (
	Conversations = "conversations" // several turns each, with the live replies as history
	Trace         = "trace"         // a recorded schedule
)

// Header describes a prepared data set.
type Header struct {
	Version int    `json:"version"`
	Kind    string `json:"kind"`
	// Format is AIPerf's name for the form of the requests file.
	Format   string `json:"format"`
	Endpoint string `json:"endpoint"`
	// Requests and Conversations count the whole plan; a request that stands
	// alone is a conversation of one turn.
	Requests      int64 `json:"requests"`
	Conversations int64 `json:"conversations"`
	// Scheduled says that requests are sent at the times of the plan.
	Scheduled bool `json:"scheduled"`
	// Source is the file that the data set was made of.
	Source        digest.Digest `json:"source"`
	SourceLicence string        `json:"source_licence,omitempty"`
	// Facts are what the kind records of how it was made.
	Facts json.RawMessage `json:"facts,omitempty"`
}

// Planned is a request of the plan.
type Planned struct {
	Conversation string `json:"conversation"`
	Turn         int64  `json:"turn"` // from 0
	// AtNS is when it is to be sent, from the start of the schedule; absent if
	// it is sent when the client gets to it.
	AtNS *int64 `json:"at_ns,omitempty"`
	// PromptTokens is what the server is expected to count, absent if that
	// depends on live replies; OutputTokens is the most that may be answered.
	PromptTokens *int64 `json:"prompt_tokens,omitempty"`
	OutputTokens int64  `json:"output_tokens,omitempty"`
	// TooLong says that the prompt does not fit the context: it is sent to be refused.
	TooLong bool `json:"too_long,omitempty"`
}

// Write writes a prepared data set into dir. requests is the requests file.
func Write(dir string, h Header, plan []Planned, requests []byte) error {
	h.Version = 1
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for _, p := range plan {
		if err := enc.Encode(p); err != nil {
			return err
		}
	}
	return errors.Join(
		jsonfile.Write(filepath.Join(dir, HeaderFile), h),
		os.WriteFile(filepath.Join(dir, PlanFile), lines.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, RequestsFile), requests, 0o644),
	)
}

// ReadHeader reads the header of the data set in dir.
func ReadHeader(dir string) (Header, error) {
	var h Header
	err := jsonfile.Read(filepath.Join(dir, HeaderFile), &h)
	return h, err
}

// ReadPlan reads the plan of the data set in dir; nil if there is none. It fails
// if the plan names a request twice.
func ReadPlan(dir string) ([]Planned, error) {
	f, err := os.Open(filepath.Join(dir, PlanFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type place struct {
		conversation string
		turn         int64
	}
	var plan []Planned
	line := map[place]int{}
	lines := bufio.NewReader(f)
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return plan, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		var p Planned
		if err := jsonfile.Decode(text, &p); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", PlanFile, n, err)
		}
		at := place{p.Conversation, p.Turn}
		if first, ok := line[at]; ok {
			return nil, fmt.Errorf("%s:%d: turn %d of conversation %q is on line %d already", PlanFile, n, p.Turn, p.Conversation, first)
		}
		line[at] = n
		plan = append(plan, p)
	}
}

// payload is the member of a row that is sent as it is.
const payload = "payload"

// Fill makes the requests file ready for a server: what is only known of the
// server and of its family is added to every payload that is sent verbatim, where
// AIPerf itself adds nothing. Rows without a payload stay as they are. members
// maps the names of a body's members to their JSON; what the payload already has
// is kept.
func Fill(requests []byte, members map[string]json.RawMessage) ([]byte, error) {
	var out bytes.Buffer
	n := 0
	for line := range bytes.Lines(requests) {
		n++
		var row map[string]json.RawMessage
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", RequestsFile, n, err)
		}
		body, ok := row[payload]
		if !ok {
			out.Write(line)
			continue
		}
		filled, err := fill(body, members)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", RequestsFile, n, payload, err)
		}
		row[payload] = filled
		// A map is written with its keys in order: the same input, the same bytes.
		data, err := encode(row)
		if err != nil {
			return nil, err
		}
		out.Write(data)
	}
	return out.Bytes(), nil
}

func fill(body json.RawMessage, members map[string]json.RawMessage) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("it is null, not an object")
	}
	for name, value := range members {
		if _, ok := object[name]; !ok {
			object[name] = value
		}
	}
	return encode(object)
}

// encode is JSON as it was written, without escapes for HTML, and a newline.
func encode(object any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(object)
	return out.Bytes(), err
}
