package exports

import (
	"cmp"
	"fmt"
	"slices"

	"assay/rules/internal/ledger"
)

// Codes of findings about the files, beside those of the ledger. What is of
// another run is ledger.WrongRun.
const (
	MissingFile      ledger.Code = "missing_file"
	NothingCompleted ledger.Code = "nothing_completed"
	OtherVersion     ledger.Code = "other_version"
	StaleFile        ledger.Code = "stale_file"
	UnreadFile       ledger.Code = "unread_file"
)

// Codes lists them.
var Codes = []ledger.Code{MissingFile, NothingCompleted, OtherVersion, StaleFile, UnreadFile}

var meaning = map[ledger.Code]struct{ message, consequence string }{
	MissingFile:      {"files that AIPerf writes are not there", "what they would have shown is not known"},
	NothingCompleted: {"no measured request completed", "there is no latency and no throughput to speak of"},
	OtherVersion:     {"the files have not the form of AIPerf 0.13.0", "what is not understood was passed over"},
	StaleFile:        {"files that another run may have left here", "the folder may hold more than one run"},
	UnreadFile:       {"files that could not be read", "the audit goes on without them"},
	ledger.WrongRun:  {"records that are not of this run", "nothing that rests on them is evidence of this run"},
}

// findings gathers evidence by code.
type findings map[ledger.Code]*ledger.Finding

// ranks sorts severities, the worst first.
var ranks = []ledger.Severity{ledger.Blocking, ledger.Warning, ledger.Info}

func rank(s ledger.Severity) int { return slices.Index(ranks, s) }

func (f findings) add(code ledger.Code, severity ledger.Severity, requestID, detail string, args ...any) {
	m := meaning[code]
	f.merge(ledger.Finding{
		Code: code, Severity: severity, Message: m.message, Consequence: m.consequence, Count: 1,
		Evidence: []ledger.Evidence{{RequestID: requestID, Detail: fmt.Sprintf(detail, args...)}},
	})
}

// merge takes a finding over: one of a code that is there adds its evidence.
func (f findings) merge(x ledger.Finding) {
	have := f[x.Code]
	if have == nil {
		f[x.Code] = &x
		return
	}
	if rank(x.Severity) < rank(have.Severity) {
		have.Severity = x.Severity
	}
	have.Count += x.Count
	room := ledger.MaxEvidence - len(have.Evidence)
	have.Evidence = append(have.Evidence, x.Evidence[:min(max(room, 0), len(x.Evidence))]...)
}

// Merge puts findings of two sources into one list, a finding for each code.
func Merge(a, b []ledger.Finding) []ledger.Finding {
	all := findings{}
	for _, x := range slices.Concat(a, b) {
		x.Evidence = slices.Clone(x.Evidence)
		all.merge(x)
	}
	return all.list()
}

// list sorts by severity, the worst first, then by code.
func (f findings) list() []ledger.Finding {
	all := make([]ledger.Finding, 0, len(f))
	for _, x := range f {
		all = append(all, *x)
	}
	slices.SortFunc(all, func(a, b ledger.Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.Code, b.Code))
	})
	return all
}

// unread notes a file that the audit can do without. The error names it.
func (r *Run) unread(err error) {
	r.found.add(UnreadFile, ledger.Warning, "", "%v", err)
}
