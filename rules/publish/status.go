package publish

import (
	"fmt"

	"github.com/opencontainers/go-digest"

	"assay/rules/internal/ledger"
	"assay/rules/internal/server"
	"assay/rules/validatefamily"
)

// The rungs of the ladder.
const (
	implemented = "implemented"
	validated   = "family-validated"
	qualified   = "AIPerf-qualified"
)

// imported is beside the ladder: such a row climbs no rung of it.
const imported = "imported: of unknown origin"

// Status is computed from evidence, never declared.
type Status struct {
	// State is "implemented", "family-validated", "AIPerf-qualified", or "imported:
	// of unknown origin".
	State string `json:"state"`
	// Detail says what keeps the row from the next rung, in a word.
	Detail string `json:"detail,omitempty"`
	// Reasons are all that keeps it from being qualified.
	Reasons []string `json:"reasons,omitempty"`
	// Criteria are the digests of the criteria by which the bundle was judged.
	Criteria digest.Digest `json:"criteria,omitempty"`
}

// String is the status as it is printed.
func (s Status) String() string {
	if s.Detail == "" {
		return s.State
	}
	return s.State + ", " + s.Detail
}

// status climbs the ladder. A verdict counts only for the bundle that was served
// and the file that was loaded; of several the first that passed.
func status(row Row, verdicts []validatefamily.Verdict) Status {
	if row.Imported != nil {
		return Status{State: imported, Reasons: append([]string{"nobody here saw the run"}, unqualified(row)...)}
	}
	s := Status{State: implemented, Detail: "not validated"}
	external := row.Server.External()
	for _, v := range verdicts {
		if external || v.Bundle != row.Profile.Bundle || v.ServedFile != row.Profile.ServedFile {
			continue
		}
		if v.Passed {
			s = Status{State: validated, Criteria: v.Criteria}
			break
		}
		s.Detail = "validation failed"
	}
	switch {
	case external:
		s.Detail = "the bundle was not ours to check"
		s.Reasons = []string{"an external server: nothing shows that it served this bundle"}
	case s.State == implemented:
		s.Reasons = []string{"no passing validation of the bundle that was served"}
	}
	s.Reasons = append(s.Reasons, unqualified(row)...)
	switch {
	case s.State == implemented:
	case len(s.Reasons) > 0:
		s.Detail = "not qualified"
	default:
		s.State = qualified
	}
	return s
}

// unverified says what it means that nobody ran an adapter against its engine.
func unverified(s server.Spec) string {
	return fmt.Sprintf("the adapter %q is unverified: Assay's tests have not run it against its engine", s.Adapter)
}

// unqualified lists what in the measurement itself keeps a row from being
// qualified.
func unqualified(row Row) []string {
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if row.Server.Unverified() {
		add("%s", unverified(row.Server))
	}
	if n := row.Figures.Measured - row.Figures.Counts[ledger.Completed]; n > 0 {
		add("%d of %d measured requests are not completed", n, row.Figures.Measured)
	}
	for _, s := range row.Samples {
		if s.Validation == nil && row.Imported == nil {
			add("sample %s was made without a validation to compare with", s.ID)
		}
		q := s.Join
		if others := q.Retried + q.ClientOnly + q.ServerOnly + q.Ambiguous + q.Unjoined; others > 0 {
			add("sample %s: %d requests are not joined one to one", s.ID, others)
		}
		if q.Identical < q.Compared {
			add("sample %s: %d answers are not shown to be identical at both ends", s.ID, q.Compared-q.Identical)
		}
		for _, f := range s.Findings {
			if f.Severity == ledger.Blocking {
				add("sample %s: finding %s: %s", s.ID, f.Code, f.Message)
			}
		}
	}
	return reasons
}
