package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Policies for rows with the same time.
const (
	Burst  = "burst"  // at that time, all of them
	Spread = "spread" // evenly up to the next time
)

// Policies for rows that come later in the file than their time says.
const (
	Refuse = "refuse"
	Sort   = "sort" // by time, rows of one time in the order of the file
)

// Policies for rows that do not fit the context window; Refuse is another.
const (
	Keep = "keep" // sent, and expected to be refused by the server
	Drop = "drop" // left out, and counted
)

// Options say what is replayed of a trace and how it is scaled.
type Options struct {
	Ties, Inversions, Beyond string
	// From and To are the part of the trace that is replayed, counted from its first
	// row; To is not in it, and 0 is the end. Rows is the most rows, 0 for all.
	From, To time.Duration
	Rows     int
	// TimeScale is how many times as fast, InputScale and OutputScale what is left of
	// the lengths, MaxInput and MaxOutput the most that is left, 0 for no limit.
	TimeScale               float64
	InputScale, OutputScale float64
	MaxInput, MaxOutput     int64
	// Context is the window of the model, Template what stands around a prompt's text,
	// nil if that is not known. Both in tokens.
	Context  int64
	Template *int64
}

// Request is a request of a replay.
type Request struct {
	Line int64 // in the file
	// At is when it is sent, from the start of the replay.
	At            time.Duration
	Input, Output int64 // tokens, scaled; Input is the whole prompt
	// Text is how many tokens of Input are of the made-up text.
	Text   int64
	Blocks []Block
	// TooLong says that the prompt does not fit the context window.
	TooLong bool
}

// Block is a part of a prompt: the first Tokens of the content that ID names.
type Block struct{ ID, Tokens int64 }

// Plan is what is sent.
type Plan struct {
	Requests []Request
	Facts    Facts
}

// Facts are the account of what became of a trace on its way to a replay.
type Facts struct {
	Format  string `json:"format"`
	Licence string `json:"licence"`
	Unit    string `json:"unit"`
	Rows    int    `json:"rows"` // of the file
	// Source is the part that was chosen, as it stands in the file, Replay what is
	// sent.
	Source Load `json:"source"`
	Replay Load `json:"replay"`

	FromS   float64 `json:"from_s"`
	ToS     float64 `json:"to_s"` // 0 is the end
	MaxRows int     `json:"max_rows"`

	TimeScale   float64 `json:"time_scale"`
	InputScale  float64 `json:"input_scale"`
	OutputScale float64 `json:"output_scale"`
	MaxInput    int64   `json:"max_input_tokens"`
	MaxOutput   int64   `json:"max_output_tokens"`
	// BlockTokens is the size of a block after scaling; 0 without blocks.
	BlockTokens float64 `json:"block_tokens"`
	// Capped and Raised count the lengths that a limit cut, and those that scaling
	// would have made less than the one token that a request needs.
	CappedInputs  int `json:"capped_inputs"`
	CappedOutputs int `json:"capped_outputs"`
	Raised        int `json:"raised"`

	Ties string `json:"ties"`
	// Tied counts the rows that share their time with another.
	Tied       int     `json:"tied"`
	Inversions string  `json:"inversions"`
	Inverted   []int64 `json:"inverted_lines"`

	Context       int64   `json:"context"`
	BeyondContext string  `json:"beyond_context"`
	Dropped       []int64 `json:"dropped_lines"`
	TooLong       []int64 `json:"too_long_lines"`

	TemplateTokens *int64 `json:"template_tokens,omitempty"`
	Endpoint       string `json:"endpoint"`
	IgnoreEOS      bool   `json:"ignore_eos"`
	Seed           int64  `json:"seed"`
}

// Load describes requests.
type Load struct {
	Requests     int     `json:"requests"`
	SpanS        float64 `json:"span_s"` // from the first to the last
	Stamps       int     `json:"stamps"` // distinct times
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	MaxInput     int64   `json:"longest_input"`
	MaxOutput    int64   `json:"longest_output"`
	// ReusableTokens are those of blocks at the start of a prompt that an earlier
	// prompt started with too: what a perfect prompt cache would answer.
	ReusableTokens int64 `json:"reusable_tokens"`
}

// Rate is (requests-1)/span, in requests per second; 0 without a span.
func (l Load) Rate() float64 {
	if l.SpanS <= 0 {
		return 0
	}
	return float64(l.Requests-1) / l.SpanS
}

