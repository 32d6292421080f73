package exec

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"assay/engine/supervise"
)

// processesFile lists, in an invocation's work directory, the process groups that
// its actions started: what the next build looks for if this one is killed.
const processesFile = "processes.jsonl"

// processLog writes the list. The first error is kept: an action must not fail
// because its processes could not be noted.
type processLog struct {
	path string

	mu  sync.Mutex
	err error
}

func (l *processLog) started(g supervise.Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.write(g)
	}
}

func (l *processLog) write(g supervise.Group) error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(g), f.Close())
}

// reap kills the process groups that the killed invocation at work left behind
// and tells of them.
func reap(work string) []string {
	f, err := os.Open(filepath.Join(work, processesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // none was started
	}
	invocation := filepath.Base(work)
	if err != nil {
		return []string{fmt.Sprintf("build %s was killed; which processes it had cannot be read: %v", invocation, err)}
	}
	defer f.Close()
	var told []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var g supervise.Group
		if json.Unmarshal(lines.Bytes(), &g) != nil {
			continue // torn by the kill
		}
		switch killed, err := g.Kill(); {
		case err != nil:
			told = append(told, fmt.Sprintf("build %s was killed; its %s (process group %d) is still there: %v", invocation, g.Program, g.ID, err))
		case killed:
			told = append(told, fmt.Sprintf("build %s was killed and left %s (process group %d); killed it now", invocation, g.Program, g.ID))
		}
	}
	return told
}
