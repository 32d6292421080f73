package validatefamily

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

// cancel leaves a stream after its first increment; the next request must be
// answered as if nothing had been.
func (v *validator) cancel(ctx context.Context) error {
	for _, p := range v.first() {
		body, err := v.body(p)
		if err != nil {
			return err
		}
		if !v.selected(kindCancel, p.Task) {
			v.skip(kindCancel, p.Task)
			continue
		}
		c := Case{ID: p.Task, Kind: kindCancel, Outcome: Fail}
		long := with(body, "max_tokens", min(int64(v.bed.Spec.MaxOutput), 64))
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
		asked := slices.IndexFunc(v.questions, func(q Question) bool { return q.ID == p.ID }) // -1 where it was not selected
		switch {
		case err != nil || got.Status != http.StatusOK:
			c.Outcome, c.Detail = Fail, "the next request: "+describe(got, err)
		case asked >= 0 && got.Text != v.questions[asked].Answer.Text:
			c.Outcome, c.Detail, c.Expected, c.Got = Fail, "the next answer is another one", v.questions[asked].Answer.Text, got.Text
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
		long := with(body, "prompt", words)
		if p.Task == "chat" {
			long = with(body, "messages", []map[string]any{{"role": "user", "content": words}})
		}
		for _, stream := range []bool{false, true} {
			c := Case{ID: p.Task + ", buffered", Kind: kindContext, Outcome: Fail}
			if stream {
				c.ID = p.Task + ", streamed"
			}
			if !v.selected(kindContext, c.ID) {
				v.skip(kindContext, c.ID)
				continue
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
