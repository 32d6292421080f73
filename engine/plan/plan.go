// Package plan decides what a build has to do: for each action whether its result
// is there, whether it must run and why, or that this is not known before an
// input has run. The build asks the same code again with the inputs it has made.
package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/cache/ac"
	"assay/cache/cas"
	"assay/engine/action"
	"assay/engine/history"
	"assay/engine/key"
)

// State is the verdict on one action.
type State string

const (
	Cached  State = "cached"
	Run     State = "run"
	Unknown State = "unknown" // depends on the output of an action that must run first
)

// Verdict is what is known of one action.
type Verdict struct {
	Action *action.Action
	State  State
	Why    history.Why

	// Key, Preimage and Inputs are known unless the state is Unknown.
	Key      digest.Digest
	Preimage []byte
	Inputs   map[string]cas.Entry // of dependencies, by role
	Sources  map[string]digest.Digest
	// Output is the result if it is cached.
	Output cas.Ref
	// Samples are those already chosen for a measurement, Environment what it
	// was compared with.
	Samples     []ac.Sample
	Environment map[string]string
	// WaitsFor names the first dependency that must run.
	WaitsFor string
}

// Planner looks actions up.
type Planner struct {
	Blobs   *cas.Store
	Results *ac.Store
	History *history.Store
	// Digest returns the digest of a workspace file.
	Digest func(path string) (digest.Digest, error)
	// Replay takes recorded samples wherever they were made and never measures.
	Replay bool
}

