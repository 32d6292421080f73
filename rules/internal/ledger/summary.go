package ledger

import (
	"fmt"

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

	Quality  Quality   `json:"join_quality"`
	Window   *Window   `json:"measured_window,omitempty"`
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

func summarize(entries []Entry) Summary {
	s := Summary{
		Counts: map[Phase]map[Class]int{}, Reasons: map[Reason]int{}, Outcomes: map[record.Outcome]map[Class]int{},
		Quality: Quality{Text: map[Verdict]int{}, Tokens: map[Verdict]int{}, Finish: map[Verdict]int{}},
	}
	for _, phase := range Phases {
		s.Counts[phase] = map[Class]int{}
		for _, class := range Classes {
			s.Counts[phase][class] = 0
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.Unplanned {
			s.Unplanned++
		} else {
			s.Counts[e.Phase][e.Class]++
		}
		if e.Class == Failed {
			s.Reasons[e.Reason]++
		}
		s.Quality.count(e)
		if e.Join == Matched {
			of := s.Outcomes[e.Server.Outcome]
			if of == nil {
				of = map[Class]int{}
				s.Outcomes[e.Server.Outcome] = of
			}
			of[e.Class]++
		}
		s.widen(e)
	}
	return s
}

func (q *Quality) count(e *Entry) {
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
	q.Text[id.Text]++
	q.Tokens[id.Tokens]++
	q.Finish[id.Finish]++
	if id == (Identity{Equal, Equal, Equal}) {
		q.Identical++
	}
}

func (s *Summary) widen(e *Entry) {
	if e.Phase != Measured || e.Client == nil || e.Client.StartNS == nil {
		return
	}
	start := *e.Client.StartNS
	end := start
	if e.Client.EndNS != nil {
		end = *e.Client.EndNS
	}
	if s.Window == nil {
		s.Window = &Window{StartNS: start, EndNS: end}
		return
	}
	s.Window.StartNS = min(s.Window.StartNS, start)
	s.Window.EndNS = max(s.Window.EndNS, end)
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
