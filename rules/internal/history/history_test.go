package history_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/dataset"
	"assay/rules/internal/history"
	"assay/rules/internal/ledger"
)

var chats = []dataset.Conversation{
	{ID: "a", System: "Be brief.", Turns: []dataset.Turn{{Text: "I am Ada."}, {Text: "Who am I?", DependsOn: []int64{0}}, {Text: "Thanks."}}},
	{ID: "b", Turns: []dataset.Turn{{Text: "Hi."}, {Text: "<&> “ü” \u2028"}}},
}

// request is a turn as client and server have it.
type request struct {
	entry ledger.Entry
	reply string
}

// story is a run in which nothing is wrong, to be spoiled by a test: both
// conversations, turn by turn, each answered with "re: " and its text.
type story []*request

func clean(t *testing.T) story {
	var s story
	offset := int64(0)
	for _, c := range chats {
		var past []history.Message
		if c.System != "" {
			past = append(past, history.Message{Role: "system", Content: c.System})
		}
		for n, turn := range c.Turns {
			past = append(past, history.Message{Role: "user", Content: turn.Text})
			r := &request{reply: "re: " + turn.Text}
			start, end := offset, offset+50
			offset += 100
			r.entry = ledger.Entry{
				Phase: ledger.Measured, Class: ledger.Completed, RequestID: fmt.Sprintf("%s/%d", c.ID, n),
				Place: ledger.Place{Conversation: c.ID, Turn: int64(n)}, CorrelationID: "x-" + c.ID,
				Client: &ledger.Client{StartNS: &start, EndNS: &end, AIPerfSuccess: true, PromptSHA256: sum(t, past)},
				Server: &ledger.Server{PromptSHA256: sum(t, past), TextSHA256: hash(r.reply)},
			}
			past = append(past, history.Message{Role: "assistant", Content: r.reply})
			s = append(s, r)
		}
	}
	return s
}

