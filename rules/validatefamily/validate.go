package validatefamily

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"assay/engine/action"
	"assay/engine/supervise"
	"assay/rules/internal/client"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/testbed"
)

//go:embed tokenize.py
var tokenizeScript []byte

// validator judges one bundle.
type validator struct {
	bed       *testbed.Testbed
	book      *rulebook
	client    *client.Client
	run       *action.Run
	verdict   Verdict
	questions []Question
	sent      int
}

func validate(ctx context.Context, plan testbed.Plan, withClient bool, run *action.Run) (err error) {
	book, err := readRulebook(run.Input(criteriaRole))
	if err != nil {
		return err
	}
	bed, err := testbed.New(ctx, plan, run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	srv, err := bed.Start(ctx)
	if err != nil {
		return err
	}
	v := &validator{bed: bed, book: book, client: client.New(srv.URL()), run: run, verdict: Verdict{
		Version: 1, Bundle: bed.Bundle.Digest, ServedFile: bed.ServedFile, Family: bed.Family.ID,
		Criteria: book.digests[criteriaFile], Prompts: book.digests[promptsFile], References: book.digests[referencesFile],
		Counts: map[Outcome]int{Pass: 0, Fail: 0, Unsupported: 0, Skipped: 0},
	}}
	runErr := v.all(ctx, withClient)
	if err := errors.Join(runErr, srv.Stop()); err != nil {
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

// all runs every case. A case that fails is a verdict; an error means that no
// verdict is possible.
func (v *validator) all(ctx context.Context, withClient bool) error {
	var errs []error
	for _, check := range []func(context.Context) error{
		v.greedy, v.cancel, v.overlong,
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
	return v.client.Do(ctx, client.Request{
		ID: fmt.Sprintf("validate-%d", v.sent), Endpoint: task, Body: body, Stream: stream, StopAfter: stopAfter,
	})
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

// greedy compares each prompt's answer with its reference, and the streamed
// answer with the buffered one.
func (v *validator) greedy(ctx context.Context) error {
	asked, parted := 0, []string{}
	for i, p := range v.book.prompts {
		v.run.Progress(i, len(v.book.prompts), "prompts")
		if !v.bed.Family.Has(p.Task) {
			v.add(Case{ID: p.ID, Kind: "greedy", Outcome: Unsupported, Detail: fmt.Sprintf("the family has no task %q", p.Task)})
			continue
		}
		body, err := v.body(p)
		if err != nil {
			return err
		}
		asked++
		got, err := v.ask(ctx, p.Task, body, false, 0)
		if err != nil || got.Status != http.StatusOK {
			v.add(Case{ID: p.ID, Kind: "greedy", Outcome: Fail, Detail: describe(got, err)})
			continue
		}
		v.questions = append(v.questions, Question{p, Answer{
			Text: got.Text, PromptTokens: got.PromptTokens, CompletionTokens: got.CompletionTokens, FinishReason: got.FinishReason,
		}})
		c, undecided := v.judge(p, got)
		if undecided {
			parted = append(parted, p.ID)
		}
		v.add(c)
		v.stream(ctx, p, body, got)
	}
	if asked > 0 {
		v.add(v.book.criteria.Greedy.share(parted, asked))
	}
	return nil
}

func (v *validator) judge(p Prompt, got *client.Answer) (c Case, parted bool) {
	ref := v.book.references[p.ID]
	c = Case{ID: p.ID, Kind: "greedy", Outcome: Pass}
	if got.PromptTokens != nil && *got.PromptTokens != ref.PromptTokens.Count {
		c.Outcome = Fail
		c.Detail = fmt.Sprintf("the server counts %d prompt tokens, the reference %d", *got.PromptTokens, ref.PromptTokens.Count)
		return c, false
	}
	equal, parted, detail := v.book.criteria.Greedy.judge(got.Text, ref, v.book.ends)
	c.Detail = detail
	if !equal {
		c.Expected, c.Got = ref.Text, got.Text
	}
	if !equal && !parted {
		c.Outcome = Fail
	}
	return c, parted
}

// share judges how many answers parted from their references.
func (g Greedy) share(parted []string, asked int) Case {
	c := Case{ID: "divergent share", Kind: "greedy", Outcome: Pass}
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
	c := Case{ID: p.ID, Kind: "stream", Outcome: Fail}
	got, err := v.ask(ctx, p.Task, body, true, 0)
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
		if v.bed.Family.Has(p.Task) && !slices.ContainsFunc(list, func(q Prompt) bool { return q.Task == p.Task }) {
			list = append(list, p)
		}
	}
	return list
}

// cancel leaves a stream after its first increment; the next request must be
// answered as if nothing had been.
func (v *validator) cancel(ctx context.Context) error {
	for _, p := range v.first() {
		body, err := v.body(p)
		if err != nil {
			return err
		}
		c := Case{ID: p.Task, Kind: "cancel", Outcome: Fail}
		long := map[string]any{}
		for name, value := range body {
			long[name] = value
		}
		long["max_tokens"] = min(int64(v.bed.Spec.MaxOutput), 64)
		if left, err := v.ask(ctx, p.Task, long, true, 1); err != nil || len(left.Increments) == 0 {
			c.Detail = "the stream to leave: " + describe(left, err)
		} else {
			c = v.next(ctx, c, p, body)
		}
		v.add(c)
	}
	return nil
}

// retryLimit is how long a lane may take to be free again.
const retryLimit = 30 * time.Second

// next sends the request that must succeed after a disturbance. The lane may
// still be busy with the disturbance's end, and then says so.
func (v *validator) next(ctx context.Context, c Case, p Prompt, body map[string]any) Case {
	deadline := time.Now().Add(retryLimit)
	for {
		got, err := v.ask(ctx, p.Task, body, false, 0)
		busy := err == nil && (got.Status == http.StatusTooManyRequests || got.Status == http.StatusServiceUnavailable)
		if busy && time.Now().Before(deadline) && ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		want := ""
		for _, q := range v.questions {
			if q.ID == p.ID {
				want = q.Answer.Text
			}
		}
		switch {
		case err != nil || got.Status != http.StatusOK:
			c.Outcome, c.Detail = Fail, "the next request: "+describe(got, err)
		case got.Text != want:
			c.Outcome, c.Detail, c.Expected, c.Got = Fail, "the next answer is another one", want, got.Text
		default:
			c.Outcome = Pass
		}
		return c
	}
}

// overlong sends a prompt that cannot fit; it must be refused with 400, buffered
// and streamed, and the next request answered.
func (v *validator) overlong(ctx context.Context) error {
	words := strings.Repeat("word ", v.bed.Spec.Context+1)
	for _, p := range v.first() {
		body, err := v.body(p)
		if err != nil {
			return err
		}
		long := map[string]any{}
		for name, value := range body {
			long[name] = value
		}
		if p.Task == "chat" {
			long["messages"] = []map[string]any{{"role": "user", "content": words}}
		} else {
			long["prompt"] = words
		}
		for _, stream := range []bool{false, true} {
			c := Case{ID: p.Task + ", buffered", Kind: "context", Outcome: Fail}
			if stream {
				c.ID = p.Task + ", streamed"
			}
			got, err := v.ask(ctx, p.Task, long, stream, 0)
			if err != nil || got.Status != http.StatusBadRequest || got.Error == nil {
				c.Detail = "a prompt over the context is not refused with 400: " + describe(got, err)
			} else {
				c = v.next(ctx, c, p, body)
			}
			v.add(c)
		}
	}
	return nil
}

// awkward are texts on which tokenizers differ.
var awkward = []struct{ id, text string }{
	{"digits", "0 12 345 6789 3.14159 1,000,000 ½ ² Ⅳ"},
	{"accents", "naïve café Ångström e\u0301 ﬁ ß İi"},
	{"CJK", "中文字符 日本語テキスト 한국어 。、「」"},
	{"emoji", "😀 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ❤️"},
	{"white space", "  two  spaces\ttab\n\nnew\r\nlines \u00a0nbsp\u3000wide "},
	{"code", "def f(x):\n    return {'a': x**2, \"b\": [1, 2]}  # ok\n"},
	{"right to left", "שלום עולم مرحبا"},
	{"controls", "a\u0001b\u0000c\u007f\u200bd\ufeff"},
	{"empty", ""},
	{"very long", strings.Repeat("The quick brown fox, 42 times over — déjà vu! ", 400)},
}

// tokenizer compares the exported tokenizer, as the load generator loads it, with
// the engine's own.
func (v *validator) tokenizer(ctx context.Context, withClient bool) error {
	all := func(outcome Outcome, detail string) error {
		for _, a := range awkward {
			v.add(Case{ID: a.id, Kind: "tokenizer", Outcome: outcome, Detail: detail})
		}
		return nil
	}
	if !withClient {
		return all(Skipped, "the target names no client environment")
	}
	exported, err := v.exported(ctx)
	if err != nil {
		return err
	}
	for i, a := range awkward {
		engine, err := v.client.Tokenize(ctx, a.id, a.text)
		if errors.Is(err, client.ErrNoTokenizer) {
			return all(Unsupported, "the engine does not offer its tokenizer")
		}
		if err != nil {
			return err
		}
		c := Case{ID: a.id, Kind: "tokenizer", Outcome: Pass}
		if !slices.Equal(engine, exported[i]) {
			at := 0
			for at < len(engine) && at < len(exported[i]) && engine[at] == exported[i][at] {
				at++
			}
			c.Outcome = Fail
			c.Detail = fmt.Sprintf("%d tokens by the engine, %d by the exported tokenizer; the first difference is at token %d", len(engine), len(exported[i]), at+1)
		}
		v.add(c)
	}
	return nil
}

// exported runs the exported tokenizer over the awkward texts.
func (v *validator) exported(ctx context.Context) ([][]int64, error) {
	env, err := v.bed.Environment(ctx, clientRole)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(awkward))
	for i, a := range awkward {
		texts[i] = a.text
	}
	in, err := json.Marshal(texts)
	if err != nil {
		return nil, err
	}
	script := filepath.Join(v.run.Tmp, "tokenize.py")
	files := map[string][]byte{script: tokenizeScript, script + ".in": in}
	for name, data := range files {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return nil, err
		}
	}
	out, err := v.python(ctx, env.Python(), script)
	if err != nil {
		return nil, fmt.Errorf("the exported tokenizer: %w", err)
	}
	var ids [][]int64
	if err := json.Unmarshal(out, &ids); err != nil || len(ids) != len(awkward) {
		return nil, fmt.Errorf("the exported tokenizer: unexpected answer (%w): %.200q", err, out)
	}
	return ids, nil
}

// python runs a script with its input beside it, and returns what it printed.
func (v *validator) python(ctx context.Context, python, script string) ([]byte, error) {
	in, err := os.Open(script + ".in")
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := os.Create(script + ".out")
	if err != nil {
		return nil, err
	}
	defer out.Close()
	log, err := os.Create(script + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p, err := supervise.Start(ctx, supervise.Spec{
		Path: python, Args: []string{"-I", script, v.bed.Tokenizer}, Env: v.bed.Environ(), Dir: v.bed.Home(),
		Stdin: in, Stdout: out, Stderr: log,
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.Wait(), p.Stop(time.Second)); err != nil {
		tail, _ := supervise.Tail(log.Name(), 10)
		return nil, fmt.Errorf("%w\n%s", err, tail)
	}
	return os.ReadFile(out.Name())
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
	v.verdict.Passed = v.verdict.Counts[Fail] == 0 && v.verdict.Counts[Pass] > 0
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
