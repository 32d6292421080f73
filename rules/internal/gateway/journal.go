package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"assay/rules/internal/record"
)

// journal is the file of terminal records.
type journal struct {
	began  time.Time // the zero of ReceivedNS
	bootID string

	mu   sync.Mutex
	file *os.File
	// seen holds the ids of this server's life, to mark repeats: some 60 bytes a
	// request.
	seen map[string]struct{}
	err  error // the first failure; nothing is written after it
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the record file: %w", err)
	}
	// Only Linux has it; elsewhere times of two processes are never compared.
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &journal{began: time.Now(), bootID: strings.TrimSpace(string(boot)), file: f, seen: map[string]struct{}{}}, nil
}

// repeated notes an id and says whether it came before.
func (j *journal) repeated(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, seen := j.seen[id]
	j.seen[id] = struct{}{}
	return seen
}

// write appends a record as one line by one write.
func (j *journal) write(r *record.Record) error {
	line, err := json.Marshal(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		// A record file with a hole in it must not look complete.
		j.err = fmt.Errorf("write the record of request %s: %w", r.RequestID, err)
	}
	return j.err
}

// failure is the first error of write.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// close makes the file durable.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.err
	if syncErr := j.file.Sync(); syncErr != nil {
		err = errors.Join(err, fmt.Errorf("record file: %w", syncErr))
	}
	return errors.Join(err, j.file.Close())
}
