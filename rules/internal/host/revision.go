package host

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"time"
)

// Revision is the state of the source tree a measurement was made from.
type Revision struct {
	// Commit is the 40-hex revision; empty if the tree is not under git.
	Commit string `json:"commit,omitempty"`
	// Dirty says whether tracked or untracked files differ from the commit; nil
	// if there is no commit to differ from.
	Dirty *bool `json:"dirty,omitempty"`
}

// String is the revision as it is printed.
func (r Revision) String() string {
	switch {
	case r.Commit == "":
		return "not known"
	case r.Dirty != nil && !*r.Dirty:
		return r.Commit
	}
	return r.Commit + " with changes"
}

// ReadRevision asks git about the directory.
func ReadRevision(ctx context.Context, dir string) Revision {
	head, err := git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return Revision{}
	}
	r := Revision{Commit: strings.TrimSpace(head)}
	if status, err := git(ctx, dir, "status", "--porcelain"); err == nil {
		dirty := status != ""
		r.Dirty = &dirty
	}
	return r
}

// git only looks: it takes no lock that the user's own git might want at the same
// time, and leaves no file watcher behind.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"--no-optional-locks", "-c", "core.fsmonitor=false", "-C", dir}, args...)...)
	cmd.WaitDelay = time.Second // for a pipe that a grandchild still holds
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // git itself ended well
	}
	return string(out), err
}
