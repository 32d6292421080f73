package host

import (
	"context"
	"os/exec"
	"strings"
)

// Revision is the state of the source tree a measurement was made from.
type Revision struct {
	// Commit is the 40-hex revision; empty if the tree is not under git.
	Commit string `json:"commit,omitempty"`
	// Dirty says whether tracked or untracked files differ from the commit; nil
	// if there is no commit to differ from.
	Dirty *bool `json:"dirty,omitempty"`
}

// ReadRevision asks git about the directory.
func ReadRevision(ctx context.Context, dir string) Revision {
	head, err := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "HEAD").Output()
	if err != nil {
		return Revision{}
	}
	r := Revision{Commit: strings.TrimSpace(string(head))}
	if status, err := exec.CommandContext(ctx, "git", "-C", dir, "status", "--porcelain").Output(); err == nil {
		dirty := len(status) > 0
		r.Dirty = &dirty
	}
	return r
}
