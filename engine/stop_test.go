package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/cache/cas"
	"assay/engine/action"
	"assay/engine/event"
)

// series is three measurements of growing load, each behind a stop rule that looks at
// the one before, and a table of all that there is. What the measurements give is
// in files; a text that starts with "stop" ends the series.
func (l *lab) series(values ...string) []*action.Action {
	same := func(s string) string { return s }
	var actions []*action.Action
	table := l.pure("table", nil, nil)
	for i, value := range values {
		cell, rule := fmt.Sprintf("c%d", i+1), fmt.Sprintf("stop%d", i+1)
		run := l.pure(cell, same, []action.Source{{Role: "src", Path: l.write(cell, value)}})
		run.Class, run.Samples = action.Measurement, 1
		run.Environment = func() (map[string]string, error) { return nil, nil }
		if value == "reject" {
			run.Run = func(context.Context, *action.Run) error {
				return &action.RejectedError{Reason: "no good", Err: fmt.Errorf("in %s", l.workspace)}
			}
		}
		joined := l.pure(cell+"_joined", nil, nil, action.Dep{Role: "run", ID: cell})
		joined.Run = func(ctx context.Context, run *action.Run) error {
			l.note(joined.ID)
			found, err := filepath.Glob(filepath.Join(run.Input("run"), "*", "x"))
			if err != nil || len(found) != 1 {
				return fmt.Errorf("%v, %v", found, err)
			}
			return os.Link(found[0], filepath.Join(run.Out, "x"))
		}
		stop := l.pure(rule, same, nil, action.Dep{Role: "cell", ID: joined.ID})
		stop.Stop = func(tree cas.Ref, store *cas.Store) (string, error) {
			entry, err := store.Lookup(tree, "x")
			if err != nil {
				return "", err
			}
			data, err := store.Bytes(entry.Ref())
			why, ok := strings.CutPrefix(string(data), "stop ")
			if !ok {
				why = ""
			}
			return why, err
		}
		if i > 0 {
			run.Deps = append(run.Deps, action.Dep{ID: fmt.Sprintf("stop%d", i), Stop: true})
		}
		actions = append(actions, run, joined, stop)
		table.Deps = append(table.Deps, action.Dep{Role: cell, ID: joined.ID, Optional: true})
	}
	table.Run = func(ctx context.Context, run *action.Run) error {
		l.note(table.ID)
		data, err := json.Marshal(run.Absent)
		return errors.Join(err, os.WriteFile(filepath.Join(run.Out, "x"), data, 0o644))
	}
	return append(actions, table)
}

func (l *lab) note(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran = append(l.ran, id)
}

func (l *lab) plan(actions []*action.Action) string {
	l.t.Helper()
	verdicts, err := l.open().Plan(l.t.Context(), actions)
	if err != nil {
		l.t.Fatal(err)
	}
	var s []string
	for _, v := range verdicts {
		s = append(s, fmt.Sprintf("%s=%s", v.Action.ID, v.State))
	}
	return strings.Join(s, " ")
}

func (l *lab) output(r *Report, id string) string {
	l.t.Helper()
	for _, o := range r.Outcomes {
		if o.Action.ID == id {
			e := l.open()
			entry, err := e.Blobs().Lookup(o.Output, "x")
			if err != nil {
				l.t.Fatal(err)
			}
			data, err := e.Blobs().Bytes(entry.Ref())
			if err != nil {
				l.t.Fatal(err)
			}
			return string(data)
		}
	}
	l.t.Fatalf("no %s in the report", id)
	return ""
}

