package ledger

import (
	"fmt"
	"maps"
	"slices"

	"assay/rules/internal/record"
)

// Summary counts the entries of a ledger, from both sides.
type Summary struct {
	Plan Plan `json:"plan"`
	// Counts has every class of every phase, also those that are 0. Requests
	// beyond the plan are not in it but in Unplanned.
	Counts    map[Phase]map[Class]int `json:"counts"`
	Unplanned int                     `json:"unplanned"`
	// Reasons splits the failed requests of all phases.
	Reasons map[Reason]int `json:"reasons"`

	// ServerOutcomes counts the server's records as it judged them, and
	// ServerRecords as the join placed them: both sums are the number of
	// records. Outcomes sets outcome against class for the matched ones.
	ServerOutcomes map[record.Outcome]int           `json:"server_outcomes"`
	ServerRecords  ServerRecords                    `json:"server_records"`
	Outcomes       map[record.Outcome]map[Class]int `json:"outcomes"`

	Quality Quality `json:"join_quality"`
	Window  *Window `json:"measured_window,omitempty"`
	// Schedule is set if requests were due at times of their own, and sent.
	Schedule *Schedule `json:"schedule,omitempty"`
	Findings []Finding `json:"findings"`
}

// ServerRecords says where the server's records went.
type ServerRecords struct {
	Matched    int `json:"matched"`
	Retries    int `json:"retries"`     // further records of a matched request
	Ambiguous  int `json:"ambiguous"`   // of an id that several client records share
	ServerOnly int `json:"server_only"` // of an id that no client record has
}

// Quality is the join-quality report: entries of all phases.
type Quality struct {
	OneToOne   int `json:"one_to_one"`
	Retried    int `json:"retried"` // matched, with more than one server record
	ClientOnly int `json:"client_only"`
	ServerOnly int `json:"server_only"`
	Ambiguous  int `json:"ambiguous"`
	Unjoined   int `json:"unjoined"` // never sent, or no server records given

	// Compared counts the requests that ended well, Identical those of them
	// where text, tokens and finish reason are all equal.
	Compared  int             `json:"compared"`
	Identical int             `json:"identical"`
	Text      map[Verdict]int `json:"text"`
	Tokens    map[Verdict]int `json:"tokens"`
	Finish    map[Verdict]int `json:"finish"`
}

// Window is the time from the first measured dispatch to the last thing that
// arrived for a measured request of any class, by the client's monotonic
// stamps; offsets as in Client.
type Window struct {
	StartNS int64 `json:"start_offset_ns"`
	EndNS   int64 `json:"end_offset_ns"`
}

// tally counts entries as they go by. Maps would take as long as all the rest of an
// entry.
type tally struct {
	counts    [3][9]int // by the places in Phases and Classes
	unplanned int
	reasons   map[Reason]int
	outcomes  map[record.Outcome]*[9]int
	quality   Quality
	matched   int
	retries   int
	verdicts  [3][3]int // of text, tokens and finish reason, by the places in verdicts
	window    *Window
	schedule  *Schedule
}

var verdicts = []Verdict{Equal, Different, Unknown}

func (t *tally) add(e *Entry) {
	class := slices.Index(Classes, e.Class)
	if e.Unplanned {
		t.unplanned++
	} else {
		t.counts[slices.Index(Phases, e.Phase)][class]++
	}
	if e.Class == Failed {
		if t.reasons == nil {
			t.reasons = map[Reason]int{}
		}
		t.reasons[e.Reason]++
	}
	if e.Join == Matched {
		t.matched++
		t.retries += e.HiddenRetries
		of := t.outcomes[e.Server.Outcome]
		if of == nil {
			if t.outcomes == nil {
				t.outcomes = map[record.Outcome]*[9]int{}
			}
			of = new([9]int)
			t.outcomes[e.Server.Outcome] = of
		}
		of[class]++
	}
	t.joined(e)
	t.widen(e)
}

func (t *tally) joined(e *Entry) {
	q := &t.quality
	switch e.Join {
	case Matched:
		if e.HiddenRetries == 0 {
			q.OneToOne++
		} else {
			q.Retried++
		}
	case ClientOnly:
		q.ClientOnly++
	case ServerOnly:
		q.ServerOnly++
	case Ambiguous:
		q.Ambiguous++
	default:
		q.Unjoined++
	}
	if !endedWell(e.Class) {
		return
	}
	q.Compared++
	id := e.Identity
	for i, v := range []Verdict{id.Text, id.Tokens, id.Finish} {
		t.verdicts[i][slices.Index(verdicts, v)]++
	}
	if id == (Identity{Equal, Equal, Equal}) {
		q.Identical++
	}
}

// summary puts the counts into their named form: all classes of all phases, and
// otherwise what there is.
func (t *tally) summary() Summary {
	s := Summary{
		Counts: map[Phase]map[Class]int{}, Unplanned: t.unplanned, Reasons: map[Reason]int{}, Outcomes: map[record.Outcome]map[Class]int{},
		Quality: t.quality, Window: t.window, Schedule: t.schedule,
	}
	for i, phase := range Phases {
		s.Counts[phase] = map[Class]int{}
		for j, class := range Classes {
			s.Counts[phase][class] = t.counts[i][j]
		}
	}
	maps.Copy(s.Reasons, t.reasons)
	for outcome, counts := range t.outcomes {
		s.Outcomes[outcome] = present(Classes, counts[:])
	}
	s.Quality.Text = present(verdicts, t.verdicts[0][:])
	s.Quality.Tokens = present(verdicts, t.verdicts[1][:])
	s.Quality.Finish = present(verdicts, t.verdicts[2][:])
	return s
}

func present[K comparable](names []K, counts []int) map[K]int {
	m := map[K]int{}
	for i, n := range counts {
		if n > 0 {
			m[names[i]] = n
		}
	}
	return m
}

func (t *tally) widen(e *Entry) {
	if e.Phase != Measured || e.Client == nil || e.Client.StartNS == nil {
		return
	}
	start := *e.Client.StartNS
	end := start
	if e.Client.EndNS != nil {
		end = *e.Client.EndNS
	}
	if t.window == nil {
		t.window = &Window{StartNS: start, EndNS: end}
		return
	}
	t.window.StartNS = min(t.window.StartNS, start)
	t.window.EndNS = max(t.window.EndNS, end)
}

// check holds the sums against what was planned and what was read. Both sides
// are counted apart, so a fault in the join cannot hide in one of them.
func (s *Summary) check() error {
	for _, phase := range Phases {
		sum := 0
		for _, n := range s.Counts[phase] {
			sum += n
		}
		if planned := s.Plan.of(phase); sum != planned {
			return fmt.Errorf("ledger: the books do not close: %d %s entries for %d planned requests", sum, phase, planned)
		}
	}
	read := 0
	for _, n := range s.ServerOutcomes {
		read += n
	}
	if r := s.ServerRecords; r.Matched+r.Retries+r.Ambiguous+r.ServerOnly != read {
		return fmt.Errorf("ledger: the books do not close: %d server records were read, %+v were placed", read, r)
	}
	return nil
}
