package ledger

import (
	"fmt"
	"time"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/record"
)

// Incremental says whether a stream was seen to arrive as it was generated.
type Incremental string

const (
	Verified   Incremental = "verified"
	Buffered   Incremental = "buffered" // something between engine and client held it back
	Unverified Incremental = "unverified"
)

// stream is the shape of the content's arrival at the client.
type stream struct {
	chunks int
	gaps   int // between chunks
	tight  int // gaps below a millisecond
	spread int64
	decode int64 // the engine's time after its first increment, ns; 0 if not known
}

func shape(chunks []aiperf.Chunk) stream {
	s := stream{chunks: len(chunks)}
	for i := 1; i < len(chunks); i++ {
		gap := chunks[i].PerfNS - chunks[i-1].PerfNS
		s.gaps++
		if gap < int64(time.Millisecond) {
			s.tight++
		}
		s.spread += gap
	}
	return s
}

// incremental is the buffering detector: of eight chunks or more, over 80 % of
// the gaps below 1 ms while the server decoded over ten times as long as the
// chunks took to arrive. Gaps above that limit speak for themselves; a burst
// needs the server's word (decode, ns) that generating was as fast: in that time,
// or in less than a millisecond for each gap.
func (s stream) incremental(decode *int64) Incremental {
	const least = 8
	burst := s.tight*5 > s.gaps*4
	switch {
	case s.chunks >= least && !burst:
		return Verified
	case s.chunks < 2 || decode == nil:
		return Unverified
	case *decode <= max(10*s.spread, int64(s.gaps)*int64(time.Millisecond)):
		return Verified
	case s.chunks >= least:
		return Buffered
	}
	return Unverified
}

// clientTimes fills in the durations of c; it returns what is wrong with the
// stamps, and then no duration is given.
func clientTimes(c *Client, r *aiperf.Request) (fault string) {
	if r.EndWallNS != nil && *r.EndWallNS < r.StartWallNS {
		return fmt.Sprintf("the end is %s before the start", ms(r.StartWallNS-*r.EndWallNS))
	}
	if r.AckWallNS != nil {
		// AIPerf makes both stamps of one wall clock's reading and its monotonic clock,
		// so their difference is a duration of that.
		ttfb := *r.AckWallNS - r.StartWallNS
		if ttfb < 0 {
			return fmt.Sprintf("the headers are %s before the start", ms(-ttfb))
		}
		c.TTFBNS = &ttfb
	}
	a := &r.Response
	if r.StartPerfNS == nil || len(a.Chunks) == 0 {
		return ""
	}
	start := *r.StartPerfNS
	first, last := a.Chunks[0].PerfNS, a.Chunks[len(a.Chunks)-1].PerfNS
	before := start
	for i, chunk := range a.Chunks {
		if chunk.PerfNS < before {
			what := "the chunk before"
			if i == 0 {
				what = "the start"
			}
			c.TTFBNS = nil
			return fmt.Sprintf("content chunk %d is %s before %s", i+1, ms(before-chunk.PerfNS), what)
		}
		before = chunk.PerfNS
	}
	latency := last - start
	c.LatencyNS = &latency
	if a.Stream {
		ttft := first - start
		c.TTFTNS, c.TTFONS = &ttft, firstOutput(a.Chunks, start)
	}
	return ""
}

// firstOutput is the time to the first text where reasoning came before it.
func firstOutput(chunks []aiperf.Chunk, start int64) *int64 {
	thought := false
	for _, chunk := range chunks {
		thought = thought || chunk.ReasoningSize > 0
		if thought && chunk.TextSize > 0 {
			ttfo := chunk.PerfNS - start
			return &ttfo
		}
	}
	return nil
}

// itl is the mean time between tokens in ns.
func itl(s stream, tokens *int64) (mean float64, ok bool) {
	if tokens == nil || *tokens < 2 || s.chunks < 2 {
		return 0, false
	}
	return float64(s.spread) / float64(*tokens-1), true
}

// serverTimes fills in the server's times unless they cannot be right: negative,
// a part longer than the whole, or longer than the client waited (span, ns).
// Then it returns the reason, and none is given.
func (d *draft) serverTimes(rec *record.Record, span *int64, tolerance time.Duration) (fault string) {
	slack := int64(tolerance)
	type limit struct {
		name  string
		ns    *int64
		whole string
		most  *int64
	}
	times := [...]limit{
		{"total", &rec.TotalNS, "the client's wait", span},
		{"queue", rec.QueueNS, "the total", &rec.TotalNS},
		{"first write", rec.FirstWriteNS, "the total", &rec.TotalNS},
		3: {}, 4: {}, 5: {}, // of the task call
	}
	if t := rec.Task; t != nil {
		times[3] = limit{"task call", &t.WallNS, "the client's wait", span}
		times[4] = limit{"task call", &t.WallNS, "the total", &rec.TotalNS}
		times[5] = limit{"first increment", t.FirstIncrementNS, "the task call", &t.WallNS}
	}
	for _, t := range times {
		switch {
		case t.ns == nil:
		case *t.ns < 0:
			return fmt.Sprintf("%s of %s is negative", t.name, ms(*t.ns))
		case t.most != nil && *t.ns > *t.most+slack:
			return fmt.Sprintf("%s of %s is longer than %s, %s", t.name, ms(*t.ns), t.whole, ms(*t.most))
		}
	}
	d.server.TotalNS, d.server.QueueNS = d.number(rec.TotalNS), d.copy(rec.QueueNS)
	if t := rec.Task; t != nil {
		d.server.TaskCallNS, d.server.FirstIncrementNS = d.number(t.WallNS), d.copy(t.FirstIncrementNS)
	}
	return ""
}

func ms(ns int64) string { return fmt.Sprintf("%.3f ms", float64(ns)/1e6) }
