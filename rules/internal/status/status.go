// Package status computes how far a row has come, from its evidence alone: planned,
// implemented, family-validated, AIPerf-qualified, or beside this ladder. Nothing
// sets a status; less evidence never gives a higher one.
package status

import (
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"assay/rules/bundle"
	"assay/rules/internal/dataset"
	"assay/rules/internal/ledger"
	"assay/rules/internal/server"
	"assay/rules/join"
	"assay/rules/validatefamily"
)

// State is a rung of the ladder, or a place beside it.
type State string

const (
	Planned     State = "planned"
	Implemented State = "implemented"
	Validated   State = "family-validated"
	Qualified   State = "AIPerf-qualified"

	// Unsupported: the model cannot do what the workload asks. Blocked: it could, and
	// something else is in the way. Both have a reason.
	Unsupported State = "unsupported"
	Blocked     State = "blocked"
	// Imported: nobody here saw the run; such a row climbs no rung.
	Imported State = "imported: of unknown origin"
)

// States lists the states from the highest rung down, then those beside the ladder.
var States = []State{Qualified, Validated, Implemented, Planned, Blocked, Unsupported, Imported}

// Rung is the height on the ladder, from 1 for planned; 0 is beside it.
func (s State) Rung() int {
	return 1 + slices.Index([]State{Planned, Implemented, Validated, Qualified}, s)
}

// The reasons for which a piece of evidence is not there.
const (
	NoBundle     = "there is no bundle"
	NotValidated = "no passing validation of the bundle that was served"
	NoJoin       = "there is no joined run"
)

// Status is computed from evidence, never declared.
type Status struct {
	State State `json:"state"`
	// Detail says what keeps the row from the next rung, in a word.
	Detail string `json:"detail,omitempty"`
	// Reasons are all that keeps it from being qualified.
	Reasons []string `json:"reasons,omitempty"`
	// Criteria is the digest of the criteria by which the bundle was judged.
	Criteria digest.Digest `json:"criteria,omitempty"`
	// Unjudged is what the verdict that passed does not tell.
	Unjudged []string `json:"unjudged,omitempty"`
}

// String is the status as it is printed.
func (s Status) String() string {
	if s.Detail == "" {
		return string(s.State)
	}
	return string(s.State) + ", " + s.Detail
}

// Evidence is all that a status rests on. What is missing is nil or zero.
type Evidence struct {
	// Bundle describes the bundle of the row, once it is built.
	Bundle *bundle.Info
	// Endpoint is what the workload needs the model to do, if that is known.
	Endpoint string
	// Verdicts are those that the row may rest on. One counts only for the bundle
	// that was served and the file that was loaded; of several the first that passed.
	Verdicts []validatefamily.Verdict
	// Join is the account of the row's samples, which have to be so many.
	Join    *join.Joined
	Samples int
}

// Of climbs the ladder.
func Of(e Evidence) Status {
	if e.Join != nil && len(e.Join.Samples) > 0 && e.Join.Samples[0].Imported != nil {
		return Status{State: Imported, Reasons: append([]string{"nobody here saw the run"}, unqualified(e)...)}
	}
	if e.Bundle == nil {
		return Status{State: Planned, Detail: "not built", Reasons: []string{NoBundle}}
	}
	if e.Endpoint != "" && !slices.Contains(e.Bundle.Tasks, e.Endpoint) {
		return Status{State: Unsupported, Reasons: []string{fmt.Sprintf("%s is no task of family %s; it has %q", e.Endpoint, e.Bundle.Family, e.Bundle.Tasks)}}
	}
	s := Status{State: Implemented, Detail: "not validated"}
	external := e.Join != nil && len(e.Join.Samples) > 0 && e.Join.Samples[0].Facts.Server.External()
	for _, v := range e.Verdicts {
		if external || !e.judges(v) {
			continue
		}
		if v.Passed {
			s = Status{State: Validated, Criteria: v.Criteria, Unjudged: v.Unjudged()}
			break
		}
		if s.Detail = "validation failed"; v.Partial {
			s.Detail = "validated in part"
		}
	}
	switch {
	case external:
		s.Detail = "the bundle was not ours to check"
		s.Reasons = []string{"an external server: nothing shows that it served this bundle"}
	case s.State == Implemented:
		s.Reasons = []string{NotValidated}
	}
	s.Reasons = append(s.Reasons, unqualified(e)...)
	switch {
	case s.State == Implemented:
	case e.Join == nil:
		s.Detail = "not measured"
	case len(s.Reasons) > 0:
		s.Detail = "not qualified"
	default:
		s.State = Qualified
	}
	return s
}

