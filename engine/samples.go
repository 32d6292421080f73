package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"assay/cache/ac"
	"assay/engine/action"
	"assay/engine/plan"
)

// Series is the samples of a measurement as it is declared now.
type Series struct {
	plan.Verdict
	All []ac.Sample // oldest first, also those that are not used
}

// Used reports whether the measurement's output holds the sample.
func (s *Series) Used(id string) bool {
	return slices.ContainsFunc(s.Samples, func(sample ac.Sample) bool { return sample.ID == id })
}

// Samples returns the series of the measurement with the given ID; actions hold
// what it needs.
func (e *Engine) Samples(ctx context.Context, actions []*action.Action, id string) (*Series, error) {
	verdicts, err := e.Plan(ctx, actions)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(verdicts, func(v plan.Verdict) bool { return v.Action.ID == id })
	switch v := verdicts[i]; {
	case v.Action.Class != action.Measurement:
		return nil, fmt.Errorf("%s: %s is made by %s, which measures nothing: it has a result and no samples", v.Action.Where, id, v.Action.Rule)
	case v.State == plan.Skipped:
		return nil, fmt.Errorf("%s: %s is skipped: %s", v.Action.Where, id, v.Why.Reason)
	case v.State == plan.Unknown:
		return nil, fmt.Errorf("%s: which samples %s has is not known before %s is built: assay build %s", v.Action.Where, id, v.WaitsFor, v.WaitsFor)
	}
	all, err := e.results.Samples(verdicts[i].Key)
	return &Series{Verdict: verdicts[i], All: all}, err
}

// Reject adds a person's rejection to the sample whose ID starts with prefix. The
// sample stays, and is not pooled any more.
func (e *Engine) Reject(ctx context.Context, s *Series, prefix, reason string) (ac.Sample, error) {
	release, err := e.use(ctx, nil)
	if err != nil {
		return ac.Sample{}, err
	}
	defer release()
	var found []ac.Sample
	var ids []string
	for _, sample := range s.All {
		ids = append(ids, sample.ID)
		if strings.HasPrefix(sample.ID, prefix) {
			found = append(found, sample)
		}
	}
	switch {
	case len(ids) == 0:
		return ac.Sample{}, errors.New(s.Action.ID + " has no samples")
	case len(found) == 0:
		return ac.Sample{}, fmt.Errorf("%s has no sample %s; it has %s", s.Action.ID, prefix, strings.Join(ids, ", "))
	case len(found) > 1:
		return ac.Sample{}, fmt.Errorf("%d samples of %s start with %s; it has %s", len(found), s.Action.ID, prefix, strings.Join(ids, ", "))
	}
	return found[0], e.results.Reject(s.Key, ac.Rejection{Sample: found[0].ID, Reason: reason, Time: time.Now().UTC()})
}
