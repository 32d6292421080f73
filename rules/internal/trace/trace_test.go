package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func rows(times ...string) string {
	var b strings.Builder
	for _, at := range times {
		fmt.Fprintf(&b, `{"timestamp": %s, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}`+"\n", at)
	}
	return b.String()
}

func arrivals(t *testing.T, text, format string, unit Unit) []time.Duration {
	t.Helper()
	rows, err := Read(strings.NewReader(text), "trace", format, unit)
	if err != nil {
		t.Fatal(err)
	}
	return Arrivals(rows)
}

// A public tool took milliseconds for seconds, and an hour became 41 days.
func TestO11TimeUnit(t *testing.T) {
	mooncake := rows("0", "3000", "6000")
	at := arrivals(t, mooncake, Mooncake, Milliseconds)
	if Span(at) != 6*time.Second {
		t.Fatalf("span %s", Span(at))
	}
	if err := Check("trace.jsonl", at, Milliseconds, true); err != nil {
		t.Error(err)
	}
	want := "trace.jsonl: 3 rows in seconds span 6000 s, 0.00033 requests/s, which is not between 0.1 and 100; in milliseconds they span 6 s, 0.33 requests/s: is the unit right?"
	if err := Check("trace.jsonl", arrivals(t, mooncake, Mooncake, Seconds), Seconds, true); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}

	if at := arrivals(t, rows("61.114", "62.5"), Mooncake, Seconds); at[0] != 61_114*time.Millisecond {
		t.Errorf("%v", at)
	}
	// 100 rows in 50 s, taken for 50 ms: the other way round.
	var text []string
	for i := range 100 {
		text = append(text, fmt.Sprintf("%d.5", i/2))
	}
	at = arrivals(t, rows(text...), Mooncake, Milliseconds)
	if err := Check("b.jsonl", at, Milliseconds, true); err == nil || !strings.Contains(err.Error(), "2e+03 requests/s") || !strings.Contains(err.Error(), "in seconds they span 49 s, 2 requests/s") {
		t.Errorf("%v", err)
	}

	at = arrivals(t, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,374,44\r\n2023-11-16 18:17:03.9799601,1,2\r\n2023-11-16 18:17:04.0,3,4", Azure, Milliseconds)
	if want := []time.Duration{0, 100 * time.Nanosecond, 20_040_000 * time.Nanosecond}; !slices.Equal(at, want) {
		t.Errorf("%v; want %v", at, want)
	}
	if err := Check("azure.csv", []time.Duration{0, time.Millisecond}, Milliseconds, false); err == nil || strings.Contains(err.Error(), "unit") {
		t.Errorf("two requests in 1 ms: %v", err)
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		unit Unit
		text string
		want time.Duration
	}{
		{Milliseconds, "0", 0},
		{Milliseconds, "3000", 3 * time.Second},
		{Milliseconds, "0.000001", 1},
		{Seconds, "0.1", 100 * time.Millisecond}, // which no binary fraction is
		{Seconds, "3536.999", 3_536_999 * time.Millisecond},
		{Seconds, "1.1234567890000", 1_123_456_789},
		{Seconds, "007", 7 * time.Second},
	} {
		if got, err := c.unit.Parse(c.text); err != nil || got != c.want {
			t.Errorf("%s %s: %s, %v", c.text, c.unit, got, err)
		}
	}
	for _, text := range []string{"", ".", ".5", "-1", "+1", "1e3", "x", "1.x", "1.2.3", "1.-2", "0.0000000001", "99999999999999999999", "1_000"} {
		if got, err := Seconds.Parse(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}

func TestCheckAtItsLimits(t *testing.T) {
	every := func(d time.Duration) (arrivals []time.Duration) {
		for i := range 11 {
			arrivals = append(arrivals, time.Duration(10-i)*d) // the order does not matter
		}
		return arrivals
	}
	for d, ok := range map[time.Duration]bool{
		10 * time.Second: true, 10*time.Second + 1: false, // 0.1 requests/s
		10 * time.Millisecond: true, 10*time.Millisecond - 1: false, // 100
		0: true, // a burst has no rate
	} {
		if err := Check("t", every(d), Seconds, true); (err == nil) != ok {
			t.Errorf("every %s: %v", d, err)
		}
	}
	if Check("t", nil, Seconds, true) != nil || Check("t", []time.Duration{1}, Seconds, true) != nil {
		t.Error("one row has no rate")
	}
}

func TestFaultsAreNamed(t *testing.T) {
	row := func(members string) string { return "{" + members + "}" }
	const good = `"timestamp":1,"input_length":600,"output_length":5,"hash_ids":[0,1]`
	for text, want := range map[string]string{
		rows("0") + "{}\n":               "t:2: timestamp is missing\nt:2: input_length is missing\nt:2: output_length is missing\nt:2: hash_ids is missing",
		rows("0", `"3"`):                 "t:2: column 15: ",
		rows("1e3"):                      `t:1: timestamp: "1e3" is no number`,
		rows("-1"):                       `t:1: timestamp: "-1" is no number`,
		rows("0") + `{"timestamp":1,"ti`: "t:2: the row ends too early",
		`{"timestamp":1,"timestamp":2}`:  "is there twice",
		"":                               "t: there are no rows",
		"\n\n":                           "t: there are no rows",
		"timestamp,input_length,output_length\n0,1,2":                  "t:1: column 1: ",
		row(strings.Replace(good, "600", "-5", 1)):                     "t:1: input_length: -5 is no number of tokens from 1 to 16777216",
		row(strings.Replace(good, "600", "0", 1)):                      "t:1: input_length: 0 is no number",
		row(strings.Replace(good, "600", "6e2", 1)):                    "t:1: input_length: 6e2 is no number",
		row(strings.Replace(good, "600", "16777217", 1)):               "t:1: input_length: 16777217 is no number",
		row(strings.Replace(good, ":5,", ":0,", 1)):                    "t:1: output_length: 0 is no number",
		row(strings.Replace(good, ":5,", ":99999999999999999999,", 1)): "t:1: output_length: 99999999999999999999 is no number",
		row(strings.Replace(good, "600", "1025", 1)):                   "t:1: 2 hash_ids for 1025 input tokens, which are 3 blocks of 512",
		row(strings.Replace(good, "[0,1]", "[0,-1]", 1)):               "t:1: hash_ids: -1 is negative",
		row(good + `,"chat_id":7`):                                     `t:1: member "chat_id" is not one of a Mooncake trace`,
		"[]\n" + row(good):                                             "t:1: column 1: ",
	} {
		if got, err := Read(strings.NewReader(text), "t", Mooncake, Milliseconds); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	const header = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
	for text, want := range map[string]string{
		"":     "t:1: the columns are []",
		header: "t: there are no rows",
		"ContextTokens,TIMESTAMP,GeneratedTokens\r\n1,2023-11-16 00:00:00,1": `t:1: the columns are ["ContextTokens" "TIMESTAMP" "GeneratedTokens"], those of an Azure trace are ["TIMESTAMP" `,
		header + "2023-11-16\r\n":                                     "t:2: 1 fields for 3 columns",
		header + "2023-13-16 00:00:00,1,1":                            "t:2: TIMESTAMP: ",
		header + "2023-11-16 00:00:00.1,1":                            "t:2: 2 fields", // torn
		header + "2023-11-16 00:00:00,-1,1e9":                         "t:2: ContextTokens: -1 is no number of tokens from 1 to 16777216\nt:2: GeneratedTokens: 1e9",
		header + "2023-11-16 00:00:00,1,1\r\n9999-11-16 00:00:00,1,1": "t:3: TIMESTAMP: 9999-11-16 00:00:00 is more than 8784h0m0s from the first row",
	} {
		if _, err := Read(strings.NewReader(text), "t", Azure, Milliseconds); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// All faults are told at once, up to a limit.
func TestFaultsAreCounted(t *testing.T) {
	var text strings.Builder
	for range 25 {
		text.WriteString("{\"timestamp\":0,\"input_length\":-1,\"output_length\":1,\"hash_ids\":[0]}\n")
	}
	_, err := Read(strings.NewReader(text.String()), "t", Mooncake, Milliseconds)
	if err == nil || strings.Count(err.Error(), "\n") != maxFaults || !strings.HasSuffix(err.Error(), "\nt: 5 more faults") {
		t.Errorf("%v", err)
	}
}

// A date that cannot be read is one fault, and does not make others of the rows beside it.
func TestBadDateIsOneFault(t *testing.T) {
	for _, text := range []string{"x,1,1\n2023-11-16 00:00:00,1,1\n2023-11-16 00:00:01,1,1", "2023-11-16 00:00:00,1,1\nx,1,1"} {
		_, err := Read(strings.NewReader("TIMESTAMP,ContextTokens,GeneratedTokens\n"+text), "t", Azure, Milliseconds)
		if err == nil || strings.Count(err.Error(), "t:") != 1 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Whatever the bytes, rows or a named fault.
func FuzzRead(f *testing.F) {
	f.Add(rows("0", "3000"))
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,374,44")
	f.Add(`{"timestamp":1e9,"input_length":1`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range Formats {
			rows, err := Read(strings.NewReader(text), "t", format, Milliseconds)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "t:") {
					t.Errorf("%s: %v", format, err)
				}
				continue
			}
			Check("t", Arrivals(rows), Milliseconds, true)
			p, err := New("t", rows, plain(1<<40))
			if err != nil {
				continue // out of order
			}
			for i, q := range p.Requests {
				if q.Input < 1 || q.Output < 1 || i > 0 && q.At < p.Requests[i-1].At {
					t.Errorf("%s: request %d: %+v", format, i, q)
				}
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("61.114")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := Seconds.Parse(text); err == nil && d < 0 {
			t.Errorf("%q is %s", text, d)
		}
	})
}
