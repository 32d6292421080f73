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
	Skipped State = "skipped" // a stop rule decided that it does not run
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
	// Absent are the optional inputs that are not there, by role; Skip says who
	// decided that the action does not run, and why.
	Absent map[string]action.Absence
	Skip   *action.Absence
}

// Dependency is what is known of an action that others depend on.
type Dependency struct {
	Output cas.Ref         // empty if it is not known yet, or absent
	Absent *action.Absence // why there will be no output
	Stop   string          // of a stop rule: why what waits for it is skipped
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
	known := map[string]Dependency{}
	verdicts := make([]Verdict, 0, len(actions))
	var errs []error
	for _, a := range actions {
		v, err := p.One(ctx, a, func(id string) Dependency { return known[id] })
		of := Dependency{Absent: v.Skip}
		if v.State == Cached {
			of.Output = v.Output
			if a.Stop != nil {
				of.Stop, err = a.Stop(v.Output, p.Blobs)
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		known[a.ID] = of
		verdicts = append(verdicts, v)
	}
	return verdicts, errors.Join(errs...)
}

// One plans a single action; of tells what is known of its dependencies.
func (p *Planner) One(ctx context.Context, a *action.Action, of func(id string) Dependency) (Verdict, error) {
	v := Verdict{Action: a, Inputs: map[string]cas.Entry{}, Sources: map[string]digest.Digest{}, Absent: map[string]action.Absence{}}
	if err := ctx.Err(); err != nil {
		return v, err
	}
	if v.Skip = skip(a, of); v.Skip != nil {
		v.State, v.Why.Reason = Skipped, v.Skip.Reason
		return v, nil
	}
	pre := key.Preimage{
		Rule: a.Rule, Version: a.Version, Attrs: a.Attrs, Tools: a.Tools,
		Inputs: map[string]digest.Digest{}, Absent: map[string]string{},
	}
	for _, d := range a.Deps {
		dep := of(d.ID)
		if d.Optional && dep.Absent != nil {
			v.Absent[d.Role], pre.Absent[d.Role] = *dep.Absent, dep.Absent.String()
			continue
		}
		known := dep.Output.Digest != ""
		if d.Stop && known || d.Gate && !known {
			continue // the key does not need it, only the run
		}
		if !known {
			v.State, v.WaitsFor = Unknown, d.ID
			v.Why.Reason = "waits for " + d.ID
			return v, nil
		}
		entry, err := p.Blobs.Lookup(dep.Output, d.Path)
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

// skip says why a is not to run: a stop rule said so, for it or for what it needs.
// It is nil if a may run.
func skip(a *action.Action, of func(id string) Dependency) *action.Absence {
	for _, d := range a.Deps {
		switch dep := of(d.ID); {
		case d.Stop && dep.Stop != "":
			return &action.Absence{Skipped: true, By: d.ID, Reason: dep.Stop}
		case dep.Absent != nil && dep.Absent.Skipped && !d.Optional:
			return dep.Absent
		}
	}
	return nil
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
			if c.Component == key.Path("inputs", d.Role) || c.Component == key.Path("absent", d.Role) {
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
