package conversations

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"assay/rules/internal/dataset"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/jsonl"
)

// sourceLine is a line of the source file; docs/multiturn.md describes it.
type sourceLine struct {
	ID    string       `json:"id"`
	Turns []sourceTurn `json:"turns"`
}

type sourceTurn struct {
	Role string `json:"role"`
	Text string `json:"text"`
	// MaxTokens, ThinkMS and DependsOn are the user's.
	MaxTokens *int64   `json:"max_tokens"`
	ThinkMS   *float64 `json:"think_ms"`
	DependsOn []int64  `json:"depends_on"`
}

// Roles of turns.
const (
	system    = "system"
	user      = "user"
	assistant = "assistant"
)

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// maxThinkMS is an hour: more is a mistake of the unit.
const maxThinkMS = 3_600_000

// located is a conversation and the line that it is on.
type located struct {
	dataset.Conversation
	line int
}

// parse reads a source file and reports all that is wrong in it, with the line.
func parse(file string, data []byte) ([]located, error) {
	p := parser{file: file, lines: map[string]int{}}
	for line := range bytes.Lines(data) {
		p.line++
		p.read(bytes.TrimRight(line, "\r\n"))
	}
	if p.line == 0 {
		p.bad("the file is empty; a conversation is a line")
	}
	if n := len(p.errs); n > mostErrors {
		p.errs = append(p.errs[:mostErrors:mostErrors], fmt.Errorf("%s: and %d more", file, n-mostErrors))
	}
	return p.all, errors.Join(p.errs...)
}

// mostErrors is how many mistakes of a file are told: of a file in quite another
// form every line is one.
const mostErrors = 100

type parser struct {
	file  string
	line  int
	lines map[string]int // of the ids
	all   []located
	errs  []error
}

func (p *parser) bad(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: "+format, append([]any{p.file, max(p.line, 1)}, args...)...))
}

func (p *parser) read(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		p.bad("the line is empty; a conversation is a line")
		return
	}
	// encoding/json would let repeated members and bad UTF-8 pass.
	var s jsonl.Scanner
	s.Reset(line)
	err := s.Skip()
	if err == nil {
		err = s.End()
	}
	var src sourceLine
	if err == nil {
		err = jsonfile.Decode(line, &src)
	}
	if err != nil {
		p.bad("%w", err)
		return
	}
	before := len(p.errs)
	if !idForm.MatchString(src.ID) {
		p.bad("id %.80q: an id has up to 64 letters, digits, '.', '_' and '-', and begins with a letter or digit", src.ID)
	} else if first, ok := p.lines[src.ID]; ok {
		p.bad("conversation %q is on line %d already", src.ID, first)
	} else {
		p.lines[src.ID] = p.line
	}
	c := p.turns(src)
	if len(p.errs) == before {
		p.all = append(p.all, located{c, p.line})
	}
}

// turns checks roles and order: a system turn first or none, then user and
// assistant by turns.
func (p *parser) turns(src sourceLine) dataset.Conversation {
	c := dataset.Conversation{ID: src.ID}
	if len(src.Turns) == 0 {
		p.bad("conversation %q is empty", src.ID)
		return c
	}
	last := "" // role of the turn before
	for i, t := range src.Turns {
		at := fmt.Sprintf("conversation %q, turns[%d]", src.ID, i)
		bad := func(format string, args ...any) { p.bad("%s: "+format, append([]any{at}, args...)...) }
		if t.Role != user && (t.MaxTokens != nil || t.ThinkMS != nil || t.DependsOn != nil) {
			bad("max_tokens, think_ms and depends_on belong to turns of the role %q", user)
		}
		if t.Role != assistant && strings.TrimSpace(t.Text) == "" {
			bad("a turn of the role %q needs a text", t.Role)
		}
		switch {
		case t.Role == system && i > 0:
			bad("a system turn in the middle: it can only come first, and holds for the whole conversation")
			continue // what is around it may be right
		case t.Role == system:
			c.System = t.Text
		case t.Role == user && last == user:
			bad("two user turns in a row: the reply between them is missing; put {\"role\": %q} where the live reply comes, or make them one turn", assistant)
		case t.Role == user:
			// in order
		case t.Role == assistant && last != user:
			bad("a reply without a user turn before it")
		case t.Role == assistant && t.Text != "":
			bad("the live reply stands here, and a recorded one would not be sent; leave out its text")
		case t.Role == assistant:
		default:
			bad("role %.40q is none of %q", t.Role, []string{system, user, assistant})
			continue
		}
		if t.Role == user {
			c.Turns = append(c.Turns, userTurn(t, int64(len(c.Turns)), bad))
		}
		last = t.Role
	}
	if len(c.Turns) == 0 {
		p.bad("conversation %q has no user turn, so there is nothing to ask", src.ID)
	}
	return c
}

// userTurn is the user's turn n, from 0.
func userTurn(t sourceTurn, n int64, bad func(string, ...any)) dataset.Turn {
	turn := dataset.Turn{Text: t.Text, DependsOn: t.DependsOn}
	switch {
	case t.MaxTokens == nil:
		bad("max_tokens is missing: the most tokens of the answer")
	case *t.MaxTokens < 1 || *t.MaxTokens > 1<<20:
		bad("max_tokens %d is not from 1 to %d", *t.MaxTokens, 1<<20)
	default:
		turn.MaxTokens = *t.MaxTokens
	}
	if ms := t.ThinkMS; ms != nil {
		switch {
		case n == 0:
			bad("think_ms before the first turn: nothing was answered yet that the user could think about")
		case !(*ms >= 0 && *ms <= maxThinkMS):
			bad("think_ms %v is not from 0 to %d, an hour; it is in milliseconds", *ms, maxThinkMS)
		default:
			turn.DelayMS = int64(*ms + 0.5)
		}
	}
	for i, on := range t.DependsOn {
		if on < 0 || on >= n || slices.Contains(t.DependsOn[:i], on) {
			bad("depends_on %d: it names earlier user turns, once each, counted from 0; this is turn %d", on, n)
		}
	}
	return turn
}
