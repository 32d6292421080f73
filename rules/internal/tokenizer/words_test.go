package tokenizer_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/tokenizer"
)

// vocabulary makes a tokenizer of all two-letter words, each one token with and
// without a space, and of what else there is in more.
func vocabulary(t *testing.T, more []string, merges [][2]string, special bool) []byte {
	t.Helper()
	tokens := []string{"Ġ"}
	var all [][2]string
	for a := 'a'; a <= 'z'; a++ {
		tokens = append(tokens, string(a))
	}
	for a := 'a'; a <= 'e'; a++ {
		for b := 'a'; b <= 'z'; b++ {
			word := string([]rune{a, b})
			tokens = append(tokens, word, "Ġ"+word)
			all = append(all, [2]string{string(a), string(b)}, [2]string{"Ġ", word})
		}
	}
	vocab := map[string]int{}
	for i, token := range append(tokens, more...) {
		vocab[token] = i
	}
	f := map[string]any{"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": append(merges, all...)}}
	if special {
		f["post_processor"] = map[string]any{"single": []any{map[string]any{"SpecialToken": map[string]any{"id": "<s>"}}, map[string]any{"Sequence": map[string]any{"id": "A"}}}}
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWordsAreOneTokenEach(t *testing.T) {
	w, err := tokenizer.FindWords(vocabulary(t, nil, nil, false))
	if err != nil || len(w.List) != 5*26 || w.List[0] != "aa" || w.List[129] != "ez" || w.Around != 0 {
		t.Fatalf("%d words, %+v", len(w.List), err)
	}
	// In the vocabulary, and not made by the merges: "aaz" is cut into aa and z.
	// "Ġbb" is made of "Ġb" and "b" once that merge is there, which is no token.
	w, err = tokenizer.FindWords(vocabulary(t, []string{"aaz", "Ġaaz", "Ġhello", "Ġé", "Ġx", "Ġb"}, [][2]string{{"Ġ", "b"}}, true))
	if err != nil || w.Around != 1 {
		t.Fatalf("%+v, %v", w, err)
	}
	for _, word := range []string{"aaz", "hello", "é", "x", "bb"} {
		if slices.Contains(w.List, word) {
			t.Errorf("%q is a word", word)
		}
	}
	if len(w.List) != 4*26 {
		t.Errorf("%d words", len(w.List))
	}
}

func TestNoWords(t *testing.T) {
	for text, want := range map[string]string{
		"{":                            "tokenizer.json: ",
		`{"model":{"type":"Unigram"}}`: `this is "Unigram"`,
		`{"model":{"type":"BPE"}}`:     "0 words are one token each, 100 are needed",
		`{"model":{"type":"BPE","vocab":{"aa":-7,"Ġaa":99999}}}`: "0 words",
	} {
		if _, err := tokenizer.FindWords([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
