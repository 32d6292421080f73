// Package scripted is a worker without a model: it answers as a script tells
// it, and misbehaves as a script tells it. It stands in for an engine where the
// machinery around one is tested, and speaks the worker protocol in full.
//
// docs/worker-protocol.md describes the script's form for its users.
package scripted

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"assay/rules/internal/jsonfile"
	"assay/rules/internal/worker"
)

// Script says how the worker starts and what it does with each request.
type Script struct {
	// Name is the engine's name; empty means "scripted".
	Name   string `json:"name,omitempty"`
	Offers Offers `json:"offers,omitzero"`
	Start  Start  `json:"start,omitzero"`
	// Rules are tried in order; the first that applies decides. Default is for
	// requests to which none applies.
	Rules   []Rule    `json:"rules,omitempty"`
	Default Behaviour `json:"default,omitzero"`
}

// Offers is what the worker says that it can do, beside chat, completions and
// cancels.
type Offers struct {
	Protocol   int      `json:"protocol,omitempty"`    // 1 or 2; 0 means 2
	Buffered   bool     `json:"buffered,omitempty"`    // no streams
	Content    []string `json:"content,omitempty"`     // kinds of content parts beside text
	Logprobs   bool     `json:"logprobs,omitempty"`    // made up, the same for the same token
	MaxContext int      `json:"max_context,omitempty"` // words of a prompt; 0 means no limit
}

// Start is the worker's behaviour before its first request.
type Start struct {
	Mode StartMode `json:"mode,omitempty"`
	// DelayMS is the time a load takes.
	DelayMS int `json:"delay_ms,omitempty"`
	// Message is what a worker says that cannot load (mode fatal).
	Message string `json:"message,omitempty"`
}

// StartMode is the way the worker starts; empty means that all goes well.
type StartMode string

// The ways in which a start goes wrong.
const (
	StartFatal    StartMode = "fatal"     // says that it cannot load, and exits
	StartDie      StartMode = "die"       // exits without a word
	StartDieLate  StartMode = "die_late"  // exits while it loads, after its first frame
	StartHang     StartMode = "hang"      // never gets ready
	StartBadHello StartMode = "bad_hello" // claims another protocol version
)

// Rule applies a behaviour to some requests.
type Rule struct {
	When When      `json:"when"`
	Do   Behaviour `json:"do"`
}

// When selects requests; all conditions that are given must hold.
type When struct {
	// Requests is "3", "2-5", "4-" or "every 3": ordinals of this process's
	// requests, from 1.
	Requests string `json:"requests,omitempty"`
	// Prompt is a substring of the prompt.
	Prompt string `json:"prompt,omitempty"`
}

// Behaviour is what the worker does with one request.
type Behaviour struct {
	// Tokens is the answer, or TokensHex its bytes, which may end a token inside a
	// character. Without them the answer is Count words (16 if absent) that depend
	// on the prompt. The request's max_tokens cuts it.
	Tokens    []string `json:"tokens,omitempty"`
	TokensHex []string `json:"tokens_hex,omitempty"`
	Count     *int     `json:"count,omitempty"`
	// FinishReason replaces "stop", or "length" for an answer that was cut.
	FinishReason string `json:"finish_reason,omitempty"`

	FirstDelayMS int `json:"first_delay_ms,omitempty"` // before the first token
	TokenDelayMS int `json:"token_delay_ms,omitempty"` // before each other token
	// WallMS replaces the measured time of the call, as a wrong clock does.
	WallMS *int64 `json:"wall_ms,omitempty"`

	// PromptTokens replaces the number of the prompt's words. NoUsage leaves all
	// counts unknown.
	PromptTokens *int64 `json:"prompt_tokens,omitempty"`
	CachedTokens *int64 `json:"cached_tokens,omitempty"`
	NoUsage      bool   `json:"no_usage,omitempty"`

	// Fault happens after the first After tokens.
	Fault Fault `json:"fault,omitempty"`
	After int   `json:"after,omitempty"`
	// Error is what an error says (faults reject and error); it has defaults.
	Error Error `json:"error,omitzero"`
	// IgnoreCancel makes the worker deaf to cancel frames.
	IgnoreCancel bool `json:"ignore_cancel,omitempty"`
}

