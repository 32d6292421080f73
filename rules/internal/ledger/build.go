package ledger

import (
	"errors"
	"iter"
	"math"
	"time"

	"assay/rules/internal/aiperf"
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
	// run that was imported. An *aiperf.Gap in it is one that could not be read.
	Server iter.Seq2[*record.Record, error]

	Summary       *aiperf.Summary // nil if AIPerf wrote none
	Exit          Exit
	ContextWindow int64         // of the server, in tokens; 0 if not known
	PromptCache   bool          // the server may use one, as declared
	Tolerance     time.Duration // 0 for DefaultTolerance
	Due           Due           // nil without a schedule
	Conditions    Conditions
	Inspector     Inspector // may be nil
}

// Inspector looks at the entries as a whole, where a workload means more than
// single requests.
type Inspector interface {
	// Look is called with each entry in the order of the ledger, before it is
	// handed out. It may complete the entry.
	Look(e *Entry, found Found)
	// End is called after the last.
	End(found Found)
}

// Found takes a piece of evidence. An empty request id stands for the whole run.
type Found func(code Code, severity Severity, requestID, detail string, args ...any)

// Build closes the ledger: it hands the entries to each, one after the other in
// the order of the ledger, and returns their summary. An entry is each's to keep.
//
// Build fails on input that cannot be read at all (a corrupt line, an I/O error)
// before the first entry, and names every such fault; all else is a finding. An
// error of each ends it and is returned as it is.
func Build(in Input, each func(*Entry) error) (Summary, error) {
	if in.Tolerance == 0 {
		in.Tolerance = DefaultTolerance
	}
	b := &builder{in: in, each: each, found: findings{}, names: names{number: map[string]int{}}, zero: math.MaxInt64, outcomes: map[record.Outcome]int{}}
	err := errors.Join(b.checkPlan(), b.readFigures(), b.readClient(in.Probes, Probe), b.readClient(in.Client, ""), b.readServer())
	if err != nil {
		return Summary{}, err
	}
	if in.Server == nil {
		b.found.add(ClientOnlyRequest, Warning, "", "no server records were given")
	}
	b.order()
	b.clockStep()
	b.tally.schedule = b.schedule()
	return b.close()
}

// builder holds all requests, packed, in the order in which they were read.
type builder struct {
	in    Input
	each  func(*Entry) error
	found findings

	ids     symbols // request ids of both sides
	prompts symbols // digests
	names   names
	store   store
	scratch []byte
	piece   kept
	rows    []row
	records []packedRecord
	parties []party // by id
	gaps    []*aiperf.Gap

	estimates []estimate                        // by id; empty without Figures
	outcomes  map[record.Outcome]int            // of the server's records
	aiperf    struct{ successes, errors int64 } // of the measured requests, by its records
	firstWith []*row                            // by prompt
	prompted  int                               // requests that have a prompt
	gains     gains
	watch     watch
	tally     tally
	zero      int64  // the first dispatch by the client's monotonic clock
	leastLate *int64 // the latest that a schedule can have begun, wall clock; nil if not known
}

// row is a request of the client: what its order depends on, and where the rest is.
type row struct {
	start   int64 // wall clock
	step    int64 // wall clock minus monotonic clock at the start
	at      place
	id      symbol
	phase   int8 // in Phases
	stepped bool // step is known
}

// packedRecord is a record of the server.
type packedRecord struct {
	at   place
	id   symbol
	next int32 // the next with that id, -1 for none
}

// party is who has an id.
type party struct {
	sent        int32 // requests of the client
	first, last int32 // records of the server, -1 for none
}

// estimate is the client's own count of tokens.
type estimate struct{ prompt, completion *int64 }

// kept is an entry with all that it points to, in one piece of memory.
type kept struct {
	Entry
	client  Client
	server  Server
	reject  Reject
	itl     float64
	numbers [24]int64
	used    int // of numbers
}

// number returns a place for a number that the entry points to.
func (k *kept) number(n int64) *int64 {
	k.numbers[k.used] = n
	k.used++
	return &k.numbers[k.used-1]
}

func (k *kept) copy(p *int64) *int64 {
	if p == nil {
		return nil
	}
	return k.number(*p)
}

// unpacked is a record of the server with all that it points to.
type unpacked struct {
	record.Record
	task    record.Task
	numbers [6]int64
}

// draft is an entry in the making, with what its class depends on.
type draft struct {
	*kept
	facts        facts
	stream       stream
	perf         struct{ start, end *int64 }
	refusedAfter *int64 // by the client's stamps
	usage        aiperf.Usage
	tools        bool
	seen         seen
	received     int64          // by the server, wall clock; 0 if not known
	record       *record.Record // the one that it is matched with
	text, body   aiperf.Digest
	prompt       symbol
}
