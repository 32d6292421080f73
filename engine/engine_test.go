package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"assay/cache/cas"
	"assay/engine/action"
	"assay/engine/event"
)

// lab is a cache, a workspace and a way to count what ran.
type lab struct {
	t         *testing.T
	cache     string
	workspace string
	mu        sync.Mutex
	ran       []string
}

func newLab(t *testing.T) *lab {
	return &lab{t: t, cache: t.TempDir(), workspace: t.TempDir()}
}

func (l *lab) write(name, text string) string {
	path := filepath.Join(l.workspace, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
	return path
}

func (l *lab) open() *Engine {
	l.t.Helper()
	e, err := Open(Options{Cache: l.cache, Workspace: l.workspace, MachineLock: filepath.Join(l.cache, "machine")})
	if err != nil {
		l.t.Fatal(err)
	}
	return e
}

func (l *lab) build(actions ...*action.Action) *Report {
	l.t.Helper()
	r, err := l.open().Build(l.t.Context(), actions, event.SinkFunc(func(event.Event) {}))
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// copyAction writes f(contents of its inputs) to out/x.
func (l *lab) pure(id string, f func(inputs string) string, sources []action.Source, deps ...action.Dep) *action.Action {
	a := &action.Action{ID: id, Where: id + ":1:1", Rule: "test", Version: 1, Sources: sources, Deps: deps, Attrs: map[string]any{"id": id}}
	a.Run = func(ctx context.Context, run *action.Run) error {
		l.mu.Lock()
		l.ran = append(l.ran, id)
		l.mu.Unlock()
		var text strings.Builder
		for _, s := range sources {
			data, err := os.ReadFile(run.Input(s.Role))
			if err != nil {
				return err
			}
			text.Write(data)
		}
		for _, d := range deps {
			data, err := os.ReadFile(filepath.Join(run.Input(d.Role), "x"))
			if err != nil {
				return err
			}
			text.Write(data)
		}
		return os.WriteFile(filepath.Join(run.Out, "x"), []byte(f(text.String())), 0o644)
	}
	return a
}

func (l *lab) took() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.ran, " ")
	l.ran = nil
	return s
}