// New plans the replay of rows, which are those of a whole file. name stands for
// it in errors.
func New(name string, rows []Row, o Options) (*Plan, error) {
	f := faults{name: name}
	p := &Plan{Facts: Facts{
		Rows: len(rows), FromS: o.From.Seconds(), ToS: o.To.Seconds(), MaxRows: o.Rows,
		TimeScale: o.TimeScale, InputScale: o.InputScale, OutputScale: o.OutputScale, MaxInput: o.MaxInput, MaxOutput: o.MaxOutput,
		Ties: o.Ties, Inversions: o.Inversions, Context: o.Context, BeyondContext: o.Beyond, TemplateTokens: o.Template,
		Inverted: []int64{}, Dropped: []int64{}, TooLong: []int64{},
	}}
	rows = slices.Clone(rows)
	p.invert(rows, o, &f)
	if err := f.err(); err != nil {
		return nil, fmt.Errorf("%w\nrows are not in the order of their times; inversions = %q sorts them, those of one time in the order of the file", err, Sort)
	}
	due := due(rows, o.Ties == Spread)
	chosen := choose(rows, o)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s: no row of %d is in the part that was chosen", name, len(rows))
	}
	var source []Request
	for n, i := range chosen {
		r := rows[i]
		at := time.Duration(math.Round(float64(due[i]-due[chosen[0]]) / o.TimeScale))
		source = append(source, Request{At: r.At - rows[chosen[0]].At, Input: r.Input, Output: r.Output, Blocks: blocks(r, r.Input, BlockTokens)})
		if n > 0 && r.At == rows[chosen[n-1]].At || n+1 < len(chosen) && r.At == rows[chosen[n+1]].At {
			p.Facts.Tied++
		}
		if q, ok := p.request(r, at, o, &f); ok {
			p.Requests = append(p.Requests, q)
		}
	}
	if err := f.err(); err != nil {
		return nil, fmt.Errorf("%w\nlower the scales or max_input_tokens and max_output_tokens, or choose beyond_context = %q or %q", err, Keep, Drop)
	}
	if len(p.Requests) == 0 {
		return nil, fmt.Errorf("%s: no row fits the context of %d tokens", name, o.Context)
	}
	if first := p.Requests[0].At; first > 0 { // it was dropped: the schedule starts with what is sent
		for i := range p.Requests {
			p.Requests[i].At -= first
		}
	}
	if rows[0].Blocks != nil {
		p.Facts.BlockTokens = BlockTokens * o.InputScale
	}
	p.Facts.Source, p.Facts.Replay = load(source), load(p.Requests)
	return p, nil
}

// invert finds the rows that are before the time of a row above them, and sorts if
// that is the policy.
func (p *Plan) invert(rows []Row, o Options, f *faults) {
	latest := rows[0]
	for _, r := range rows[1:] {
		if r.At >= latest.At {
			latest = r
			continue
		}
		if o.Inversions == Sort {
			p.Facts.Inverted = append(p.Facts.Inverted, r.Line)
		} else {
			f.add(r.Line, "%s is before the %s of line %d", r.At, latest.At, latest.Line)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.At, b.At) })
}

// due are the times of rows, in order; spread moves the k-th of n rows of one time
// by k/n of the way to the next. The last have no next: their way is as long as that
// before them.
func due(rows []Row, spread bool) []time.Duration {
	at := Arrivals(rows)
	if !spread {
		return at
	}
	gap := time.Duration(0)
	for from := 0; from < len(rows); {
		to := from
		for to < len(rows) && rows[to].At == rows[from].At {
			to++
		}
		if to < len(rows) {
			gap = rows[to].At - rows[from].At
		}
		for i := from; i < to; i++ {
			at[i] += time.Duration(float64(gap) * float64(i-from) / float64(to-from))
		}
		from = to
	}
	return at
}

// choose returns the places of the rows that are replayed.
func choose(rows []Row, o Options) (chosen []int) {
	for i, r := range rows {
		if at := r.At - rows[0].At; at < o.From || o.To > 0 && at >= o.To {
			continue
		}
		if o.Rows > 0 && len(chosen) == o.Rows {
			break
		}
		chosen = append(chosen, i)
	}
	return chosen
}

