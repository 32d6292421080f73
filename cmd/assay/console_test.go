package main

import (
	"strings"
	"testing"

	"assay/engine/event"
)

func TestBarTellsDoneRunningAndUnknownApart(t *testing.T) {
	for _, test := range []struct {
		done, running, total int
		want                 string
	}{
		{0, 0, 0, "[....................]"},
		{0, 0, 8, "[....................]"},
		{0, 1, 8, "[>>>.................]"},
		{4, 1, 8, "[==========>>>.......]"},
		{7, 1, 8, "[=================>>>]"},
		{8, 0, 8, "[====================]"},
		{0, 1, 1000, "[>...................]"},
		{998, 1, 1000, "[==================>.]"}, // what is not known is seen too
		{999, 1, 1000, "[===================>]"},
		{3, 5, 8, "[=======>>>>>>>>>>>>>]"},
	} {
		if got := bar(test.done, test.running, test.total); got != test.want {
			t.Errorf("%d done, %d running of %d: %s, want %s", test.done, test.running, test.total, got, test.want)
		}
	}
}

func TestTerminalShowsRequestsDoneOfTotal(t *testing.T) {
	var out strings.Builder
	c := startConsole(&out, 80, false)
	c.Handle(event.Event{Kind: event.Begin, Total: 2})
	c.Handle(event.Event{Kind: event.Started, Action: "//:run", Reason: "first build"})
	c.Handle(event.Event{Kind: event.Progress, Action: "//:run", Done: 12, Total: 40, What: "requests"})
	c.Close()
	if !strings.Contains(out.String(), "[>>>>>>>>>>..........] 0/2 //:run 12/40 requests, ") {
		t.Fatalf("%q", out.String())
	}
}
