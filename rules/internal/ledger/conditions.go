package ledger

import (
	"cmp"
	"time"

	"assay/rules/internal/host"
	"assay/rules/internal/record"
)

// Conditions are what is known of a run beside its requests. What is zero is
// not known, and nothing is concluded from it.
type Conditions struct {
	Model  string // that was served, by the name in the requests
	BootID string // of the machine that the client and the server's records are of
	// Started and Finished enclose the run, by that machine's wall clock.
	Started, Finished time.Time
	// Rate is the requests per second that were asked for at constant distances.
	Rate float64

	Quiet      host.Quiet
	CPUs       int // that the run could use, server and client together
	ClientCPUs int // of these, the load generator's
	ClientBusy []host.Busy
}

// Limits of what is taken for a good measurement.
const (
	// MaxOthers is the share of the run's CPUs that others may use. Samples of a
	// quiet machine have 3 to 5 %, its daemons among them.
	MaxOthers = 0.10
	// MaxSteal is the share that the hypervisor may take.
	MaxSteal = 0.02
	// MaxClientBusy is the share of time that the load generator's CPUs may be
	// busy: at 90 % what comes to them waits ten times as long as it works, by
	// the mean of a single queue, 1/(1-share).
	MaxClientBusy = 0.90
	// MinRate is the share of an asked rate that must be achieved.
	MinRate = 0.99
	// minDispatches is how many a rate is taken from.
	minDispatches = 20
)

// misplaced is how far outside the run a wall time may lie before it is of
// another run: stamps are taken a little before and after what they enclose.
const misplaced = time.Second

// judgeRun looks for what concerns the run as a whole.
func (b *builder) judgeRun() {
	c, w := &b.in.Conditions, &b.watch
	b.fasterRepeats()
	b.noise(c)
	b.clientCPUs(c)
	if n := w.dispatched; c.Rate > 0 && n >= minDispatches && w.lastStart > w.firstStart {
		achieved := float64(n-1) / time.Duration(w.lastStart-w.firstStart).Seconds()
		if achieved < MinRate*c.Rate {
			b.found.add(RateNotMet, Warning, "", "%.3f requests/s of %.3f, over %d dispatches", achieved, c.Rate, n)
		}
	}
	b.lags()
	b.wallClocks()
	b.noneShared()
	b.checkLatencies()
}

func (b *builder) noise(c *Conditions) {
	all := c.Quiet.WallSeconds * float64(c.CPUs)
	if all <= 0 {
		return
	}
	if s := c.Quiet.OtherCPUSeconds; s != nil && *s > MaxOthers*all {
		b.found.add(NoisyHost, Warning, "", "other processes used %.1f %% of the %d CPUs, more than %g %%", 100**s/all, c.CPUs, 100*MaxOthers)
	}
	if s := c.Quiet.StealSeconds; s != nil && *s > MaxSteal*all {
		b.found.add(NoisyHost, Warning, "", "the hypervisor took %.1f %% of the %d CPUs, more than %g %%", 100**s/all, c.CPUs, 100*MaxSteal)
	}
}

// clientCPUs looks at the readings inside the measured window alone: a load
// generator is busy while it starts, which costs no request anything.
func (b *builder) clientCPUs(c *Conditions) {
	var inside []host.Busy
	for _, r := range c.ClientBusy {
		if b.watch.firstWall <= r.WallNS && r.WallNS <= b.watch.lastWall {
			inside = append(inside, r)
		}
	}
	if c.ClientCPUs < 1 || len(inside) < 2 {
		return
	}
	from, to := inside[0], inside[len(inside)-1]
	share := float64(to.BusyNS-from.BusyNS) / float64(to.WallNS-from.WallNS) / float64(c.ClientCPUs)
	if share > MaxClientBusy {
		b.found.add(ClientSaturated, Warning, "", "%.1f %% busy in %s of the measured window, more than %g %%", 100*share, ms(to.WallNS-from.WallNS), 100*MaxClientBusy)
	}
}

// ours finds what in the server's record belongs to another run: another boot,
// model or time.
func (b *builder) ours(r *record.Record) {
	c, w := &b.in.Conditions, &b.watch
	add := func(detail string, args ...any) { b.found.add(WrongRun, Blocking, r.RequestID, detail, args...) }
	if w.boot == "" {
		w.boot = cmp.Or(c.BootID, r.BootID)
	}
	if r.BootID != "" && r.BootID != w.boot {
		add("the server's record is of boot %s, the run of %s", r.BootID, w.boot)
	}
	if c.Model != "" && r.Model != "" && r.Model != c.Model && r.Outcome != record.Invalid {
		add("the server's record is of model %q, the run of %q", r.Model, c.Model)
	}
	if what := c.outside(r.ReceivedWallNS); what != "" && r.ReceivedWallNS != 0 {
		add("the server received it %s", what)
	}
}

// noneShared: both sides have ids and share none of them.
func (b *builder) noneShared() {
	clients, servers := 0, 0
	for i := range b.parties {
		sent, served := b.parties[i].sent > 0, b.parties[i].first >= 0
		if sent && served {
			return
		}
		if sent {
			clients++
		}
		if served {
			servers++
		}
	}
	if clients > 0 && servers > 0 {
		b.found.add(WrongRun, Blocking, "", "no id of the server's records is in the client's export: %d on one side, %d on the other", servers, clients)
	}
}

// outside says how far outside the run a wall time is, "" if it is not.
func (c *Conditions) outside(wallNS int64) string {
	at := time.Unix(0, wallNS)
	switch early, late := c.Started.Sub(at), at.Sub(c.Finished); {
	case !c.Started.IsZero() && early > misplaced:
		return early.Round(time.Millisecond).String() + " before the run began"
	case !c.Finished.IsZero() && late > misplaced:
		return late.Round(time.Millisecond).String() + " after the run ended"
	}
	return ""
}

// checkLatencies holds AIPerf's summary against its records. The extremes of a
// run's latencies are as good as its name: two runs do not share them.
func (b *builder) checkLatencies() {
	s, w := b.in.Summary, &b.watch
	if s == nil || s.MinLatencyMS == nil || s.MaxLatencyMS == nil || w.slowest == 0 || len(b.gaps) > 0 {
		return
	}
	const same = 0.001 // ms
	low, high := float64(w.fastest)/1e6, float64(w.slowest)/1e6
	if abs(*s.MinLatencyMS-low) > same && abs(*s.MaxLatencyMS-high) > same {
		b.found.add(SummaryMismatch, Warning, "", "latencies from %.3f to %.3f ms in the summary, from %.3f to %.3f ms in the records: it is of another run", *s.MinLatencyMS, *s.MaxLatencyMS, low, high)
	}
}

func abs[T int64 | float64](v T) T { return max(v, -v) }
