package join

import (
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"slices"

	"assay/rules/aiperfrun"
	"assay/rules/internal/aiperf"
	"assay/rules/internal/dataset"
	"assay/rules/internal/fidelity"
	"assay/rules/internal/ledger"
	"assay/rules/internal/trace"
	"assay/starlark/graph"
)

// gates are the limits of a replay.
func gates(t *graph.Target) fidelity.Limits {
	return fidelity.Limits{MedianLagMS: t.Float("lag_p50_limit_ms"), P99LagMS: t.Float("lag_p99_limit_ms"), Rate: t.Float("rate_tolerance")}
}

// replay gathers what a scheduled sample says of its fidelity. A nil one is of a
// sample without a schedule, and does nothing.
type replay struct {
	facts trace.Facts
	due   ledger.Due
	fidelity.Builder
	waits *int // requests that waited for a connection
}

func readReplay(dir string, w *aiperfrun.Workload, limits fidelity.Limits) (*replay, error) {
	if w.Dataset == nil || !w.Dataset.Scheduled {
		return nil, nil
	}
	in := filepath.Join(dir, aiperfrun.DatasetDir)
	h, err := dataset.ReadHeader(in)
	if err != nil {
		return nil, err
	}
	plan, err := dataset.ReadPlan(in)
	if err != nil {
		return nil, err
	}
	r := &replay{due: ledger.Due{}, Builder: fidelity.Builder{Limits: limits, Expected: map[string]fidelity.Expected{}}}
	if err := json.Unmarshal(h.Facts, &r.facts); err != nil {
		return nil, fmt.Errorf("%s: facts: %w", dataset.HeaderFile, err)
	}
	for _, p := range plan {
		if p.AtNS != nil && p.Turn == 0 {
			r.due[p.Conversation] = *p.AtNS
			r.Expected[p.Conversation] = fidelity.Expected{PromptTokens: p.PromptTokens, TooLong: p.TooLong}
		}
	}
	return r, nil
}

// plannedTimes is nil without a schedule.
func (r *replay) plannedTimes() ledger.Due {
	if r == nil {
		return nil
	}
	return r.due
}

// watch counts the waits for connections as the figures pass.
func (r *replay) watch(figures iter.Seq2[aiperf.Figures, error]) iter.Seq2[aiperf.Figures, error] {
	if r == nil {
		return figures
	}
	return func(yield func(aiperf.Figures, error) bool) {
		for f, err := range figures {
			if err == nil && f.BlockedMS != nil && f.Phase != aiperf.Warmup {
				if r.waits == nil {
					r.waits = new(int)
				}
				if *f.BlockedMS > 0 {
					*r.waits++
				}
			}
			if !yield(f, err) {
				return
			}
		}
	}
}

func (r *replay) add(e *ledger.Entry) {
	if r != nil {
		r.Add(e)
	}
}

func (r *replay) report(s *ledger.Summary) *fidelity.Report {
	if r == nil {
		return nil
	}
	saturated := slices.ContainsFunc(s.Findings, func(f ledger.Finding) bool { return f.Code == ledger.ClientSaturated })
	return r.Report(r.facts, s, fidelity.Conditions{ConnectionWaits: r.waits, Saturated: saturated})
}
