package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
	"assay/rules/internal/record"
)

// Plan says how many requests were to be sent in each phase.
type Plan struct {
	Probe    int `json:"probe"`
	Warmup   int `json:"warmup"`
	Measured int `json:"measured"`
	// Places names the requests of a phase by conversation and turn, in the
	// order of the plan; a phase without is known by its count alone.
	Places map[Phase][]Place `json:"-"`
}

func (p Plan) of(phase Phase) int {
	switch phase {
	case Probe:
		return p.Probe
	case Warmup:
		return p.Warmup
	}
	return p.Measured
}

// Exit is how AIPerf ended.
type Exit struct {
	Code int
	// Signal is the signal that ended it or that it was sent, "" for none.
	Signal string
}

// DefaultTolerance is how much longer than the client's wait a server time may
// be: scheduling lies between the last write and the stamp behind it.
const DefaultTolerance = 20 * time.Millisecond

// Input is all that is known of a run. Sequences are read once.
type Input struct {
	Plan Plan
	// Probes are requests that were sent before the load, in the form of
	// client records; nil if there were none.
	Probes iter.Seq2[*aiperf.Request, error]
	// Client is AIPerf's raw export. An *aiperf.Gap in it is one request that
	// was sent and has no known end.
	Client iter.Seq2[*aiperf.Request, error]
	// Figures are AIPerf's own, for its token estimates; may be nil.
	Figures iter.Seq2[aiperf.Figures, error]
	// Server is the file of terminal records; nil if there is none, as for a
	// run that was imported.
	Server iter.Seq2[*record.Record, error]

	Summary       *aiperf.Summary // nil if AIPerf wrote none
	Exit          Exit
	ContextWindow int64         // of the server, in tokens; 0 if not known
	PromptCache   bool          // the server may use one, as declared
	Tolerance     time.Duration // 0 for DefaultTolerance
	Conditions    Conditions
}

// Build closes the ledger: it hands the entries to each, one after the other in
// the order of the ledger, and returns their summary. An entry is each's to keep.
//
// Build fails on input that cannot be read at all (a corrupt line, an I/O error)
// before the first entry, and names every such fault; all else is a finding. An
// error of each ends it and is returned as it is.
func Build(in Input, each func(*Entry) error) (Summary, error) {
	b := &builder{in: in, found: findings{}, byID: map[string][]int{}, estimates: map[string]aiperf.Figures{}, server: map[string][]*record.Record{}}
	if b.in.Tolerance == 0 {
		b.in.Tolerance = DefaultTolerance
	}
	err := errors.Join(b.checkPlan(), b.readFigures(), b.readClient(in.Probes, Probe), b.readClient(in.Client, ""), b.readServer())
	if err != nil {
		return Summary{}, err
	}
	b.index()
	b.offsets()
	b.join()
	for i := range b.drafts {
		b.judge(&b.drafts[i])
	}
	b.fillGaps()
	b.fillPlan()
	return b.close(each)
}

// draft is an entry in the making, with what its class depends on.
type draft struct {
	Entry
	facts  facts
	stream stream
	perf   struct{ start, end *int64 }
	usage  aiperf.Usage
	finish string
	tools  bool
	seen   seen
	record *record.Record
}

type builder struct {
	in        Input
	found     findings
	watch     watch
	drafts    []draft
	byID      map[string][]int // drafts
	gaps      []*aiperf.Gap
	estimates map[string]aiperf.Figures
	server    map[string][]*record.Record
	serverIDs []string // in the order of the file
	strangers []*record.Record
	outcomes  map[record.Outcome]int
	aiperf    struct{ successes, errors int64 } // of the measured requests, by its records
}

