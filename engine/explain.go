package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"assay/cache/ac"
	"assay/cache/cas"
	"assay/engine/history"
	"assay/engine/key"
)

// Explanation is what the stores know of a key.
type Explanation struct {
	Key      digest.Digest
	Preimage key.Preimage
	// Result is set for a pure action or an effect, Samples for a measurement;
	// neither if what was made is gone.
	Result  *ac.Result
	Samples []ac.Sample
	// Labels are those of this workspace that had the key when last built, Sources
	// the labels whose last output is the input with this role.
	Labels  []string
	Sources map[string]string
}

// Explain finds a key by its first digits or, if name starts with "//", by the
// label that was last built with it.
func (e *Engine) Explain(name string) (*Explanation, error) {
	remembered, err := e.history.All()
	if err != nil {
		return nil, err
	}
	k, err := e.find(name, remembered)
	if err != nil {
		return nil, err
	}
	x := &Explanation{Key: k, Sources: map[string]string{}}
	var preimage cas.Ref
	for _, entry := range remembered {
		if entry.Key == k {
			x.Labels = append(x.Labels, entry.ID)
			preimage = entry.Preimage
		}
	}
	if result, err := e.results.Get(k); err == nil {
		x.Result, preimage = &result, result.Preimage
	} else if !errors.Is(err, cas.ErrMissing) {
		return nil, err
	}
	if x.Samples, err = e.results.Samples(k); err != nil {
		return nil, err
	}
	if len(x.Samples) > 0 {
		preimage = x.Samples[0].Preimage
	}
	data, err := e.blobs.Bytes(preimage)
	if err != nil {
		return nil, fmt.Errorf("preimage of key %s: %w", k, err)
	}
	if err := json.Unmarshal(data, &x.Preimage); err != nil {
		return nil, fmt.Errorf("preimage of key %s: %w", k, err)
	}
	for role, d := range x.Preimage.Inputs {
		// Several may have made the same; the first by name stands for them.
		if i := slices.IndexFunc(remembered, func(entry history.Entry) bool { return entry.Output.Digest == d }); i >= 0 {
			x.Sources[role] = remembered[i].ID
		}
	}
	return x, nil
}

func (e *Engine) find(name string, remembered []history.Entry) (digest.Digest, error) {
	if strings.HasPrefix(name, "//") {
		for _, entry := range remembered {
			if entry.ID == name {
				return entry.Key, nil
			}
		}
		return "", fmt.Errorf("%s was never built in this workspace; build it, or name a key", name)
	}
	prefix := strings.TrimPrefix(name, "sha256:")
	if prefix == "" || strings.Trim(prefix, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%q is neither a label nor the digits of a key", name)
	}
	keys, err := e.results.Matches(prefix)
	if err != nil {
		return "", err
	}
	for _, entry := range remembered {
		if strings.HasPrefix(entry.Key.Encoded(), prefix) {
			keys = append(keys, entry.Key)
		}
	}
	slices.Sort(keys)
	switch keys = slices.Compact(keys); len(keys) {
	case 0:
		return "", fmt.Errorf("no key starts with %s; assay plan --json shows the keys of targets", prefix)
	case 1:
		return keys[0], nil
	}
	var names []string
	for _, k := range keys[:min(len(keys), 5)] {
		names = append(names, k.Encoded()[:min(64, len(prefix)+8)]+"…")
	}
	return "", fmt.Errorf("%d keys start with %s: %s; give more digits", len(keys), prefix, strings.Join(names, ", "))
}
