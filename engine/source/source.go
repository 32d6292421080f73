// Package source digests workspace files. A file whose size, times and inode are
// as they were is not read again, so a build costs no reading of what has not
// changed.
package source

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"assay/cache/durable"
)

// settled is the age below which a file's stamps are not trusted: it may change
// again within the resolution of its time stamp.
const settled = 2 * time.Second

type stamp struct {
	Size    int64         `json:"size"`
	MtimeNS int64         `json:"mtime_ns"`
	CtimeNS int64         `json:"ctime_ns"`
	Inode   uint64        `json:"inode"`
	Digest  digest.Digest `json:"digest"`
}

// Digester digests files behind a stat cache.
type Digester struct {
	path string
	now  func() time.Time

	mu      sync.Mutex
	known   map[string]stamp
	changed bool
}

// Open reads the stat cache at path. A cache that cannot be read is an empty one.
func Open(path string) *Digester {
	d := &Digester{path: path, now: time.Now, known: map[string]stamp{}}
	if data, err := os.ReadFile(path); err == nil {
		if json.Unmarshal(data, &d.known) != nil || d.known == nil {
			d.known = map[string]stamp{}
		}
	}
	return d
}

// Digest returns the digest of the regular file at path.
func (d *Digester) Digest(path string) (digest.Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// Before the stamps are taken: the longer the reading, the more time there is
	// for a change, and the older the stamps would look.
	asked := d.now()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	now := newStamp(info)
	d.mu.Lock()
	old, ok := d.known[path]
	d.mu.Unlock()
	if now.Digest = old.Digest; ok && now == old && old.Digest.Validate() == nil {
		return old.Digest, nil
	}
	if now.Digest, err = digest.FromReader(f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if asked.Sub(time.Unix(0, max(now.MtimeNS, now.CtimeNS))) > settled {
		d.mu.Lock()
		d.known[path], d.changed = now, true
		d.mu.Unlock()
	}
	return now.Digest, nil
}

func newStamp(info os.FileInfo) stamp {
	s := stamp{Size: info.Size(), MtimeNS: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.CtimeNS = ctime(sys)
		s.Inode = sys.Ino
	}
	return s
}

// Save writes the stat cache if it learned something.
func (d *Digester) Save() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.changed {
		return nil
	}
	data, err := json.Marshal(d.known)
	if err != nil {
		return err
	}
	d.changed = false
	return durable.WriteFile(d.path, data, 0o644)
}