func sum(t *testing.T, messages []history.Message) string {
	t.Helper()
	sum, err := history.SHA256(messages)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// sent makes both sides agree on other messages.
func (r *request) sent(digest string) {
	r.entry.Client.PromptSHA256, r.entry.Server.PromptSHA256 = digest, digest
}

// look returns what was found, as "code severity id: detail".
func (s story) look(removed bool, judge history.Judge) []string {
	c := history.New(chats, removed, judge)
	for _, r := range s {
		c.Reply(&aiperf.Request{ID: r.entry.RequestID, Response: aiperf.Response{Text: r.reply}})
	}
	var all []string
	found := func(code ledger.Code, severity ledger.Severity, id, detail string, args ...any) {
		all = append(all, fmt.Sprintf("%s %s %s: ", code, severity, id)+fmt.Sprintf(detail, args...))
	}
	for _, r := range s {
		c.Look(&r.entry, found)
	}
	c.End(found)
	return all
}

// The digest is that of the canonical form, whatever JSON the messages come in.
func TestDigestIsThatOfTheCanonicalForm(t *testing.T) {
	got := sum(t, []history.Message{{Role: "user", Content: "<&> “ü”\n"}})
	if want := hash(`[{"content":"<&> “ü”\n","role":"user"}]`); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestHistory(t *testing.T) {
	user := func(text string) history.Message { return history.Message{Role: "user", Content: text} }
	assistant := func(text string) history.Message { return history.Message{Role: "assistant", Content: text} }
	system := history.Message{Role: "system", Content: "Be brief."}
	for _, c := range []struct {
		name  string
		spoil func(story)
		want  []string
		// of a/0, a/1, a/2, b/0, b/1; upper case with a gap
		messages string
	}{
		{"nothing", func(story) {}, nil, "eeeee"},
		{"the history was left out", func(s story) { s[1].sent(sum(t, []history.Message{system, user("Who am I?")})) },
			[]string{`history_differs blocking a/1: conversation "a", turn 1: the server received the turn alone, without the turns before it; the load generator sent them so`}, "edeee"},
		{"the history begins in the middle", func(s story) {
			s[2].sent(sum(t, []history.Message{system, user("Who am I?"), assistant("re: Who am I?"), user("Thanks.")}))
		}, []string{`history_differs blocking a/2: conversation "a", turn 2: the server received its history from turn 1 on, without the turns before that; the load generator sent them so`}, "eedee"},
		{"a proxy cut the history", func(s story) {
			s[2].entry.Server.PromptSHA256 = sum(t, []history.Message{system, user("I am Ada."), user("Who am I?"), user("Thanks.")})
		}, []string{`history_differs blocking a/2: conversation "a", turn 2: the server received the earlier turns without their replies; the load generator sent others, so they were changed on the way`}, "eedee"},
		{"the system turn was left out", func(s story) { s[0].sent(sum(t, []history.Message{user("I am Ada.")})) },
			[]string{`history_differs blocking a/0: conversation "a", turn 0: the server received the history without its system turn; the load generator sent them so`}, "deeee"},
		{"another reply is in the history", func(s story) {
			s[4].sent(sum(t, []history.Message{user("Hi."), assistant("made up"), user("<&> “ü” \u2028")}))
		}, []string{`history_differs blocking b/1: conversation "b", turn 1: the server received other messages than those of the data set and the replies before it; the load generator sent them so`}, "eeeed"},
		{"roles were exchanged", func(s story) {
			s[4].sent(sum(t, []history.Message{assistant("Hi."), user("re: Hi."), user("<&> “ü” \u2028")}))
		}, []string{`history_differs blocking b/1: conversation "b", turn 1: the server received other messages than those of the data set and the replies before it; the load generator sent them so`}, "eeeed"},
		{"the client received another reply than the server gave", func(s story) { s[3].entry.Server.TextSHA256 = hash("native") },
			[]string{`history_differs warning b/1: conversation "b", turn 1: a reply in its history is not confirmed by the server's record, so what it must have been is not known`}, "eeeeu"},
		{"an old record", func(s story) { s[3].entry.Server.PromptSHA256 = "" },
			[]string{`history_differs warning b/0: conversation "b", turn 0: no record of the server tells which messages it received`}, "eeeue"},
		{"a turn failed", func(s story) {
			s[1].entry.Class, s[1].entry.Client.AIPerfSuccess, s[1].reply = ledger.Failed, false, ""
			s[2].sent(sum(t, []history.Message{system, user("I am Ada."), assistant("re: I am Ada."), user("Who am I?"), user("Thanks.")}))
		}, []string{`history_gap warning a/2: conversation "a", turn 2: turn 1 ended as failed, so its history has no whole reply there`}, "eeEee"},
		{"a stream broke off, and AIPerf took it for an answer", func(s story) {
			s[1].entry.Class, s[1].reply = ledger.Failed, "re: Wh"
			s[1].entry.Server.TextSHA256 = hash("re: Wh")
			s[2].sent(sum(t, []history.Message{system, user("I am Ada."), assistant("re: I am Ada."), user("Who am I?"), assistant("re: Wh"), user("Thanks.")}))
		}, []string{`history_gap warning a/2: conversation "a", turn 2: turn 1 ended as failed, so its history has no whole reply there`}, "eeEee"},
		{"refused as too long", func(s story) {
			s[2].entry.Class, s[2].entry.Client.AIPerfSuccess, s[2].reply = ledger.Invalid, false, ""
		}, nil, "eeeee"},
		{"a turn is missing", func(s story) { s[1].entry.Client = nil }, []string{
			`turn_order blocking a/2: conversation "a", turn 2: turn 1 was to come now`,
			`history_gap warning a/2: conversation "a", turn 2: turn 1 was not seen, so its history has no whole reply there`,
			`history_differs warning a/2: conversation "a", turn 2: a reply in its history is not confirmed by the server's record, so what it must have been is not known`,
		}, "e-Uee"},
		{"a turn overtook the one before", func(s story) { *s[1].entry.Client.StartNS = 20 },
			[]string{`turn_order blocking a/1: conversation "a", turn 1: it was dispatched 0.000 ms before the answer to the turn before had ended`}, "eeeee"},
		{"one id for two conversations", func(s story) { s[3].entry.CorrelationID, s[4].entry.CorrelationID = "x-a", "x-b" }, []string{
			`turn_order blocking b/0: conversation "b", turn 0: its correlation id x-a is that of conversation "a"`,
			`turn_order blocking b/1: conversation "b", turn 1: its correlation id is x-b, that of the turns before x-a`,
			`turn_order blocking b/1: conversation "b", turn 1: turn 0 was to come now`,
			`history_gap warning b/1: conversation "b", turn 1: turn 0 was not seen, so its history has no whole reply there`,
			`history_differs warning b/1: conversation "b", turn 1: a reply in its history is not confirmed by the server's record, so what it must have been is not known`,
		}, "eeeeU"},
		{"what no data set has", func(s story) { s[3].entry.Place.Conversation, s[4].entry.Place.Turn = "c", 9 }, []string{
			`turn_order blocking b/0: conversation "c", turn 0 is not in the data set`,
			`turn_order blocking b/1: conversation "b", turn 9 is not in the data set`,
		}, "eee--"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := clean(t)
			c.spoil(s)
			if got := s.look(false, nil); !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			got := ""
			for _, r := range s {
				word := "-"
				if h := r.entry.History; h != nil {
					word = string(h.Messages[0])
					if h.Gap {
						word = strings.ToUpper(word)
					}
				}
				got += word
			}
			if got != c.messages {
				t.Errorf("messages %s, want %s", got, c.messages)
			}
		})
	}
}

// A run that was to send no history must not have sent one.
func TestRemoved(t *testing.T) {
	s := clean(t)[3:]
	want := []string{`history_differs blocking b/1: conversation "b", turn 1: the server received the history that was to be removed; the load generator sent them so`}
	if got := s.look(true, nil); !slices.Equal(got, want) {
		t.Errorf("found %q", got)
	}
	s = clean(t)[3:]
	s[1].sent(sum(t, []history.Message{{Role: "user", Content: "<&> “ü” \u2028"}}))
	if got := s.look(true, nil); got != nil || s[1].entry.History.Messages != ledger.Equal {
		t.Errorf("found %q, %+v", got, s[1].entry.History)
	}
}

// asked is a judge that finds everything wrong.
type asked struct{ turns []string }

func (a *asked) Judge(conversation string, turn int64, prompt, answer string) (word, why string) {
	a.turns = append(a.turns, fmt.Sprintf("%s/%d %.4s %s", conversation, turn, prompt, answer))
	return history.Wrong, "parts"
}

func (a *asked) End(found ledger.Found) {
	found(ledger.HistoryAnswers, ledger.Blocking, "", "all wrong")
}

// Only answers that depend on the history are judged, with the messages that the
// server received.
func TestAnswersAreJudged(t *testing.T) {
	s, judge := clean(t), &asked{}
	got := s.look(false, judge)
	want := []string{`history_answers blocking a/1: conversation "a", turn 1: parts`, "history_answers blocking : all wrong"}
	if !slices.Equal(got, want) || s[1].entry.History.Answer != history.Wrong || s[2].entry.History.Answer != "" {
		t.Errorf("found %q", got)
	}
	if want := []string{fmt.Sprintf("a/1 %.4s re: Who am I?", s[1].entry.Server.PromptSHA256)}; !slices.Equal(judge.turns, want) {
		t.Errorf("judged %q, want %q", judge.turns, want)
	}
}