// Error describes an error frame.
type Error struct {
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Fault is a way to misbehave.
type Fault string

// The faults.
const (
	Reject          Fault = "reject"           // refused for capacity (429), before any token
	ContextExceeded Fault = "context_exceeded" // refused as too long (400), before any token
	Fail            Fault = "error"            // an error frame (500)
	Break           Fault = "break"            // done without a finish reason
	Die             Fault = "die"              // the process exits
	Hang            Fault = "hang"             // nothing more, and deaf to cancel
	Malformed       Fault = "malformed_frame"  // a line that is not a frame
	Oversize        Fault = "oversize_frame"   // a line over the limit
	WrongID         Fault = "wrong_id"         // a frame for another request
	DeltaAfterDone  Fault = "delta_after_done" // one more piece after the end
	DieAfterDone    Fault = "die_after_done"   // the process exits between requests
)

var faults = []Fault{"", Reject, ContextExceeded, Fail, Break, Die, Hang, Malformed, Oversize, WrongID, DeltaAfterDone, DieAfterDone}

// Load reads a script from a file.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", path, err)
	}
	return s, nil
}

// Parse reads a script strictly and reports all that is wrong with it.
func Parse(data []byte) (*Script, error) {
	s := new(Script)
	if err := jsonfile.Decode(data, s); err != nil {
		return nil, err
	}
	var errs []error
	if !slices.Contains([]StartMode{"", StartFatal, StartDie, StartDieLate, StartHang, StartBadHello}, s.Start.Mode) {
		errs = append(errs, fmt.Errorf("start: unknown mode %q", s.Start.Mode))
	}
	if s.Start.DelayMS < 0 {
		errs = append(errs, errors.New("start: delay_ms is negative"))
	}
	if p := s.Offers.Protocol; p < 0 || p > worker.Version {
		errs = append(errs, fmt.Errorf("offers: there is no protocol %d", p))
	}
	if s.Offers.MaxContext < 0 {
		errs = append(errs, errors.New("offers: max_context is negative"))
	}
	errs = append(errs, s.Default.check("default"))
	for i, rule := range s.Rules {
		where := fmt.Sprintf("rules[%d]", i)
		if _, err := parseOrdinals(rule.When.Requests); err != nil {
			errs = append(errs, fmt.Errorf("%s.when: %w", where, err))
		}
		if rule.When == (When{}) {
			errs = append(errs, fmt.Errorf("%s.when is empty; what applies always belongs into default", where))
		}
		errs = append(errs, rule.Do.check(where+".do"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

func (b *Behaviour) check(where string) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(where+": "+format, args...))
	}
	if !slices.Contains(faults, b.Fault) {
		bad("unknown fault %q, not one of %q", b.Fault, faults[1:])
	}
	if b.Tokens != nil && b.TokensHex != nil || (b.Tokens != nil || b.TokensHex != nil) && b.Count != nil {
		bad("tokens, tokens_hex and count exclude each other")
	}
	if slices.Contains(b.Tokens, "") || slices.Contains(b.TokensHex, "") {
		bad("tokens has an empty one")
	}
	for _, digits := range b.TokensHex {
		if _, err := hex.DecodeString(digits); err != nil {
			bad("tokens_hex: %q: %v", digits, err)
		}
	}
	if b.Count != nil && *b.Count < 0 || b.After < 0 || b.FirstDelayMS < 0 || b.TokenDelayMS < 0 {
		bad("count, after and delays must not be negative")
	}
	for _, n := range []*int64{b.PromptTokens, b.CachedTokens, b.WallMS} {
		if n != nil && *n < 0 {
			bad("token counts and wall_ms must not be negative")
		}
	}
	if b.Error != (Error{}) && b.Fault != Reject && b.Fault != Fail {
		bad("error belongs to the faults %q and %q", Reject, Fail)
	}
	if s := b.Error.Status; s != 0 && (s < 400 || s > 599) {
		bad("error.status %d is not between 400 and 599", s)
	}
	return errors.Join(errs...)
}

// choose returns the behaviour for a request.
func (s *Script) choose(ordinal int, prompt string) *Behaviour {
	for i := range s.Rules {
		w := s.Rules[i].When
		if applies, err := parseOrdinals(w.Requests); err == nil && applies(ordinal) && strings.Contains(prompt, w.Prompt) {
			return &s.Rules[i].Do
		}
	}
	return &s.Default
}

// parseOrdinals reads "", "3", "2-5", "4-" or "every 3".
func parseOrdinals(text string) (func(int) bool, error) {
	if text == "" {
		return func(int) bool { return true }, nil
	}
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return 0
		}
		return n
	}
	if step, ok := strings.CutPrefix(text, "every "); ok {
		if n := number(step); n > 0 {
			return func(i int) bool { return i%n == 0 }, nil
		}
	} else if from, to, ok := strings.Cut(text, "-"); ok {
		first, last := number(from), number(to)
		if first > 0 && (to == "" || last >= first) {
			return func(i int) bool { return i >= first && (to == "" || i <= last) }, nil
		}
	} else if n := number(text); n > 0 {
		return func(i int) bool { return i == n }, nil
	}
	return nil, fmt.Errorf(`requests %q is not "3", "2-5", "4-" or "every 3" with numbers from 1`, text)
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