// judges says whether a verdict is on the bundle of the row and, if it was served,
// on the file that was loaded.
func (e Evidence) judges(v validatefamily.Verdict) bool {
	if v.Bundle != e.Bundle.Digest || v.ServedFile == "" { // of somebody else's server nothing is known
		return false
	}
	if e.Join != nil {
		for _, s := range e.Join.Samples {
			if s.Facts.ServedFile != v.ServedFile {
				return false
			}
		}
	}
	return true
}

// Unverified says what it means that nobody ran an adapter against its engine.
func Unverified(s server.Spec) string {
	return fmt.Sprintf("the adapter %q is unverified: Assay's tests have not run it against its engine", s.Adapter)
}

// unqualified lists what in the measurement itself keeps a row from being
// qualified.
func unqualified(e Evidence) []string {
	if e.Join == nil {
		return []string{NoJoin}
	}
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	j := e.Join
	if n := len(j.Samples); n < max(e.Samples, 1) {
		add("%d of %d samples", n, max(e.Samples, 1))
	}
	if len(j.Samples) > 0 && j.Samples[0].Facts.Server.Unverified() {
		add("%s", Unverified(j.Samples[0].Facts.Server))
	}
	if j.Row.Measured == 0 {
		add("no request was measured")
	}
	if j.Chat != nil && j.Chat.Facts.History == dataset.HistoryRemoved {
		add("the history was removed on purpose: a counter-proof qualifies nothing")
	}
	// A replay offers what was recorded: what a server refuses of it is its result.
	replayed := !slices.ContainsFunc(j.Samples, func(s join.Sample) bool { return s.Replay == nil })
	if n := j.Row.Measured - j.Row.Counts[ledger.Completed]; n > 0 && !replayed {
		add("%d of %d measured requests are not completed", n, j.Row.Measured)
	}
	for _, s := range j.Samples {
		if s.Replay != nil {
			for _, why := range s.Replay.Unmet() {
				add("sample %s: the replay misses a gate: %s", s.ID, why)
			}
		}
		if a := s.Answers; a != nil && a.Judged == 0 {
			add("sample %s: none of the answers that depend on the history could be judged", s.ID)
		}
		if s.Imported == nil {
			if s.Facts.Validation == nil {
				add("sample %s was made without a validation to compare with", s.ID)
			}
			if e.Bundle != nil && s.Facts.Bundle.Digest != e.Bundle.Digest {
				add("sample %s served the bundle %s, and the row's is %s", s.ID, s.Facts.Bundle.Digest, e.Bundle.Digest)
			}
		}
		q := s.Ledger.Quality
		if others := q.Retried + q.ClientOnly + q.ServerOnly + q.Ambiguous + q.Unjoined; others > 0 {
			add("sample %s: %d requests are not joined one to one", s.ID, others)
		}
		if q.Identical < q.Compared {
			add("sample %s: %d answers are not shown to be identical at both ends", s.ID, q.Compared-q.Identical)
		}
		for _, f := range s.Ledger.Findings {
			if f.Severity == ledger.Blocking {
				add("sample %s: finding %s: %s", s.ID, f.Code, f.Message)
			}
		}
	}
	return reasons
}
