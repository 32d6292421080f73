package ledger_test

import (
	"testing"

	"assay/rules/internal/ledger"
)

// Status line and headers come before the first token, and have a figure of their
// own; headers before the request are a clock that cannot be right, and cost the
// request its durations.
func TestTimeToFirstByte(t *testing.T) {
	in := func(ackMS int64) *closed {
		r := streamed(sent("r", 0), 100, 10, 12)
		r.AckWallNS = ptr(r.StartWallNS + ackMS*msec)
		return build(t, ledger.Input{Plan: ledger.Plan{Measured: 1}, Client: seq(r)})
	}
	l := in(30)
	if c := l.Entries[0].Client; *c.TTFBNS != 30*msec || *c.TTFTNS != 100*msec {
		t.Errorf("headers after %v, first token after %v", *c.TTFBNS, *c.TTFTNS)
	}
	if row := rowOf(l); row.TTFBMS.N != 1 || *row.TTFBMS.Mean != 30 {
		t.Errorf("%+v", row.TTFBMS)
	}

	l = in(-1)
	if c := l.Entries[0].Client; c.TTFBNS != nil || c.TTFTNS != nil || c.LatencyNS != nil {
		t.Errorf("%+v", c)
	}
	if f := finding(t, l, ledger.NegativeDuration); f.Count != 1 || f.Evidence[0].Detail != "the headers are 1.000 ms before the start" {
		t.Errorf("%+v", f)
	}
}
