package validatefamily

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"assay/rules/internal/client"
	"assay/rules/internal/pyenv"
)

//go:embed tokenize.py
var tokenizeScript []byte

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
			v.add(Case{ID: a.id, Kind: kindTokenizer, Outcome: outcome, Detail: detail})
		}
		return nil
	}
	if !v.selected(kindTokenizer, "") {
		return all(Skipped, notSelected)
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
		c := Case{ID: a.id, Kind: kindTokenizer, Outcome: Pass}
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
	var ids [][]int64
	err = env.Run(ctx, pyenv.Script{
		Source: tokenizeScript, Args: []string{v.bed.Tokenizer}, Input: texts, Dir: v.run.Tmp, Environ: v.bed.Environ(),
	}, &ids)
	if err == nil && len(ids) != len(awkward) {
		err = fmt.Errorf("unexpected answer: %d for %d texts", len(ids), len(awkward))
	}
	if err != nil {
		return nil, fmt.Errorf("the exported tokenizer: %w", err)
	}
	return ids, nil
}
