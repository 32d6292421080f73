// Package history follows the conversations of a run through its ledger: were the
// turns sent one after the other, and did the server see, with every turn, the
// history that its conversation had by then?
//
// That history is rebuilt from the data set and from the replies to the turns
// before. A reply counts if its digest is the one that the server recorded of its
// own text. What the load generator put into its request is never used: it is
// what is judged.
package history

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gowebpki/jcs"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/dataset"
	"assay/rules/internal/ledger"
)

// Message is one of a conversation, in OpenAI's form.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// SHA256 is the hex digest of messages in canonical form (RFC 8785), as the
// server's record has it of a prompt.
func SHA256(messages []Message) (string, error) {
	data, err := json.Marshal(messages)
	if err == nil {
		data, err = jcs.Transform(data)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// Judge says what an answer is worth by a reference for its history: a word for
// the ledger and a reason, or "" if there is no reference. prompt is the digest of
// the messages that the server received.
type Judge interface {
	Judge(conversation string, turn int64, prompt, answer string) (word, why string)
}

// Words of a Judge.
const (
	Equal   = "equal"
	NearTie = "near_tie" // parted where the reference was nearly undecided
	Wrong   = "wrong"
)

// Check follows the conversations of one sample. It is a [ledger.Inspector]:
// Reply takes what was received before the ledger is closed.
type Check struct {
	all     map[string]dataset.Conversation
	removed bool
	judge   Judge // nil for none
	replies map[string]reply
	threads map[string]*thread // by correlation id
	owner   map[string]string  // correlation id, by phase and conversation
}

// reply is what the client received.
type reply struct {
	text      string
	ambiguous bool
}

// thread is one instance of a conversation, as far as it has come.
type thread struct {
	conversation string
	past         []turn
	next         int64
	end          *int64 // of the last answer, as an offset
}

// turn is what became of a turn.
type turn struct {
	reply   string // "" if the history goes on without one
	whole   bool
	unknown bool // the reply is not confirmed by the server
	class   ledger.Class
}

// New returns a Check of the conversations of a data set. removed says that each
// turn was to be sent without those before it.
func New(conversations []dataset.Conversation, removed bool, judge Judge) *Check {
	c := &Check{
		all: map[string]dataset.Conversation{}, removed: removed, judge: judge,
		replies: map[string]reply{}, threads: map[string]*thread{}, owner: map[string]string{},
	}
	for _, conversation := range conversations {
		c.all[conversation.ID] = conversation
	}
	return c
}

// Reply keeps what the client received.
func (c *Check) Reply(r *aiperf.Request) {
	_, again := c.replies[r.ID]
	c.replies[r.ID] = reply{strings.Clone(r.Response.Text), again}
}

// Look compares what the server received with what it must have been, and sets
// the entry's History.
func (c *Check) Look(e *ledger.Entry, found ledger.Found) {
	if e.Phase == ledger.Probe || e.Client == nil {
		return // no conversation, or not known to be a turn of one
	}
	at := fmt.Sprintf("conversation %q, turn %d", e.Place.Conversation, e.Place.Turn)
	conversation, ok := c.all[e.Place.Conversation]
	if !ok || e.Place.Turn < 0 || e.Place.Turn >= int64(len(conversation.Turns)) {
		found(ledger.TurnOrder, ledger.Blocking, e.RequestID, "%s is not in the data set", at)
		return
	}
	t := c.thread(e, at, found)
	e.History = &ledger.History{Messages: ledger.Unknown}
	known := true
	if !c.removed {
		known = c.gaps(t, e, at, found)
	}
	if known {
		c.compare(conversation, t, e, at, found)
	}
	c.answer(t, e)
	// Answers of the warm-up are in no figure.
	if c.judge != nil && e.Phase == ledger.Measured && e.Server != nil && e.Class == ledger.Completed && len(conversation.Turns[e.Place.Turn].DependsOn) > 0 {
		var why string
		e.History.Answer, why = c.judge.Judge(conversation.ID, e.Place.Turn, e.Server.PromptSHA256, c.replies[e.RequestID].text)
		if e.History.Answer == Wrong {
			found(ledger.HistoryAnswers, ledger.Blocking, e.RequestID, "%s: %s", at, why)
		}
	}
}

// thread finds the instance that a request belongs to, and checks its place in it.
func (c *Check) thread(e *ledger.Entry, at string, found ledger.Found) *thread {
	bad := func(format string, args ...any) {
		found(ledger.TurnOrder, ledger.Blocking, e.RequestID, "%s: "+format, append([]any{at}, args...)...)
	}
	key := string(e.Phase) + " " + e.Place.Conversation
	id := e.CorrelationID
	if id == "" {
		bad("it has no correlation id")
		id = key
	}
	if owner, ok := c.owner[key]; !ok {
		c.owner[key] = id
	} else if owner != id {
		bad("its correlation id is %s, that of the turns before %s", id, owner)
	}
	t := c.threads[id]
	if t == nil {
		t = &thread{conversation: e.Place.Conversation}
		c.threads[id] = t
	}
	switch {
	case t.conversation != e.Place.Conversation:
		bad("its correlation id %s is that of conversation %q", id, t.conversation)
		t = &thread{conversation: e.Place.Conversation}
	case e.Place.Turn != t.next:
		bad("turn %d was to come now", t.next)
	case t.end != nil && e.Client.StartNS != nil && *e.Client.StartNS < *t.end:
		bad("it was dispatched %.3f ms before the answer to the turn before had ended", float64(*t.end-*e.Client.StartNS)/1e6)
	}
	return t
}

// gaps reports what the history lacks, and says whether all of it is known.
func (c *Check) gaps(t *thread, e *ledger.Entry, at string, found ledger.Found) (known bool) {
	known = true
	for n := range e.Place.Turn {
		past := turn{unknown: true}
		if n < int64(len(t.past)) {
			past = t.past[n]
		}
		if !past.whole && !e.History.Gap {
			e.History.Gap = true
			how := "was not seen"
			if past.class != "" {
				how = "ended as " + string(past.class)
			}
			found(ledger.HistoryGap, ledger.Warning, e.RequestID, "%s: turn %d %s, so its history has no whole reply there", at, n, how)
		}
		known = known && !past.unknown
	}
	if !known {
		found(ledger.HistoryDiffers, ledger.Warning, e.RequestID, "%s: a reply in its history is not confirmed by the server's record, so what it must have been is not known", at)
	}
	return known
}

// compare compares digests, and says what kind of difference there is.
func (c *Check) compare(conversation dataset.Conversation, t *thread, e *ledger.Entry, at string, found ledger.Found) {
	if e.Server == nil || e.Server.PromptSHA256 == "" {
		if e.Class == ledger.Completed {
			found(ledger.HistoryDiffers, ledger.Warning, e.RequestID, "%s: no record of the server tells which messages it received", at)
		}
		return
	}
	n := e.Place.Turn
	right := form{system: true, replies: true}
	if c.removed {
		right.from = n
	}
	is := func(f form) bool { return f.digest(conversation, t, n) == e.Server.PromptSHA256 }
	if is(right) {
		e.History.Messages = ledger.Equal
		return
	}
	e.History.Messages = ledger.Different
	what := "other messages than those of the data set and the replies before it"
	for _, f := range others(n, conversation.System != "") {
		if is(f) {
			what = f.what
			break
		}
	}
	by := "the load generator sent them so"
	if e.Client.PromptSHA256 != e.Server.PromptSHA256 {
		by = "the load generator sent others, so they were changed on the way"
	}
	found(ledger.HistoryDiffers, ledger.Blocking, e.RequestID, "%s: the server received %s; %s", at, what, by)
}

// form is a way to put the history of a turn together: from one of the turns before
// it, or from itself.
type form struct {
	system, replies bool
	from            int64
	what            string
}

// mostShorter bounds the shorter histories that are tried.
const mostShorter = 64

// others are the wrong forms that can be told apart.
func others(n int64, system bool) []form {
	list := []form{{true, true, 0, "the history that was to be removed"}} // of a run that was to send none
	if n > 0 {
		list = append(list,
			form{true, false, 0, "the earlier turns without their replies"},
			form{true, true, n, "the turn alone, without the turns before it"})
	}
	for from := n - 1; from > max(0, n-mostShorter); from-- {
		list = append(list, form{true, true, from, fmt.Sprintf("its history from turn %d on, without the turns before that", from)})
	}
	if system {
		list = append(list, form{false, true, 0, "the history without its system turn"})
		if n > 0 {
			list = append(list, form{false, true, n, "the turn alone, without the turns before it and without its system turn"})
		}
	}
	return list
}

func (f form) digest(conversation dataset.Conversation, t *thread, n int64) string {
	var list []Message
	if f.system && conversation.System != "" {
		list = append(list, Message{"system", conversation.System})
	}
	for k := f.from; k < n; k++ {
		list = append(list, Message{"user", conversation.Turns[k].Text})
		if f.replies && k < int64(len(t.past)) && t.past[k].reply != "" {
			list = append(list, Message{"assistant", t.past[k].reply})
		}
	}
	list = append(list, Message{"user", conversation.Turns[n].Text})
	sum, err := SHA256(list)
	if err != nil {
		return "none" // equal to no digest
	}
	return sum
}

// answer keeps what became of a turn, for those after it. AIPerf puts into the
// history what it takes for an answer, also a stream that broke off, and nothing
// for a request that failed.
func (c *Check) answer(t *thread, e *ledger.Entry) {
	r := c.replies[e.RequestID]
	now := turn{class: e.Class, whole: e.Class == ledger.Completed || e.Class == ledger.PromptTruncated}
	if e.Client.AIPerfSuccess {
		now.reply = r.text
		sum := sha256.Sum256([]byte(r.text))
		now.unknown = r.ambiguous || e.Server == nil || !strings.EqualFold(e.Server.TextSHA256, hex.EncodeToString(sum[:]))
	}
	for int64(len(t.past)) < e.Place.Turn {
		t.past = append(t.past, turn{unknown: true})
	}
	t.past = append(t.past[:e.Place.Turn], now)
	t.next, t.end = e.Place.Turn+1, e.Client.EndNS
}

// End implements ledger.Inspector.
func (c *Check) End(found ledger.Found) {
	if j, ok := c.judge.(interface{ End(ledger.Found) }); ok {
		j.End(found)
	}
}