func (b *builder) checkPlan() error {
	var errs []error
	for _, phase := range Phases {
		n, places := b.in.Plan.of(phase), b.in.Plan.Places[phase]
		if n < 0 {
			errs = append(errs, fmt.Errorf("plan: %d %s requests", n, phase))
		}
		if places != nil && len(places) != n {
			errs = append(errs, fmt.Errorf("plan: %d places for %d %s requests", len(places), n, phase))
		}
	}
	return errors.Join(errs...)
}

func (b *builder) readFigures() error {
	if b.in.Figures == nil {
		return nil
	}
	for f, err := range b.in.Figures {
		switch {
		case errors.As(err, new(*aiperf.Gap)):
			b.found.add(TornExport, Warning, "", "%v; the client's token estimates of this request are missing", err)
		case err != nil:
			return err
		default:
			b.estimates[f.ID] = f
		}
	}
	return nil
}

// readClient reads requests; an empty phase means that of each record.
func (b *builder) readClient(requests iter.Seq2[*aiperf.Request, error], phase Phase) error {
	if requests == nil {
		return nil
	}
	for r, err := range requests {
		var gap *aiperf.Gap
		switch {
		case errors.As(err, &gap):
			b.found.add(TornExport, Blocking, gap.ID, "%v", err)
			b.gaps = append(b.gaps, gap)
			continue
		case err != nil:
			return err
		}
		b.request(r, cmp.Or(phase, phaseOf(r.Phase)))
	}
	return nil
}

func phaseOf(benchmarkPhase string) Phase {
	if benchmarkPhase == aiperf.Warmup {
		return Warmup
	}
	return Measured
}

func (b *builder) request(r *aiperf.Request, phase Phase) {
	a := &r.Response
	c := &Client{
		Status: r.Status, StartWallNS: r.StartWallNS,
		Stream: a.Stream || r.Payload.Stream, Chunks: len(a.Chunks),
		FinishReason: a.FinishReason, BodySHA256: r.Payload.SHA256, PromptSHA256: r.Payload.PromptSHA256,
		AIPerfSuccess: r.Error == nil && !r.Cancelled,
	}
	if r.Error != nil {
		c.ErrorType = r.Error.Type
	}
	if len(a.Chunks) > 0 {
		c.TextSHA256 = a.SHA256
	}
	d := draft{facts: factsOf(r), stream: shape(a.Chunks), usage: a.Usage, finish: a.FinishReason, seen: seenIn(r)}
	d.Entry = Entry{Phase: phase, RequestID: r.ID, CorrelationID: r.CorrelationID, Place: Place{Conversation: r.ConversationID, Turn: r.Turn}, Client: c}
	d.perf.start, d.perf.end = r.StartPerfNS, a.LastPerfNS
	for _, chunk := range a.Chunks {
		d.tools = d.tools || chunk.ToolSize > 0
	}
	if fault := clientTimes(c, r); fault != "" {
		b.found.add(NegativeDuration, Blocking, r.ID, "%s", fault)
	}
	if phase == Measured {
		if c.AIPerfSuccess {
			b.aiperf.successes++
		} else {
			b.aiperf.errors++
		}
	}
	if d.facts.code > 0 || d.facts.failure {
		d.Reject = clientReject(r)
	}
	b.drafts = append(b.drafts, d)
}

// clientReject is the time to a refusal by the client's stamps, nil if they
// are one and the same.
func clientReject(r *aiperf.Request) *Reject {
	if r.StartPerfNS != nil && r.Response.LastPerfNS != nil && *r.Response.LastPerfNS > *r.StartPerfNS {
		return &Reject{NS: *r.Response.LastPerfNS - *r.StartPerfNS, Source: "client"}
	}
	return nil
}