func statuses(r *Report) string {
	var s []string
	for _, o := range r.Outcomes {
		s = append(s, fmt.Sprintf("%s=%s", o.Action.ID, o.Status))
	}
	return strings.Join(s, " ")
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// chain is a → b → c; b keeps only the first line of a.
func (l *lab) chain(text string) []*action.Action {
	path := l.write("src", text)
	same := func(s string) string { return s }
	return []*action.Action{
		l.pure("a", same, []action.Source{{Role: "src", Path: path}}),
		l.pure("b", func(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }, nil, action.Dep{Role: "a", ID: "a"}),
		l.pure("c", same, nil, action.Dep{Role: "b", ID: "b"}),
	}
}

func TestOnlyWhatChangedRuns(t *testing.T) {
	l := newLab(t)
	want(t, statuses(l.build(l.chain("one\ntwo")...)), "a=ran b=ran c=ran")
	want(t, l.took(), "a b c")
	want(t, statuses(l.build(l.chain("one\ntwo")...)), "a=cached b=cached c=cached")
	want(t, l.took(), "")
	// The second line reaches a and b; b's output is what it was, so c is not touched.
	want(t, statuses(l.build(l.chain("one\n2")...)), "a=ran b=reproduced c=cached")
	want(t, l.took(), "a b")
	// Going back finds all results again.
	want(t, statuses(l.build(l.chain("one\ntwo")...)), "a=cached b=cached c=cached")
}

func TestPlanSaysWhatBuildDoes(t *testing.T) {
	l := newLab(t)
	l.build(l.chain("one")...)
	verdicts, err := l.open().Plan(t.Context(), l.chain("uno"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range verdicts {
		got = append(got, fmt.Sprintf("%s=%s", v.Action.ID, v.State))
	}
	want(t, strings.Join(got, " "), "a=run b=unknown c=unknown")
	if why := verdicts[0].Why; len(why.Changes) != 1 || why.Changes[0].Component != "inputs.src" {
		t.Fatalf("why = %+v", why)
	}
	if verdicts[2].WaitsFor != "b" {
		t.Fatalf("c waits for %q", verdicts[2].WaitsFor)
	}
	l.took()
	l.build(l.chain("uno")...)
	last, ok := l.open().History().Last("c")
	if !ok || last.LastRun == nil || len(last.LastRun.Why.Changes) != 1 || last.LastRun.Why.Changes[0].From != "b" {
		t.Fatalf("history of c: %+v", last)
	}
}

func TestFailureStopsOnlyWhatNeedsIt(t *testing.T) {
	l := newLab(t)
	actions := l.chain("one")
	other := l.pure("other", func(string) string { return "x" }, nil)
	actions[1].Run = func(ctx context.Context, run *action.Run) error {
		fmt.Fprintln(run.Log, "about to fail")
		if err := os.WriteFile(filepath.Join(run.Out, "half"), []byte("half"), 0o644); err != nil {
			return err
		}
		return errors.New("no luck")
	}
	r := l.build(append(actions, other)...)
	want(t, statuses(r), "a=ran b=failed c=blocked other=ran")
	for _, text := range []string{"b:1:1: b failed: no luck", "| about to fail"} {
		if !strings.Contains(r.Err().Error(), text) {
			t.Errorf("the error does not say %q:\n%v", text, r.Err())
		}
	}
	// Nothing of the failed action is in the store.
	want(t, statuses(l.build(l.chain("one")...)), "a=cached b=ran c=ran")
	if left, _ := filepath.Glob(filepath.Join(l.cache, "work", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPanicIsAFailureOfTheAction(t *testing.T) {
	l := newLab(t)
	a := l.pure("a", nil, nil)
	a.Run = func(context.Context, *action.Run) error { panic("oops") }
	r := l.build(a)
	if !strings.Contains(r.Err().Error(), "internal error: oops") {
		t.Fatal(r.Err())
	}
}

func TestEvictedOutputIsMadeAgain(t *testing.T) {
	l := newLab(t)
	r := l.build(l.chain("one")...)
	e := l.open()
	entry, err := e.Blobs().Lookup(r.Outcomes[2].Output, "x")
	if err != nil {
		t.Fatal(err)
	}
	hex := entry.Digest.Encoded()
	if err := os.Remove(filepath.Join(l.cache, "cas", "sha256", hex[:2], hex)); err != nil {
		t.Fatal(err)
	}
	l.took()
	r = l.build(l.chain("one")...)
	// All three hold the same blob; the first to run puts it back for the others.
	want(t, statuses(r), "a=reproduced b=cached c=cached")
	if !strings.Contains(r.Outcomes[0].Why.Reason, "not in the store") {
		t.Fatalf("why: %q", r.Outcomes[0].Why.Reason)
	}
}

func TestEffectIsAskedBeforeItsReceiptIsTrusted(t *testing.T) {
	l := newLab(t)
	place := filepath.Join(l.workspace, "place")
	effect := func() *action.Action {
		return &action.Action{
			ID: "e", Rule: "effect", Version: 1, Class: action.Effect,
			Run: func(ctx context.Context, run *action.Run) error {
				return os.WriteFile(place, []byte("there"), 0o644)
			},
			Check: func(context.Context, cas.Ref, *cas.Store) error {
				_, err := os.Stat(place)
				return err
			},
		}
	}
	want(t, statuses(l.build(effect())), "e=ran")
	want(t, statuses(l.build(effect())), "e=cached")
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	want(t, statuses(l.build(effect())), "e=ran")
}

// A gate's verdict holds back what requires it, and is no part of its key.
func TestGateHoldsBackWhatRequiresIt(t *testing.T) {
	l := newLab(t)
	build := func(verdict string) *Report {
		gate := l.pure("gate", func(s string) string { return s }, []action.Source{{Role: "src", Path: l.write("verdict", verdict)}})
		gate.Verdict = func(tree cas.Ref, store *cas.Store) error {
			entry, err := store.Lookup(tree, "x")
			if err != nil {
				return err
			}
			if text, err := store.Bytes(entry.Ref()); err != nil || !strings.HasPrefix(string(text), "pass") {
				return errors.Join(err, &action.GateError{Reason: string(text)})
			}
			return nil
		}
		reader := l.pure("reader", func(s string) string { return s }, nil, action.Dep{Role: "verdict", ID: "gate"})
		run := l.pure("run", func(s string) string { return "measured" }, nil, action.Dep{Role: "verdict", ID: "gate", Gate: true})
		return l.build(gate, reader, run)
	}
	r := build("fail: 3 of 4")
	want(t, statuses(r), "gate=gate failed reader=ran run=blocked")
	if r.Failed() || !strings.Contains(r.Err().Error(), "gate did not pass: fail: 3 of 4") {
		t.Fatalf("Failed %v: %v", r.Failed(), r.Err())
	}
	// The verdict is a result: asking again does not judge again.
	l.took()
	want(t, statuses(build("fail: 3 of 4")), "gate=gate failed reader=cached run=blocked")
	want(t, l.took(), "")
	want(t, statuses(build("pass 1")), "gate=ran reader=ran run=ran")
	// Another passing verdict changes nothing behind the gate.
	want(t, statuses(build("pass 2")), "gate=ran reader=ran run=cached")
}

// short is an error that says itself what is the same of it each time.
type short struct{ error }

func (short) Brief() string { return "too small" }

// What is optional is waited for, and done without if it fails: the key says which
// of the two it was.
func TestOptionalInputMayFail(t *testing.T) {
	l := newLab(t)
	broken, trouble := true, errors.New("broken")
	build := func() *Report {
		part := l.pure("part", func(s string) string { return s }, nil)
		if broken {
			part.Run = func(context.Context, *action.Run) error { return trouble }
		}
		next := l.pure("next", func(s string) string { return s }, nil, action.Dep{Role: "part", ID: "part"})
		whole := l.pure("whole", nil, nil, action.Dep{Role: "part", ID: "part", Optional: true}, action.Dep{Role: "next", ID: "next", Optional: true})
		whole.Run = func(ctx context.Context, run *action.Run) error {
			return os.WriteFile(filepath.Join(run.Out, "x"), []byte(fmt.Sprint(len(run.Inputs), run.Absent)), 0o644)
		}
		verdicts, err := l.open().Plan(t.Context(), []*action.Action{part, next, whole})
		if err != nil || verdicts[2].State == "run" {
			t.Fatalf("before its inputs: %v, %v", verdicts, err)
		}
		return l.build(part, next, whole)
	}
	want(t, statuses(build()), "part=failed next=blocked whole=ran")
	want(t, statuses(build()), "part=failed next=blocked whole=cached")
	trouble = short{trouble} // another reason is another input
	want(t, statuses(build()), "part=failed next=blocked whole=ran")
	broken = false
	want(t, statuses(build()), "part=ran next=ran whole=ran")
}

func TestLockThatCannotBeTakenIsAFailure(t *testing.T) {
	l := newLab(t)
	if err := os.WriteFile(filepath.Join(l.cache, "lock"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := l.build(l.chain("one")...)
	want(t, statuses(r), "a=failed b=blocked c=blocked")
	if r.Err() == nil {
		t.Fatal("no error")
	}
}

// Going back to a former state is no run, and why must not claim one.
func TestWhyKnowsOfWhichKeyTheLastRunWas(t *testing.T) {
	l := newLab(t)
	for _, text := range []string{"one", "two", "one"} {
		l.build(l.chain(text)...)
	}
	last, _ := l.open().History().Last("a")
	if last.LastRun == nil || last.LastRun.Key == last.Key {
		t.Fatalf("the last run is taken for one of the present key: %+v", last)
	}
}

func TestInterruptKeepsWhatIsFinished(t *testing.T) {
	l := newLab(t)
	actions := l.chain("one")
	ctx, cancel := context.WithCancel(t.Context())
	actions[1].Run = func(ctx context.Context, run *action.Run) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	r, err := l.open().Build(ctx, actions, event.SinkFunc(func(event.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	want(t, statuses(r), "a=ran b=interrupted c=interrupted")
	if left, _ := filepath.Glob(filepath.Join(l.cache, "work", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	want(t, statuses(l.build(l.chain("one")...)), "a=cached b=ran c=ran")
}

// Two actions that each want all CPUs do not run at the same time; neither does an
// exclusive one beside another.
func TestResourcesKeepActionsApart(t *testing.T) {
	for name, claim := range map[string]func(*action.Action){
		"cpus":      func(a *action.Action) { a.CPUs = 1 << 20 },
		"exclusive": func(a *action.Action) { a.Exclusive = true },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			var inside, most atomic.Int64
			var actions []*action.Action
			for i := range 4 {
				a := l.pure(fmt.Sprintf("a%d", i), func(string) string {
					most.Store(max(most.Load(), inside.Add(1)))
					runtime.Gosched()
					inside.Add(-1)
					return "x"
				}, nil)
				claim(a)
				actions = append(actions, a)
			}
			if r := l.build(actions...); r.Err() != nil || most.Load() != 1 {
				t.Fatalf("%d at once, %v", most.Load(), r.Err())
			}
		})
	}
}

func TestSameActionWantedTwiceRunsOnce(t *testing.T) {
	l := newLab(t)
	var wg sync.WaitGroup
	var n atomic.Int64
	for range 4 {
		wg.Go(func() {
			a := l.pure("a", func(string) string { n.Add(1); return "x" }, nil)
			if r, err := l.open().Build(t.Context(), []*action.Action{a}, event.SinkFunc(func(event.Event) {})); err != nil || r.Err() != nil {
				t.Error(err, r.Err())
			}
		})
	}
	wg.Wait()
	if n.Load() != 1 {
		t.Fatalf("ran %d times", n.Load())
	}
}

func TestPlanNamesTheFileThatIsMissing(t *testing.T) {
	l := newLab(t)
	a := l.pure("a", nil, []action.Source{{Role: "src", Path: filepath.Join(l.workspace, "gone")}})
	if _, err := l.open().Plan(t.Context(), []*action.Action{a}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Fatal(err)
	}
}
