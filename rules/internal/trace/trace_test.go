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
		fmt.Fprintf(&b, `{"timestamp": %s, "input_length": 10, "output_length": 5, "hash_ids": [0, 1]}`+"\n", at)
	}
	return b.String()
}

// A public tool took milliseconds for seconds, and an hour became 41 days.
func TestO11TimeUnit(t *testing.T) {
	mooncake := rows("0", "3000", "6000")
	arrivals, err := ReadJSON(strings.NewReader(mooncake), "trace.jsonl", Milliseconds)
	if err != nil || Span(arrivals) != 6*time.Second {
		t.Fatalf("span %s, %v", Span(arrivals), err)
	}
	if err := Check("trace.jsonl", arrivals, Milliseconds); err != nil {
		t.Error(err)
	}
	arrivals, err = ReadJSON(strings.NewReader(mooncake), "trace.jsonl", Seconds)
	if err != nil {
		t.Fatal(err)
	}
	want := "trace.jsonl: 3 rows in seconds span 6000 s, 0.00033 requests/s, which is not between 0.1 and 100; in milliseconds they span 6 s, 0.33 requests/s: is the unit right?"
	if err := Check("trace.jsonl", arrivals, Seconds); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}

	bailian, err := ReadJSON(strings.NewReader(rows("61.114", "62.5")), "b.jsonl", Seconds)
	if err != nil || bailian[0] != 61_114*time.Millisecond {
		t.Errorf("%v, %v", bailian, err)
	}
	// 100 rows in 50 s, taken for 50 ms: the other way round.
	var text []string
	for i := range 100 {
		text = append(text, fmt.Sprintf("%d.5", i/2))
	}
	arrivals, err = ReadJSON(strings.NewReader(rows(text...)), "b.jsonl", Milliseconds)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check("b.jsonl", arrivals, Milliseconds); err == nil || !strings.Contains(err.Error(), "2e+03 requests/s") || !strings.Contains(err.Error(), "in seconds they span 49 s, 2 requests/s") {
		t.Errorf("%v", err)
	}

	azure, err := ReadAzure(strings.NewReader("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,374,44\r\n2023-11-16 18:17:03.9799601,1,2\r\n2023-11-16 18:17:04.0,3,4"), "azure.csv")
	if want := []time.Duration{0, 100 * time.Nanosecond, 20_040_000 * time.Nanosecond}; err != nil || !slices.Equal(azure, want) {
		t.Errorf("%v, %v; want %v", azure, err, want)
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
		if err := Check("t", every(d), Seconds); (err == nil) != ok {
			t.Errorf("every %s: %v", d, err)
		}
	}
	if Check("t", nil, Seconds) != nil || Check("t", []time.Duration{1}, Seconds) != nil {
		t.Error("one row has no rate")
	}
}

func TestFaultsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		rows("0") + "{}\n":               "t:2: the row has no timestamp",
		rows("0", `"3"`):                 "t:2:15",
		rows("1e3"):                      `t:1: "1e3" is no number`,
		rows("-1"):                       `t:1: "-1" is no number`,
		rows("0") + `{"timestamp":1,"ti`: "t:2: torn record",
		`{"timestamp":1,"timestamp":2}`:  "is there twice",
	} {
		if _, err := ReadJSON(strings.NewReader(text), "t", Milliseconds); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"time,a\r\n":                           "t:1: the first column",
		"TIMESTAMP,a\r\n2023-11-16\r\n":        "t:2: ",
		"TIMESTAMP,a\r\n2023-13-16 00:00:00,1": "t:2: ",
		"TIMESTAMP,a\n2023-11-16 00:00:00.1":   "t:2: ", // torn
	} {
		if _, err := ReadAzure(strings.NewReader(text), "t"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("61.114")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := Seconds.Parse(text); err == nil && d < 0 {
			t.Errorf("%q is %s", text, d)
		}
	})
}
