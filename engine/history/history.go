// Package history remembers, for each label of a workspace, the last action that
// had a result and why it last ran. It explains; no decision rests on it.
package history

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/cas"
	"assay/cache/durable"
	"assay/engine/key"
)

// Entry is what is remembered of one label.
type Entry struct {
	ID       string        `json:"id"`
	Key      digest.Digest `json:"key"`
	Preimage cas.Ref       `json:"preimage"`
	Output   cas.Ref       `json:"output"`
	// LastRun tells of the last time the action ran; nil if its result was only
	// ever found in the store.
	LastRun *Ran `json:"last_run,omitempty"`
}

// Ran tells why an action ran.
type Ran struct {
	Time       time.Time     `json:"time"`
	Invocation string        `json:"invocation"`
	Key        digest.Digest `json:"key"` // of that run; the entry's may be another by now
	Why        Why           `json:"why"`
}

// Why is the reason for one run.
type Why struct {
	Reason string `json:"reason"`
	// Changes are the components of the key that differ from the run before.
	Changes []Change `json:"changes,omitempty"`
}

// Change is a changed component and, if it is an input, the target it comes from.
type Change struct {
	key.Change
	From string `json:"from,omitempty"`
}

// Store keeps entries in a directory, one file a label.
type Store struct{ root string }

// Open returns the history at root.
func Open(root string) *Store { return &Store{root} }

func (s *Store) path(id string) string {
	return filepath.Join(s.root, digest.FromString(id).Encoded()[:32]+".json")
}

// Last returns what is remembered of id; false if nothing readable is.
func (s *Store) Last(id string) (Entry, bool) {
	var e Entry
	data, err := os.ReadFile(s.path(id))
	if err != nil || json.Unmarshal(data, &e) != nil || e.ID != id {
		return Entry{}, false
	}
	return e, true
}

// All returns what is remembered, ordered by ID. What cannot be read is left out.
func (s *Store) All() ([]Entry, error) {
	names, err := os.ReadDir(s.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, de := range names {
		data, err := os.ReadFile(filepath.Join(s.root, de.Name()))
		var e Entry
		// The folder holds other files too.
		if err == nil && json.Unmarshal(data, &e) == nil && s.path(e.ID) == filepath.Join(s.root, de.Name()) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// Record replaces what is remembered of e.ID. An unchanged entry is not written.
func (s *Store) Record(e Entry) error {
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	old, err := os.ReadFile(s.path(e.ID))
	if err == nil && string(old) == string(data) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.WriteFile(s.path(e.ID), data, 0o644)
}
