package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Words are words to make up texts of: n of them, with a space between each two, are
// n tokens, whatever their order.
type Words struct {
	List []string // in the order of their tokens
	// Around is how many tokens the tokenizer puts around a text.
	Around int64
}

// minWords is how many there must be: fewer would give texts that repeat themselves.
const minWords = 100

// FindWords looks for them in a tokenizer.json as [FromGGUF] writes it. A word is of
// small letters, so that every such tokenizer cuts a text at the spaces between
// them, and it is one token both behind a space and at the start of a text.
func FindWords(tokenizerJSON []byte) (Words, error) {
	var f struct {
		Model struct {
			Type         string         `json:"type"`
			ByteFallback bool           `json:"byte_fallback"` // as in SentencePiece
			Vocab        map[string]int `json:"vocab"`
			Merges       [][2]string    `json:"merges"`
		} `json:"model"`
		PostProcessor *struct {
			Single []map[string]any `json:"single"`
		} `json:"post_processor"`
	}
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return Words{}, fmt.Errorf("tokenizer.json: %w", err)
	}
	if f.Model.Type != "BPE" {
		return Words{}, fmt.Errorf("tokenizer.json: words are found in a BPE model, this is %q", f.Model.Type)
	}
	ranks := make(map[[2]string]int, len(f.Model.Merges))
	for rank, pair := range f.Model.Merges {
		if _, ok := ranks[pair]; !ok {
			ranks[pair] = rank
		}
	}
	space := string(byteRune(' '))
	if f.Model.ByteFallback {
		space = spaceMark
	}
	byID := make([]string, len(f.Model.Vocab))
	for token, id := range f.Model.Vocab {
		word, ok := strings.CutPrefix(token, space)
		if !ok || len(word) < 2 || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") != "" || id < 0 || id >= len(byID) {
			continue
		}
		if _, ok := f.Model.Vocab[word]; ok && whole(word, ranks) && whole(token, ranks) {
			byID[id] = word
		}
	}
	var w Words
	for _, word := range byID {
		if word != "" {
			w.List = append(w.List, word)
		}
	}
	if len(w.List) < minWords {
		return Words{}, fmt.Errorf("tokenizer.json: %d words are one token each, %d are needed to make up texts", len(w.List), minWords)
	}
	if p := f.PostProcessor; p != nil {
		for _, part := range p.Single {
			if part["SpecialToken"] != nil {
				w.Around++
			}
		}
	}
	return w, nil
}

// whole says whether the merges make one token of a word: the pair of the lowest
// rank goes first, the leftmost of several.
func whole(word string, ranks map[[2]string]int) bool {
	parts := strings.Split(word, "")
	for len(parts) > 1 {
		best, at := math.MaxInt, -1
		for i := range parts[:len(parts)-1] {
			if rank, ok := ranks[[2]string{parts[i], parts[i+1]}]; ok && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			return false
		}
		parts[at] += parts[at+1]
		parts = append(parts[:at+1], parts[at+2:]...)
	}
	return true
}