// All plans actions that are given in dependency order.
func (p *Planner) All(ctx context.Context, actions []*action.Action) ([]Verdict, error) {
	outputs := map[string]cas.Ref{}
	verdicts := make([]Verdict, 0, len(actions))
	var errs []error
	for _, a := range actions {
		v, err := p.One(ctx, a, func(id string) (cas.Ref, bool) { ref, ok := outputs[id]; return ref, ok })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if v.State == Cached {
			outputs[a.ID] = v.Output
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, errors.Join(errs...)
}

// One plans a single action; output gives the outputs of its dependencies that
// are known.
func (p *Planner) One(ctx context.Context, a *action.Action, output func(id string) (cas.Ref, bool)) (Verdict, error) {
	v := Verdict{Action: a, Inputs: map[string]cas.Entry{}, Sources: map[string]digest.Digest{}}
	if err := ctx.Err(); err != nil {
		return v, err
	}
	pre := key.Preimage{
		Rule: a.Rule, Version: a.Version, Attrs: a.Attrs, Tools: a.Tools,
		Inputs: map[string]digest.Digest{},
	}
	for _, d := range a.Deps {
		ref, ok := output(d.ID)
		if !ok && d.Gate {
			continue // the key does not need it, only the run
		}
		if !ok {
			v.State, v.WaitsFor = Unknown, d.ID
			v.Why.Reason = "waits for " + d.ID
			return v, nil
		}
		entry, err := p.Blobs.Lookup(ref, d.Path)
		if err != nil {
			return v, fmt.Errorf("%s: %s: input %q from %s: %w", a.Where, a.ID, d.Role, d.ID, err)
		}
		v.Inputs[d.Role] = entry
		if !d.Gate {
			pre.Inputs[d.Role] = entry.Digest
		}
	}
	for _, s := range a.Sources {
		d, err := p.Digest(s.Path)
		if err != nil {
			return v, fmt.Errorf("%s: %s: input %q: %w", a.Where, a.ID, s.Role, err)
		}
		v.Sources[s.Role] = d
		pre.Inputs[s.Role] = d
	}
	var err error
	if v.Preimage, v.Key, err = pre.Encode(); err != nil {
		return v, fmt.Errorf("%s: %s: %w", a.Where, a.ID, err)
	}
	missing, err := p.lookup(ctx, &v)
	if err != nil {
		return v, fmt.Errorf("%s: %s: %w", a.Where, a.ID, err)
	}
	if v.State = Cached; missing != "" {
		v.State = Run
		v.Why = p.why(&v, missing)
	}
	return v, nil
}

// lookup finds the result in the store; otherwise it says what is missing.
func (p *Planner) lookup(ctx context.Context, v *Verdict) (missing string, err error) {
	if v.Action.Class == action.Measurement {
		return p.lookupSamples(v)
	}
	result, err := p.Results.Get(v.Key)
	if errors.Is(err, ac.ErrNoRecord) {
		return noResult, nil
	}
	if err == nil {
		err = p.Blobs.Complete(result.Output)
	}
	if errors.Is(err, cas.ErrMissing) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	v.Output = result.Output
	if v.Action.Class == action.Effect {
		if err := v.Action.Check(ctx, result.Output, p.Blobs); err != nil {
			return err.Error(), nil
		}
	}
	return "", nil
}

// noResult is the reason when the store knows nothing of a key.
const noResult = "no result for this key"

func (p *Planner) lookupSamples(v *Verdict) (missing string, err error) {
	series, err := p.Results.Samples(v.Key)
	if err != nil {
		return "", err
	}
	if len(series) == 0 {
		missing = noResult
	}
	if v.Environment, err = v.Action.Environment(); err != nil {
		return "", fmt.Errorf("observe the environment: %w", err)
	}
	var rejected int
	var lost string
	// Samples of unlike environments are never pooled. The environment here comes
	// first; without measuring, those where samples were made come in question too.
	groups := []group{{environment: v.Environment}}
	for _, s := range series {
		if s.Rejected != "" {
			rejected++
			continue
		}
		if err := p.Blobs.Complete(s.Output); errors.Is(err, cas.ErrMissing) {
			lost = err.Error()
			continue
		} else if err != nil {
			return "", err
		}
		i := slices.IndexFunc(groups, func(g group) bool { return differing(s.Environment, g.environment) == "" })
		if i < 0 {
			i, groups = len(groups), append(groups, group{environment: s.Environment})
		}
		groups[i].samples = append(groups[i].samples, s)
	}
	chosen := groups[0]
	if p.Replay {
		for _, g := range groups {
			if len(g.samples) > len(chosen.samples) && len(chosen.samples) < v.Action.Samples {
				chosen = g
			}
		}
	}
	// The oldest, so that samples which somebody adds change nobody's results.
	v.Samples = chosen.samples[:min(len(chosen.samples), v.Action.Samples)]
	if have := len(v.Samples); have < v.Action.Samples {
		if missing != "" { // there is no series at all
			return missing, nil
		}
		missing = fmt.Sprintf("%d of %d samples", have, v.Action.Samples)
		if rejected > 0 {
			missing += fmt.Sprintf(", %d rejected", rejected)
		}
		for _, g := range groups[1:] {
			missing += fmt.Sprintf(", %d from another environment (%s)", len(g.samples), differing(g.environment, v.Environment))
		}
		if lost != "" {
			missing += ", " + lost
		}
		return missing, nil
	}
	v.Output, err = Pool(p.Blobs, v.Samples)
	return "", err
}

// group is the accepted samples of one environment, oldest first.
type group struct {
	environment map[string]string
	samples     []ac.Sample
}

// Pool makes the output of a measurement: a tree with one directory a sample.
func Pool(blobs *cas.Store, samples []ac.Sample) (cas.Ref, error) {
	var t cas.Tree
	for _, s := range samples {
		t.Entries = append(t.Entries, cas.Entry{Name: s.ID, Type: "dir", Digest: s.Output.Digest, Size: s.Output.Size})
	}
	slices.SortFunc(t.Entries, func(a, b cas.Entry) int { return strings.Compare(a.Name, b.Name) })
	return blobs.PutTreeBlob(t)
}

// differing names the first component in which two environments differ; what is
// known of one only is a difference.
func differing(there, here map[string]string) string {
	names := map[string]string{}
	maps.Copy(names, there)
	maps.Copy(names, here)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, known := there[name]
		if now, ok := here[name]; ok != known || now != before {
			return fmt.Sprintf("%s: %q there, %q here", name, before, now)
		}
	}
	return ""
}

// why compares the key with that of the last action of the same label.
func (p *Planner) why(v *Verdict, missing string) history.Why {
	last, ok := p.History.Last(v.Action.ID)
	switch {
	case !ok && missing == noResult:
		return history.Why{Reason: "first build"}
	case !ok || last.Key == v.Key:
		return history.Why{Reason: missing}
	}
	before, err := p.Blobs.Bytes(last.Preimage)
	if err != nil {
		return history.Why{Reason: "its key changed; the former preimage cannot be read: " + err.Error()}
	}
	changes, err := key.Diff(before, v.Preimage)
	if err != nil {
		return history.Why{Reason: "its key changed: " + err.Error()}
	}
	why := history.Why{Reason: "its key changed"}
	for _, c := range changes {
		change := history.Change{Change: c}
		for _, d := range v.Action.Deps {
			if c.Component == key.Path("inputs", d.Role) {
				change.From = d.ID
			}
		}
		why.Changes = append(why.Changes, change)
	}
	if len(why.Changes) > 0 {
		why.Reason = why.Changes[0].String()
		if from := why.Changes[0].From; from != "" {
			why.Reason += ", from " + from
		}
	}
	// What an effect left is of course not what another key would leave.
	if missing != noResult && v.Action.Class != action.Effect {
		why.Reason += "; " + missing
	}
	return why
}
