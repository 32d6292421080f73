package conversations

import (
	"strings"
	"testing"
)

// Everything that is wrong is reported at once, each with its line.
func TestParseReportsEverything(t *testing.T) {
	const data = `{"id":"good","turns":[{"role":"system","text":"s"},{"role":"user","text":"a","max_tokens":4},{"role":"assistant"},{"role":"user","text":"b","max_tokens":4,"think_ms":250.6,"depends_on":[0]},{"role":"assistant"}]}
{"id":"no-user","turns":[{"role":"system","text":"s"}]}
{"id":"two","turns":[{"role":"user","text":"a","max_tokens":4},{"role":"user","text":"b","max_tokens":4}]}
{"id":"middle","turns":[{"role":"user","text":"a","max_tokens":4},{"role":"assistant"},{"role":"system","text":"s"},{"role":"user","text":"b","max_tokens":4}]}
{"id":"empty","turns":[]}
{"id":"good","turns":[{"role":"user","text":"a","max_tokens":4}]}
{"id":"reply-first","turns":[{"role":"assistant"},{"role":"user","text":"a","max_tokens":4}]}
{"id":"recorded","turns":[{"role":"user","text":"a","max_tokens":4},{"role":"assistant","text":"so?"}]}
{"id":"role","turns":[{"role":"human","text":"a"}]}
{"id":"limits","turns":[{"role":"user","text":" ","think_ms":5},{"role":"assistant"},{"role":"user","text":"b","max_tokens":0,"think_ms":-1,"depends_on":[1]},{"role":"assistant"},{"role":"user","text":"c","max_tokens":1,"think_ms":36000000,"depends_on":[0,0]}]}

{"id":"a %s","turns":[{"role":"user","text":"","max_tokens":4}]}
{"id":"typo","turns":[{"role":"user","text":"a","max_token":4}]}
{"id":"torn","turns":[{"role":"user"
{"id":"twice","id":"again","turns":[{"role":"user","text":"a","max_tokens":4}]}
`
	all, err := parse("chats.jsonl", []byte(data+"{\"id\":\"bytes\",\"turns\":[{\"role\":\"user\",\"text\":\"\xff\",\"max_tokens\":4}]}\n"))
	if len(all) != 1 || all[0].ID != "good" || all[0].System != "s" || len(all[0].Turns) != 2 || all[0].Turns[1].DelayMS != 251 {
		t.Errorf("read %+v", all)
	}
	want := []string{
		`chats.jsonl:2: conversation "no-user" has no user turn, so there is nothing to ask`,
		`chats.jsonl:3: conversation "two", turns[1]: two user turns in a row: the reply between them is missing; put {"role": "assistant"} where the live reply comes, or make them one turn`,
		`chats.jsonl:4: conversation "middle", turns[2]: a system turn in the middle: it can only come first, and holds for the whole conversation`,
		`chats.jsonl:5: conversation "empty" is empty`,
		`chats.jsonl:6: conversation "good" is on line 1 already`,
		`chats.jsonl:7: conversation "reply-first", turns[0]: a reply without a user turn before it`,
		`chats.jsonl:8: conversation "recorded", turns[1]: the live reply stands here, and a recorded one would not be sent; leave out its text`,
		`chats.jsonl:9: conversation "role", turns[0]: role "human" is none of ["system" "user" "assistant"]`,
		`chats.jsonl:9: conversation "role" has no user turn, so there is nothing to ask`,
		`chats.jsonl:10: conversation "limits", turns[0]: a turn of the role "user" needs a text`,
		`chats.jsonl:10: conversation "limits", turns[0]: max_tokens is missing: the most tokens of the answer`,
		`chats.jsonl:10: conversation "limits", turns[0]: think_ms before the first turn: nothing was answered yet that the user could think about`,
		`chats.jsonl:10: conversation "limits", turns[2]: max_tokens 0 is not from 1 to 1048576`,
		`chats.jsonl:10: conversation "limits", turns[2]: think_ms -1 is not from 0 to 3600000, an hour; it is in milliseconds`,
		`chats.jsonl:10: conversation "limits", turns[2]: depends_on 1: it names earlier user turns, once each, counted from 0; this is turn 1`,
		`chats.jsonl:10: conversation "limits", turns[4]: think_ms 3.6e+07 is not from 0 to 3600000, an hour; it is in milliseconds`,
		`chats.jsonl:10: conversation "limits", turns[4]: depends_on 0: it names earlier user turns, once each, counted from 0; this is turn 2`,
		`chats.jsonl:11: the line is empty; a conversation is a line`,
		`chats.jsonl:12: id "a %s": an id has up to 64 letters, digits, '.', '_' and '-', and begins with a letter or digit`,
		`chats.jsonl:12: conversation "a %s", turns[0]: a turn of the role "user" needs a text`,
		`chats.jsonl:13: at byte `,
		`chats.jsonl:14: `,
		`chats.jsonl:15: `,
		`chats.jsonl:16: `,
	}
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.Split(err.Error(), "\n")
	for i, line := range got {
		if i >= len(want) || !strings.HasPrefix(line, want[i]) {
			t.Errorf("error %d: %s", i, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d errors, want %d", len(got), len(want))
	}
}

// A file in another form is told in some lines, not in as many as it has.
func TestParseIsBrief(t *testing.T) {
	_, err := parse("f", []byte(strings.Repeat("[]\n", 1000)))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != mostErrors+1 || lines[mostErrors] != "f: and 900 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// What is accepted holds what the rule relies on; nothing panics.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":"a","turns":[{"role":"system","text":"s"},{"role":"user","text":"a","max_tokens":4},{"role":"assistant"},{"role":"user","text":"b","max_tokens":4,"think_ms":1e3,"depends_on":[0]}]}`))
	f.Add([]byte("{}\n\n[]\nnull\n{\"id\":\"a\",\"turns\":null}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parse("f", data)
		if err == nil && len(all) == 0 {
			t.Error("no error, and no conversation")
		}
		ids := map[string]bool{}
		for _, c := range all {
			if ids[c.ID] || len(c.Turns) == 0 {
				t.Errorf("%q is there twice, or has no turns", c.ID)
			}
			ids[c.ID] = true
			for n, turn := range c.Turns {
				if strings.TrimSpace(turn.Text) == "" || turn.MaxTokens < 1 || turn.DelayMS < 0 || turn.DelayMS > maxThinkMS || n == 0 && turn.DelayMS != 0 {
					t.Errorf("%q: %+v", c.ID, turn)
				}
			}
		}
	})
}
