package conversations

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"assay/engine/action"
	"assay/rules/bundle"
	"assay/rules/internal/dataset"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/pyenv"
	"assay/rules/internal/rule"
	"assay/rules/pythonenv"
)

//go:embed prompts.py
var promptsScript []byte

// fit measures every prompt, as far as it is known before there are replies, with
// the bundle's own template and tokenizer. misfits tells of all that the template
// refuses or that cannot fit the context.
func fit(ctx context.Context, host rule.Host, file string, all []located, history string, run *action.Run) (check *dataset.ContextCheck, lengths [][]int64, misfits, err error) {
	var info bundle.Info
	if err := jsonfile.Read(filepath.Join(run.Input(bundleRole), bundle.InfoFile), &info); err != nil {
		return nil, nil, nil, err
	}
	var prompts [][]message
	for _, c := range all {
		for n := range c.Turns {
			prompts = append(prompts, messages(c.Conversation, n, history))
		}
	}
	answers, err := measure(ctx, host, prompts, run)
	if err != nil {
		return nil, nil, nil, err
	}
	check = &dataset.ContextCheck{Bundle: info.Digest.String(), Context: int64(info.Context)}
	var errs []error
	for _, c := range all {
		own := make([]int64, len(c.Turns))
		for n, t := range c.Turns {
			answer := answers[0]
			answers = answers[1:]
			at := fmt.Sprintf("%s:%d: conversation %q, user turn %d", file, c.line, c.ID, n)
			var refusal string
			if json.Unmarshal(answer, &refusal) == nil {
				errs = append(errs, fmt.Errorf("%s: the chat template of the bundle refuses it: %s", at, refusal))
				break // the later turns hold the same
			}
			if err := json.Unmarshal(answer, &own[n]); err != nil {
				return nil, nil, nil, fmt.Errorf("the bundle's tokenizer: %w", err)
			}
			if own[n] > check.LongestPrompt {
				check.LongestPrompt, check.LongestID = own[n], c.ID
			}
			if own[n]+t.MaxTokens > check.Context {
				errs = append(errs, fmt.Errorf("%s: it needs %d tokens at least, without any reply, and %d for its answer; the context has %d", at, own[n], t.MaxTokens, check.Context))
			}
		}
		lengths = append(lengths, own)
	}
	return check, lengths, errors.Join(errs...), nil
}

// measure applies template and tokenizer to each prompt: a number of tokens, or a
// text where the template refuses.
func measure(ctx context.Context, host rule.Host, prompts [][]message, run *action.Run) ([]json.RawMessage, error) {
	tokenizer := filepath.Join(run.Tmp, "tokenizer")
	f, b, err := bundle.Open(filepath.Join(run.Input(bundleRole), bundle.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := os.Mkdir(tokenizer, 0o755); err != nil {
		return nil, err
	}
	for _, section := range []string{bundle.Tokenizer, bundle.TokenizerConfig} {
		if _, err := bundle.Extract(b, section, filepath.Join(tokenizer, section)); err != nil {
			return nil, err
		}
	}
	requirements, err := os.ReadFile(filepath.Join(run.Input(clientRole), pythonenv.Requirements))
	if err != nil {
		return nil, err
	}
	env, _, err := pythonenv.Realise(ctx, host, requirements, nil, func(what string) { run.Progress(0, 0, what) })
	if err != nil {
		return nil, fmt.Errorf("environment %q: %w", clientRole, err)
	}
	run.Progress(0, 0, "measuring prompts")
	var answers []json.RawMessage
	err = env.Run(ctx, pyenv.Script{
		Source: promptsScript, Args: []string{tokenizer}, Input: prompts, Dir: run.Tmp,
		Environ: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + run.Tmp, "TMPDIR=" + run.Tmp},
	}, &answers)
	if err == nil && len(answers) != len(prompts) {
		err = fmt.Errorf("unexpected answer: %d for %d prompts", len(answers), len(prompts))
	}
	if err != nil {
		return nil, fmt.Errorf("the bundle's chat template: %w", err)
	}
	return answers, nil
}
