package validatefamily

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"assay/engine/action"
	"assay/rules/internal/client"
	"assay/rules/internal/host"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/testbed"
)

// Kinds of cases.
const (
	kindGreedy    = "greedy"
	kindLogProb   = "logprob"
	kindStream    = "stream"
	kindRefused   = "refused"
	kindNative    = "native"
	kindCancel    = "cancel"
	kindContext   = "context"
	kindTokenizer = "tokenizer"
)

var kinds = []string{kindGreedy, kindLogProb, kindStream, kindRefused, kindNative, kindCancel, kindContext, kindTokenizer}

// notSelected is the detail of cases that the target leaves out.
const notSelected = "not selected"

// Ids of the cases that judge all prompts together.
const (
	allPrompts     = "all prompts"
	divergentShare = "divergent share"
)

// validator judges one bundle.
type validator struct {
	bed       *testbed.Testbed
	book      *rulebook
	client    *client.Client
	run       *action.Run
	wanted    []string // kinds and ids of cases; empty is all
	verdict   Verdict
	questions []Question
	received  []received
	trouble   []error // requests that failed for a reason other than the request
	sent      int
}

// options are what the target says.
type options struct {
	withClient bool
	cases      []string
}

func validate(ctx context.Context, plan testbed.Plan, o options, run *action.Run) (err error) {
	memory := watchMemory()
	bed, err := testbed.New(ctx, plan, run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	book, err := readRulebook(run.Input(criteriaRole), bed.Family.Tasks)
	if err != nil {
		return err
	}
	if err := errors.Join(book.checkCases(o.cases), bed.VerifyBundle()); err != nil {
		return err
	}
	if bed.ServedFile != "" { // of somebody else's server nothing is known
		if err := book.provenance.madeFrom(bed.ServedFile, bed.Bundle.Revision); err != nil {
			return err
		}
	}
	srv, err := bed.Start(ctx)
	if err != nil {
		return memory.check(err)
	}
	v := &validator{bed: bed, book: book, client: client.New(srv.URL()), run: run, wanted: o.cases, verdict: Verdict{
		Version: 2, Partial: len(o.cases) > 0, Bundle: bed.Bundle.Digest, ServedFile: bed.ServedFile, Family: bed.Family.ID,
		Criteria: book.digests[criteriaFile], CriteriaRevision: book.criteria.Revision,
		Prompts: book.digests[promptsFile], References: book.digests[referencesFile], Provenance: book.digests[provenanceFile],
		Environment: host.Observe(bed.CPUs.Allowed).Environment(len(bed.CPUs.Server), len(bed.CPUs.Client), bed.CPUs.Shared),
		Packages:    bed.Packages,
		Counts:      map[Outcome]int{Pass: 0, Fail: 0, Unsupported: 0, Skipped: 0},
	}}
	runErr := v.all(ctx, o.withClient)
	if err := errors.Join(runErr, srv.Stop()); err != nil {
		return memory.check(err)
	}
	var lost *OutOfMemoryError
	if errors.As(memory.check(errors.Join(v.trouble...)), &lost) {
		return lost
	}
	if err := v.native(srv.Records()); err != nil {
		return err
	}
	after, err := bed.BundleDigest()
	if err != nil {
		return err
	}
	if after != bed.Bundle.Digest {
		return fmt.Errorf("the bundle's digest was %s before the validation and is %s after it", bed.Bundle.Digest, after)
	}
	return v.write()
}

// checkCases refuses a selection of what there is not.
func (b *rulebook) checkCases(cases []string) error {
	var errs []error
	for _, c := range cases {
		known := slices.Contains(kinds, c) || slices.ContainsFunc(b.prompts, func(p Prompt) bool { return p.ID == c })
		if !known {
			errs = append(errs, fmt.Errorf("cases: %q is neither a kind of case (%q) nor a prompt of %s", c, kinds, promptsFile))
		}
	}
	return errors.Join(errs...)
}

// selected says whether a case is to be tried.
func (v *validator) selected(kind, id string) bool {
	return len(v.wanted) == 0 || slices.Contains(v.wanted, kind) || slices.Contains(v.wanted, id)
}

func (v *validator) skip(kind, id string) {
	v.add(Case{ID: id, Kind: kind, Outcome: Skipped, Detail: notSelected})
}

// all runs every case. A case that fails is a verdict; an error means that no
// verdict is possible.
func (v *validator) all(ctx context.Context, withClient bool) error {
	var errs []error
	for _, check := range []func(context.Context) error{
		v.prompts, v.cancel, v.overlong,
		func(ctx context.Context) error { return v.tokenizer(ctx, withClient) },
	} {
		if err := check(ctx); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return errors.Join(errs...)
}

func (v *validator) add(c Case) {
	v.verdict.Cases = append(v.verdict.Cases, c)
	v.verdict.Counts[c.Outcome]++
}

// ask sends a request with an id of its own.
func (v *validator) ask(ctx context.Context, task string, body map[string]any, stream bool, stopAfter int) (*client.Answer, error) {
	v.sent++
	got, err := v.client.Do(ctx, client.Request{
		ID: fmt.Sprintf("validate-%d", v.sent), Endpoint: task, Body: body, Stream: stream, StopAfter: stopAfter,
	})
	if err != nil || got.Status >= 500 || got.Status == http.StatusOK && got.Error != nil {
		v.trouble = append(v.trouble, errors.New(describe(got, err)))
	}
	return got, err
}

// askPrompt is ask for an answer that is read to its end, of a prompt.
func (v *validator) askPrompt(ctx context.Context, p Prompt, body map[string]any, stream bool) (*client.Answer, error) {
	got, err := v.ask(ctx, p.Task, body, stream, 0)
	if err == nil && got.Status == http.StatusOK && got.Error == nil {
		v.received = append(v.received, received{fmt.Sprintf("validate-%d", v.sent), p.ID, got})
	}
	return got, err
}

// Body is the request's body for a prompt: the family's sampling parameters, and
// greedy in any case.
func (p Prompt) Body(model string, generation json.RawMessage) (map[string]any, error) {
	body := map[string]any{}
	if len(generation) > 0 {
		if err := json.Unmarshal(generation, &body); err != nil {
			return nil, fmt.Errorf("generation parameters: %w", err)
		}
	}
	body["model"], body["temperature"], body["max_tokens"] = model, 0, p.MaxTokens
	if p.Task == "chat" {
		body["messages"] = p.Messages
	} else {
		body["prompt"] = p.Prompt
	}
	return body, nil
}

func (v *validator) body(p Prompt) (map[string]any, error) {
	return p.Body(v.bed.Spec.Model, v.bed.Family.Generation)
}

// prompts asks each prompt: buffered, to compare the answer with its reference, with
// log-probabilities, and streamed.
func (v *validator) prompts(ctx context.Context) error {
	var tally tally
	for i, p := range v.book.prompts {
		v.run.Progress(i, len(v.book.prompts), "prompts")
		var wanted []string
		tries := []string{kindGreedy, kindLogProb, kindStream}
		if p.Refused {
			tries = []string{kindRefused}
		}
		for _, kind := range tries {
			switch {
			case !v.bed.Family.Has(p.Task):
				v.add(Case{ID: p.ID, Kind: kind, Outcome: Unsupported, Detail: fmt.Sprintf("the family has no task %q", p.Task)})
			case !v.selected(kind, p.ID):
				v.skip(kind, p.ID)
			default:
				wanted = append(wanted, kind)
			}
		}
		if p.Refused {
			if len(wanted) > 0 {
				if err := v.refused(ctx, p); err != nil {
					return err
				}
			}
			continue
		}
		if len(wanted) == 0 && !(v.bed.Family.Has(p.Task) && v.selected(kindNative, p.ID)) {
			continue
		}
		if err := v.prompt(ctx, p, wanted, &tally); err != nil {
			return err
		}
	}
	tally.judge(v)
	return nil
}

// tally is what is judged over all prompts.
type tally struct {
	asked  int
	parted []string // ids of prompts whose answer parts at a near tie
	given  int      // answers that came with log-probabilities
	pairs  []pair
	steps  int
}

func (v *validator) prompt(ctx context.Context, p Prompt, kinds []string, t *tally) error {
	body, err := v.body(p)
	if err != nil {
		return err
	}
	got, err := v.askPrompt(ctx, p, body, false)
	if err != nil || got.Status != http.StatusOK {
		for _, kind := range kinds {
			v.add(Case{ID: p.ID, Kind: kind, Outcome: Fail, Prompt: p.asked(), Detail: describe(got, err)})
		}
		return nil
	}
	v.questions = append(v.questions, Question{p, Answer{
		Text: got.Text, PromptTokens: got.PromptTokens, CompletionTokens: got.CompletionTokens, FinishReason: got.FinishReason,
	}})
	for _, kind := range kinds {
		switch kind {
		case kindGreedy:
			c, parted := v.judge(p, got)
			t.asked++
			if parted {
				t.parted = append(t.parted, p.ID)
			}
			v.add(c)
		case kindLogProb:
			v.logProb(ctx, p, body, got, t)
		case kindStream:
			v.stream(ctx, p, body, got)
		}
	}
	return nil
}

// refused sends what the family says must be refused, buffered and streamed.
func (v *validator) refused(ctx context.Context, p Prompt) error {
	body, err := v.body(p)
	if err != nil {
		return err
	}
	c := Case{ID: p.ID, Kind: kindRefused, Outcome: Pass, Prompt: p.asked()}
	for _, stream := range []bool{false, true} {
		got, err := v.ask(ctx, p.Task, body, stream, 0)
		if err != nil || got.Status != http.StatusBadRequest || got.Error == nil || got.Error.Message == "" {
			c.Outcome = Fail
			c.Detail = "is not refused with 400 and a reason: " + describe(got, err)
			break
		}
		c.Detail = "refused: " + got.Error.Message
	}
	v.add(c)
	return nil
}

func (t *tally) judge(v *validator) {
	if t.asked > 0 {
		v.add(v.book.criteria.Greedy.share(t.parted, t.asked))
	}
	if l := v.book.criteria.LogProb; l != nil && t.given > 0 {
		d := measure(t.pairs, t.steps)
		c := Case{ID: allPrompts, Kind: kindLogProb, Outcome: Pass, Detail: d.String(), Distance: &d}
		if why := l.judge(d); why != "" {
			c.Outcome, c.Detail = Fail, why+": "+c.Detail
		}
		v.add(c)
	}
}

// asked is what the model was asked, as evidence.
func (p Prompt) asked() json.RawMessage {
	var ask any = p.Prompt
	if p.Task == "chat" {
		ask = p.Messages
	}
	data, _ := json.Marshal(ask) // it came from JSON
	return data
}

func (v *validator) judge(p Prompt, got *client.Answer) (c Case, parted bool) {
	ref := v.book.references[p.ID]
	c = Case{ID: p.ID, Kind: kindGreedy, Outcome: Pass, Prompt: p.asked(), Expected: ref.Text, Got: got.Text}
	if got.PromptTokens != nil && *got.PromptTokens != ref.PromptTokens.Count {
		c.Outcome = Fail
		c.Detail = fmt.Sprintf("the server counts %d prompt tokens, the reference %d", *got.PromptTokens, ref.PromptTokens.Count)
		return c, false
	}
	equal, parted, detail := v.book.criteria.Greedy.judge(got.Text, ref, v.book.ends)
	if equal {
		detail = ref.ends(got)
		equal = detail == ""
	}
	c.Detail = detail
	if !equal && !parted {
		c.Outcome = Fail
	}
	return c, parted
}

// ends says how an answer of equal text ended in another way than its reference;
// empty if it did not. Engines differ in whether they count the token that ends it.
func (r Reference) ends(got *client.Answer) string {
	if got.FinishReason != r.FinishReason {
		return fmt.Sprintf("the text is that of the reference, the finish reason is %q and the reference's %q", got.FinishReason, r.FinishReason)
	}
	n, want := got.CompletionTokens, int64(len(r.Tokens))
	if n == nil || *n == want || r.FinishReason == "stop" && *n == want-1 {
		return ""
	}
	return fmt.Sprintf("the text is that of the reference, of %d tokens and not of %d", *n, want)
}

// logProb asks again, with log-probabilities, and takes their distance from the
// reference's. They are judged over all prompts together: over one they are too few.
func (v *validator) logProb(ctx context.Context, p Prompt, body map[string]any, whole *client.Answer, t *tally) {
	c := Case{ID: p.ID, Kind: kindLogProb, Outcome: Pass}
	if v.book.criteria.LogProb == nil {
		c.Outcome, c.Detail = Skipped, "the criteria say nothing of log-probabilities"
		v.add(c)
		return
	}
	body = with(body, "logprobs", any(alternatives))
	if p.Task == "chat" {
		body = with(with(body, "logprobs", true), "top_logprobs", alternatives)
	}
	got, err := v.askPrompt(ctx, p, body, false)
	switch {
	case err == nil && got.Status == http.StatusBadRequest && got.Error != nil && got.Error.Param == "logprobs",
		err == nil && got.Status == http.StatusOK && len(got.LogProbs) == 0 && got.Text != "":
		c.Outcome, c.Detail = Unsupported, "the engine gives no log-probabilities"
	case err != nil || got.Status != http.StatusOK:
		c.Outcome, c.Detail = Fail, describe(got, err)
	case got.Text != whole.Text:
		c.Outcome, c.Detail, c.Expected, c.Got = Fail, "with log-probabilities the answer is another one", whole.Text, got.Text
	default:
		pairs, steps := compare(got.LogProbs, v.book.references[p.ID])
		t.given++
		t.pairs, t.steps = append(t.pairs, pairs...), t.steps+steps
		d := measure(pairs, steps)
		c.Detail, c.Distance = d.String(), &d
	}
	v.add(c)
}

// with is a body with one member set.
func with(body map[string]any, name string, value any) map[string]any {
	body = maps.Clone(body)
	body[name] = value
	return body
}

// share judges how many answers parted from their references.
func (g Greedy) share(parted []string, asked int) Case {
	c := Case{ID: divergentShare, Kind: kindGreedy, Outcome: Pass}
	share := float64(len(parted)) / float64(asked)
	c.Detail = fmt.Sprintf("%d of %d answers part from their references at near ties, %.3f; allowed are %.3f", len(parted), asked, share, g.MaxDivergentShare)
	if share > g.MaxDivergentShare {
		c.Outcome = Fail
		c.Detail += ": " + strings.Join(parted, ", ")
	}
	return c
}

// stream compares the increments with the buffered text.
func (v *validator) stream(ctx context.Context, p Prompt, body map[string]any, whole *client.Answer) {
	c := Case{ID: p.ID, Kind: kindStream, Outcome: Fail}
	got, err := v.askPrompt(ctx, p, body, true)
	switch {
	case err != nil || got.Status != http.StatusOK || got.Error != nil:
		c.Detail = describe(got, err)
	case got.InvalidUTF8 != "" || slices.ContainsFunc(got.Increments, func(s string) bool { return strings.ContainsRune(s, '\uFFFD') }):
		c.Detail = "an increment is not valid UTF-8: " + got.InvalidUTF8
	case got.Text != whole.Text:
		c.Detail, c.Expected, c.Got = "the streamed text is not the buffered one", whole.Text, got.Text
	case !got.Done || got.FinishReason != whole.FinishReason:
		c.Detail = fmt.Sprintf("the stream ended with finish reason %q (buffered %q), [DONE] %v", got.FinishReason, whole.FinishReason, got.Done)
	default:
		c.Outcome = Pass
	}
	v.add(c)
}

// first is a prompt of each task that the family has.
func (v *validator) first() []Prompt {
	var list []Prompt
	for _, p := range v.book.prompts {
		if v.bed.Family.Has(p.Task) && !p.Refused && !slices.ContainsFunc(list, func(q Prompt) bool { return q.Task == p.Task }) {
			list = append(list, p)
		}
	}
	return list
}

// describe says what came back in place of an answer.
func describe(a *client.Answer, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case a.Error != nil:
		return fmt.Sprintf("status %d, %s: %s", a.Status, a.Error.Code, a.Error.Message)
	}
	return fmt.Sprintf("status %d, text %.80q", a.Status, a.Text)
}

// write writes verdict and questions.
func (v *validator) write() error {
	v.verdict.Passed = v.verdict.open() && !v.verdict.Partial
	var questions bytes.Buffer
	enc := json.NewEncoder(&questions)
	enc.SetEscapeHTML(false)
	for _, q := range v.questions {
		if err := enc.Encode(q); err != nil {
			return err
		}
	}
	return errors.Join(
		jsonfile.Write(filepath.Join(v.run.Out, VerdictFile), v.verdict),
		os.WriteFile(filepath.Join(v.run.Out, QuestionsFile), questions.Bytes(), 0o644),
	)
}