func factsOf(r *aiperf.Request) facts {
	a := &r.Response
	f := facts{
		cancelled: r.Cancelled,
		failure:   a.Failure != nil, after: a.AfterContent,
		streamed:  a.Stream || r.Payload.Stream && a.Bodies == 0,
		malformed: a.Malformed != "",
		content:   len(a.Chunks) > 0,
		ended:     r.Status != nil || r.Error != nil || r.Cancelled || a.Bodies > 0,
	}
	f.finished = a.FinishReason != "" || a.Done
	if !f.streamed {
		f.finished = a.Choice
	}
	if r.Status != nil {
		f.status = *r.Status
	}
	if r.Payload.MaxTokens != nil {
		f.prompt.reserved = *r.Payload.MaxTokens
	}
	var words []string
	if e := r.Error; e != nil {
		words = append(words, e.Type, e.Message)
		// With a code it is the server's answer in AIPerf's words; so is the
		// complaint about missing content, which the packets show better.
		if e.Code == nil && e.Type != "InvalidInferenceResultError" {
			f.clientError = cmp.Or(e.Type, "unknown")
		}
	}
	if e := a.Failure; e != nil {
		words = append(words, e.Code, e.Type, e.Message)
	}
	f.words = strings.ToLower(strings.Join(words, "\n"))
	switch {
	case f.status >= 400:
		f.code = f.status
	case f.failure && a.Failure.Status != nil && !f.after:
		f.code = *a.Failure.Status
	case r.Error != nil && r.Error.Code != nil && !f.content && !f.failure:
		f.code = *r.Error.Code
	}
	return f
}

func (b *builder) readServer() error {
	b.outcomes = map[record.Outcome]int{}
	if b.in.Server == nil {
		return nil
	}
	for rec, err := range b.in.Server {
		switch {
		case errors.As(err, new(*jsonl.TornError)), errors.As(err, new(*jsonl.TooLongError)):
			b.found.add(TornExport, Blocking, "", "%v", err)
			continue
		case err != nil:
			return err
		}
		b.outcomes[rec.Outcome]++
		if b.server[rec.RequestID] == nil {
			b.serverIDs = append(b.serverIDs, rec.RequestID)
		}
		b.server[rec.RequestID] = append(b.server[rec.RequestID], rec)
	}
	return nil
}

// index puts the requests in the order of their dispatch.
func (b *builder) index() {
	slices.SortStableFunc(b.drafts, func(x, y draft) int {
		return cmp.Or(cmp.Compare(x.Client.StartWallNS, y.Client.StartWallNS), cmp.Compare(x.RequestID, y.RequestID))
	})
	for i, d := range b.drafts {
		if d.RequestID != "" {
			b.byID[d.RequestID] = append(b.byID[d.RequestID], i)
		}
	}
}

// offsets counts the client's monotonic stamps from the first dispatch. Probes
// are sent by another process, so they have none.
func (b *builder) offsets() {
	var zero *int64
	var steps []int64 // wall clock minus monotonic clock
	for i := range b.drafts {
		d := &b.drafts[i]
		if d.Phase == Probe || d.perf.start == nil {
			continue
		}
		if zero == nil || *d.perf.start < *zero {
			zero = d.perf.start
		}
		// A cancelled request has its wall stamp taken again.
		if !d.facts.cancelled {
			steps = append(steps, d.Client.StartWallNS-*d.perf.start)
		}
	}
	offset := func(perf *int64) *int64 {
		if perf == nil || zero == nil {
			return nil
		}
		v := *perf - *zero
		return &v
	}
	for i := range b.drafts {
		if d := &b.drafts[i]; d.Phase != Probe {
			d.Client.StartNS, d.Client.EndNS = offset(d.perf.start), offset(d.perf.end)
		}
	}
	b.clockStep(steps)
}

// clockStep compares the two clocks between the first and the last third of a
// run. Medians, since a process may be interrupted between the two stamps.
func (b *builder) clockStep(steps []int64) {
	third := len(steps) / 3
	if third < 3 {
		return
	}
	moved := median(steps[len(steps)-third:]) - median(steps[:third])
	if max(moved, -moved) > int64(time.Millisecond) {
		b.found.add(ClockStep, Warning, "", "by %s between the first and the last third of the run", ms(moved))
	}
}