// request scales a row; ok is false if it is dropped or at fault.
func (p *Plan) request(r Row, at time.Duration, o Options, f *faults) (q Request, ok bool) {
	q = Request{Line: r.Line, At: at}
	var capped, raised bool
	q.Input, capped, raised = scale(r.Input, o.InputScale, o.MaxInput)
	p.Facts.CappedInputs += one(capped)
	p.Facts.Raised += one(raised)
	q.Output, capped, raised = scale(r.Output, o.OutputScale, o.MaxOutput)
	p.Facts.CappedOutputs += one(capped)
	p.Facts.Raised += one(raised)
	q.Text = q.Input
	if o.Template != nil {
		if q.Text = q.Input - *o.Template; q.Text < 1 { // a prompt needs a text
			q.Text, q.Input = 1, 1+*o.Template
			p.Facts.Raised++
		}
	}
	q.Blocks = blocks(r, q.Text, BlockTokens*o.InputScale)
	// An engine needs room for one token of the answer.
	q.TooLong = q.Input >= o.Context
	switch fits := q.Input+q.Output <= o.Context; {
	case fits:
		return q, true
	case o.Beyond == Drop:
		p.Facts.Dropped = append(p.Facts.Dropped, r.Line)
		return q, false
	case o.Beyond == Keep && q.Input > MaxTokens:
		f.add(r.Line, "%d input tokens, scaled, are more than the maximum of %d", q.Input, MaxTokens)
	case o.Beyond == Keep && q.TooLong:
		p.Facts.TooLong = append(p.Facts.TooLong, r.Line)
		return q, true
	case o.Beyond == Keep:
		f.add(r.Line, "%d input tokens fit the context of %d, and the %d of the answer behind them do not: it would be cut", q.Input, o.Context, q.Output)
	default:
		f.add(r.Line, "%d input and %d output tokens do not fit the context of %d", q.Input, q.Output, o.Context)
	}
	return q, false
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// scale is a length after scaling: to the nearest, halves up, and at least 1.
func scale(n int64, by float64, most int64) (scaled int64, capped, raised bool) {
	scaled = int64(math.Floor(float64(n)*by + 0.5))
	if scaled < 1 {
		return 1, false, true
	}
	if most > 0 && scaled > most {
		return most, true, false
	}
	return scaled, false, false
}

// blocks cuts a prompt of so many tokens into the blocks of its row, size tokens
// each. Where a size is no whole number, the ends are rounded, by place: so the ends
// of prompts that start alike are the same. The last block takes what is left.
func blocks(r Row, tokens int64, size float64) []Block {
	list := make([]Block, 0, len(r.Blocks))
	start := int64(0)
	for k, id := range r.Blocks {
		end := min(tokens, int64(math.Floor(float64(k+1)*size+0.5)))
		if k == len(r.Blocks)-1 {
			end = tokens
		}
		if end > start {
			list = append(list, Block{id, end - start})
			start = end
		}
	}
	return list
}

func load(requests []Request) Load {
	l := Load{Requests: len(requests)}
	stamps := map[time.Duration]bool{}
	root := &prefix{}
	for _, r := range requests {
		stamps[r.At] = true
		l.InputTokens += r.Input
		l.OutputTokens += r.Output
		l.MaxInput, l.MaxOutput = max(l.MaxInput, r.Input), max(l.MaxOutput, r.Output)
		l.ReusableTokens += root.reuse(r.Blocks)
	}
	l.Stamps = len(stamps)
	l.SpanS = (requests[len(requests)-1].At - requests[0].At).Seconds()
	return l
}

// prefix is a node of the tree of all prompts so far, by blocks.
type prefix struct{ next map[int64]*branch }

// branch is a block behind a prefix; tokens is the most of it that was sent.
type branch struct {
	prefix
	tokens int64
}

// reuse adds a prompt and returns how many tokens at its start were there already.
func (p *prefix) reuse(list []Block) (tokens int64) {
	for same := true; len(list) > 0; list = list[1:] {
		b := list[0]
		if p.next == nil {
			p.next = map[int64]*branch{}
		}
		next := p.next[b.ID]
		if next == nil {
			next = &branch{}
			p.next[b.ID] = next
		}
		if same {
			tokens += min(next.tokens, b.Tokens)
		}
		same = same && next.tokens >= b.Tokens
		next.tokens = max(next.tokens, b.Tokens)
		p = &next.prefix
	}
	return tokens
}

// Words makes up texts of single-token words.
type Words struct {
	List []string
	Seed int64
}

// Text is the text of a request: as many words as tokens. Equal blocks give equal
// words, and a request without blocks words of its own.
func (w Words) Text(r Request) string {
	var b strings.Builder
	list := r.Blocks
	domain := uint64(0)
	if len(list) == 0 {
		list, domain = []Block{{r.Line, r.Text}}, 1
	}
	for _, block := range list {
		words := newStream(uint64(w.Seed), domain, uint64(block.ID))
		for range block.Tokens {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(w.List[words.next()%uint64(len(w.List))])
		}
	}
	return b.String()
}

// stream is SplitMix64 (Steele, Lea and Flood 2014): the same numbers for ever.
type stream uint64

func newStream(keys ...uint64) stream {
	var s stream
	for _, key := range keys {
		s = stream(s.next() ^ key)
	}
	return s
}

func (s *stream) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