// A stop rule skips what waits for it and what needs that, which is no failure; what
// can do without is made, and knows why something is missing.
func TestStopRuleSkipsTheRest(t *testing.T) {
	l := newLab(t)
	actions := l.series("go", "stop enough", "go")
	want(t, l.plan(actions), "c1=run c1_joined=unknown stop1=unknown c2=unknown c2_joined=unknown stop2=unknown c3=unknown c3_joined=unknown stop3=unknown table=unknown")
	r := l.build(actions...)
	want(t, statuses(r), "c1=ran c1_joined=ran stop1=ran c2=ran c2_joined=ran stop2=ran c3=skipped c3_joined=skipped stop3=skipped table=ran")
	if err := r.Err(); err != nil {
		t.Fatalf("a skipped action is an error: %v", err)
	}
	skipped := `{"c3":{"Skipped":true,"By":"stop2","Reason":"enough"}}`
	want(t, l.output(r, "table"), skipped)
	want(t, l.plan(actions), "c1=cached c1_joined=cached stop1=cached c2=cached c2_joined=cached stop2=cached c3=skipped c3_joined=skipped stop3=skipped table=cached")
	l.took()
	want(t, statuses(l.build(actions...)), "c1=cached c1_joined=cached stop1=cached c2=cached c2_joined=cached stop2=cached c3=skipped c3_joined=skipped stop3=skipped table=cached")
	want(t, l.took(), "")

	// Another decision runs what it lets run, and nothing else is measured again.
	want(t, statuses(l.build(l.series("go", "go", "go")...)), "c1=cached c1_joined=cached stop1=cached c2=ran c2_joined=ran stop2=ran c3=ran c3_joined=ran stop3=ran table=ran")
	// What was measured is skipped all the same if the rule says so: the table follows
	// from what is declared, not from what happens to be there.
	r = l.build(l.series("go", "stop enough", "go")...)
	want(t, statuses(r), "c1=cached c1_joined=cached stop1=cached c2=cached c2_joined=cached stop2=cached c3=skipped c3_joined=skipped stop3=skipped table=cached")
	want(t, l.output(r, "table"), skipped)
}

// A failure is no decision: it blocks what needs it, names itself in what can do
// without, and never with what differs from one time to the next.
func TestFailedCellIsNamedInTheTable(t *testing.T) {
	l := newLab(t)
	r := l.build(l.series("go", "reject", "go")...)
	want(t, statuses(r), "c1=ran c1_joined=ran stop1=ran c2=failed c2_joined=blocked stop2=blocked c3=blocked c3_joined=blocked stop3=blocked table=ran")
	absent := `{"Skipped":false,"By":"c2","Reason":"sample rejected: no good"}`
	want(t, l.output(r, "table"), fmt.Sprintf(`{"c2":%s,"c3":%[1]s}`, absent))
	// It fails again, and the table is what it was; when it does not, the table is another.
	want(t, statuses(l.build(l.series("go", "reject", "go")...)), "c1=cached c1_joined=cached stop1=cached c2=failed c2_joined=blocked stop2=blocked c3=blocked c3_joined=blocked stop3=blocked table=cached")
	r = l.build(l.series("go", "on", "go")...)
	want(t, l.output(r, "table"), "{}")
	last, ok := l.open().History().Last("table")
	if !ok || !strings.HasPrefix(last.LastRun.Why.Reason, `absent removed`) {
		t.Errorf("why = %q", last.LastRun.Why.Reason)
	}
}

// Interrupted in the middle, the next build runs what is missing.
func TestInterruptedSeriesGoesOn(t *testing.T) {
	l := newLab(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	actions := l.series("go", "go", "go")
	second := actions[3].Run
	actions[3].Run = func(context.Context, *action.Run) error {
		cancel(errors.New("told to stop"))
		return ctx.Err()
	}
	r, err := l.open().Build(ctx, actions, event.SinkFunc(func(event.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	want(t, statuses(r), "c1=ran c1_joined=ran stop1=ran c2=interrupted c2_joined=interrupted stop2=interrupted c3=interrupted c3_joined=interrupted stop3=interrupted table=interrupted")
	actions[3].Run = second
	l.took()
	want(t, statuses(l.build(actions...)), "c1=cached c1_joined=cached stop1=cached c2=ran c2_joined=ran stop2=ran c3=ran c3_joined=ran stop3=ran table=ran")
	// The last rule and the table do not wait for each other.
	if took := l.took(); !strings.HasPrefix(took, "c2 c2_joined stop2 c3 c3_joined ") {
		t.Errorf("took %s", took)
	}
}
