package conversations

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"assay/engine/action"
	"assay/engine/supervise"
	"assay/rules/bundle"
	"assay/rules/internal/dataset"
	"assay/rules/internal/jsonfile"
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
	out, err := python(ctx, env.Python(), tokenizer, prompts, run.Tmp)
	if err != nil {
		return nil, fmt.Errorf("the bundle's chat template: %w", err)
	}
	var answers []json.RawMessage
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(prompts) {
		return nil, fmt.Errorf("the bundle's chat template: unexpected answer (%w): %.200q", err, out)
	}
	return answers, nil
}

// python runs the script and returns what it printed.
func python(ctx context.Context, python, tokenizer string, prompts [][]message, tmp string) ([]byte, error) {
	data, err := json.Marshal(prompts)
	if err != nil {
		return nil, err
	}
	script := filepath.Join(tmp, "prompts.py")
	if err := errors.Join(os.WriteFile(script, promptsScript, 0o644), os.WriteFile(script+".in", data, 0o644)); err != nil {
		return nil, err
	}
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
		Path: python, Args: []string{"-I", script, tokenizer}, Dir: tmp,
		Env:   []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + tmp, "TMPDIR=" + tmp},
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
