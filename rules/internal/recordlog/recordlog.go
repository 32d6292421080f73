// Package recordlog keeps the terminal records of a server in a file of JSON
// lines, for whoever must account for every request afterwards. A record is one
// line, written by one write call, in the order of Append; there is never half a
// line in the middle, never a line twice, and never a hole that nobody reports.
//
// What can go wrong, and what becomes of the records then:
//
//   - The disk is full, or a write fails: the file is cut back to its last whole
//     line, and the records wait in memory, in order, until the disk takes them.
//     Failure says so meanwhile.
//   - The process was killed inside a line: the next Open moves the torn bytes
//     into a file beside the log and goes on behind the last whole line.
//   - Two servers are given one file: the second is refused.
//   - The file grows without end: it is rotated at a limit; Files finds the parts.
//
// docs/records.md describes files and guarantees for those who read them.
package recordlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"assay/rules/internal/record"
)

// SyncPolicy says when what was written is made to survive a loss of power. A
// killed process loses nothing that was written, under any policy.
type SyncPolicy string

const (
	// SyncClose syncs at Close and at each rotation: nothing in the measured path
	// waits for the disk. It is the default.
	SyncClose SyncPolicy = "close"
	// SyncInterval syncs also once a second while there is something to sync,
	// without making Append wait.
	SyncInterval SyncPolicy = "interval"
	// SyncAlways syncs before Append returns.
	SyncAlways SyncPolicy = "always"
)

const syncInterval = time.Second

// Bounds of the records that wait in memory while the file cannot be written.
// What comes when one is reached is lost, and counted. A record has some 700
// bytes, so both are reached at about the same time.
const (
	MaxBacklogRecords = 100_000
	MaxBacklogBytes   = 64 << 20
)

// Options say where and how a log is kept.
type Options struct {
	// Path is the current file: a regular one, in a folder that exists. What is in
	// it stays, and the log goes on behind it.
	Path string
	// MaxBytes is the size that the file keeps below by rotation; a record that is
	// larger by itself still gets a file. 0 means no limit.
	MaxBytes int64
	// Sync is empty for SyncClose.
	Sync SyncPolicy
	// Log hears of torn tails, outages and losses; nil means slog's default.
	Log *slog.Logger
}

// Log is a log that is open for appending. Its methods can be called from
// several goroutines.
type Log struct {
	opts   Options
	disk   disk
	unlock func()

	stop    chan struct{}
	syncing sync.WaitGroup // the goroutine of SyncInterval

	mu     sync.Mutex
	closed bool
	file   file  // nil after the rename of a rotation, until the next one is open
	size   int64 // up to the end of the last whole line
	synced int64 // of size, what is known to survive a loss of power
	torn   bool  // bytes of a write that failed may lie behind size

	line    bytes.Buffer
	encoder *json.Encoder // into line

	backlog []pending
	waiting int // bytes in backlog
	most    bounds
	err     error // of the last write; the reason for the backlog
	syncErr error
	lost    losses
}

// bounds are those of a backlog; tests have smaller ones.
type bounds struct{ records, bytes int }

// pending is a record that could not be written yet.
type pending struct {
	id   string
	line []byte
}

// losses are records that never will be.
type losses struct {
	count       int
	first, last string // request ids
	cause       error  // of the last
}

// Open opens the log for appending and makes it if there is none. Only one Log
// can be open on a file, in all processes of the machine; what a killed one left
// of a line is moved aside.
func Open(o Options) (*Log, error) {
	return open(o, osDisk{})
}

func open(o Options, d disk) (*Log, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("record file: %w", err)
	}
	unlock, err := hold(o.Path)
	if err != nil {
		return nil, fmt.Errorf("record file %s: %w", o.Path, err)
	}
	l := &Log{opts: o, disk: d, unlock: unlock, stop: make(chan struct{}), most: bounds{MaxBacklogRecords, MaxBacklogBytes}}
	l.encoder = json.NewEncoder(&l.line)
	l.encoder.SetEscapeHTML(false)
	if err := l.begin(); err != nil {
		unlock()
		return nil, fmt.Errorf("record file: %w", err)
	}
	if o.Sync == SyncInterval {
		l.syncing.Go(l.syncEverySecond)
	}
	return l, nil
}

func (o *Options) complete() error {
	var errs []error
	if o.Sync == "" {
		o.Sync = SyncClose
	}
	if o.Sync != SyncClose && o.Sync != SyncInterval && o.Sync != SyncAlways {
		errs = append(errs, fmt.Errorf("unknown sync policy %q, not %q, %q or %q", o.Sync, SyncClose, SyncInterval, SyncAlways))
	}
	if o.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("the size %d to rotate at is negative; 0 means never", o.MaxBytes))
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return errors.Join(append(errs, usable(o.Path))...)
}

// begin opens the file, behind the last whole line of what is in it.
func (l *Log) begin() error {
	err := l.next()
	if err != nil {
		return err
	}
	if err = l.mend(); err != nil {
		return errors.Join(err, l.file.Close())
	}
	return nil
}

// Append writes a record. If it cannot be written now it waits in memory, and
// the error is that of Failure. A record that cannot be encoded, or comes after
// Close, is lost.
func (l *Log) Append(r *record.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line.Reset()
	err := l.encoder.Encode(r)
	if err == nil && l.closed {
		err = os.ErrClosed
	}
	if err != nil {
		l.lose(r.RequestID, err)
		return fmt.Errorf("record of request %s: %w", r.RequestID, err)
	}
	l.drain()
	if len(l.backlog) == 0 {
		if l.err = l.write(l.line.Bytes()); l.err == nil {
			return l.syncErr
		}
		l.opts.Log.Error("records wait in memory", "file", l.opts.Path, "error", l.err)
	}
	l.keep(r.RequestID, l.line.Bytes())
	return l.failure()
}

// Failure says why records wait in memory, and nil when none do. It first tries
// to write them, so that a server that takes no requests while there is a
// failure, and so has nothing to append, recovers by asking.
//
// A sync that failed is a failure for the rest of the log's life: Linux drops
// what it could not write and reports that once, so no later sync can tell
// whether the records are on the disk.
func (l *Log) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	return l.failure()
}

func (l *Log) failure() error {
	if len(l.backlog) == 0 {
		return l.syncErr
	}
	err := fmt.Errorf("records that wait in memory until the disk takes them: %d, from request %s on: %w", len(l.backlog), l.backlog[0].id, l.err)
	return errors.Join(err, l.syncErr)
}

// Close writes what waits, makes the log durable and lets others have it. The
// error says which records were lost in the log's life and what else kept it
// from being whole. Close again does nothing.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	l.syncing.Wait()

	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	for _, p := range l.backlog {
		l.lose(p.id, l.err)
	}
	l.backlog, l.waiting = nil, 0
	err := l.lost.report(l.opts.Path)
	if l.file != nil {
		err = errors.Join(err, l.cutBack())
		l.sync()
		err = errors.Join(err, l.syncErr, l.file.Close())
	}
	l.unlock()
	return err
}

// drain writes what waits, as far as the disk takes it.
func (l *Log) drain() {
	n := len(l.backlog)
	for len(l.backlog) > 0 {
		line := l.backlog[0].line
		if l.err = l.write(line); l.err != nil {
			return
		}
		l.backlog = l.backlog[1:]
		l.waiting -= len(line)
	}
	if n > 0 {
		l.backlog = nil // with the memory behind it
		l.opts.Log.Info("records are written again", "file", l.opts.Path)
	}
}

// keep puts a line behind those that wait. The first always has room: bytes of
// it may be in the file, which only its own writing or Close mends.
func (l *Log) keep(id string, line []byte) {
	n := len(l.backlog)
	if n > 0 && (n >= l.most.records || l.waiting+len(line) > l.most.bytes) {
		l.lose(id, l.err)
		return
	}
	l.backlog = append(l.backlog, pending{id, bytes.Clone(line)})
	l.waiting += len(line)
}

func (l *Log) lose(id string, cause error) {
	if l.lost.count == 0 {
		l.lost.first = id
		l.opts.Log.Error("records are lost", "file", l.opts.Path, "request", id, "error", cause)
	}
	l.lost.count++
	l.lost.last, l.lost.cause = id, cause
}

func (l *losses) report(path string) error {
	if l.count == 0 {
		return nil
	}
	return fmt.Errorf("%s: lost records: %d, the first of request %s, the last of request %s: %w", path, l.count, l.first, l.last, l.cause)
}

// write puts a line behind the last whole one, or leaves the file as if it had
// not tried.
func (l *Log) write(line []byte) error {
	if err := l.ready(int64(len(line))); err != nil {
		return err
	}
	if _, err := l.file.Write(line); err != nil {
		l.torn = true
		l.cutBack() // so that readers see no half line; if it fails, ready tries again
		return err
	}
	l.size += int64(len(line))
	if l.opts.Sync == SyncAlways {
		l.sync()
	}
	return nil
}

// ready makes room for n bytes: in the file as it is, or in the next.
func (l *Log) ready(n int64) error {
	if l.file == nil {
		return l.next()
	}
	if err := l.cutBack(); err != nil {
		return err
	}
	if l.opts.MaxBytes == 0 || l.size == 0 || l.size+n <= l.opts.MaxBytes {
		return nil
	}
	if err := l.rotate(); err != nil {
		return err
	}
	return l.next()
}

// rotate gives the file its number. It is durable before, so a file with a
// number always is.
func (l *Log) rotate() error {
	if err := l.sync(); err != nil {
		return err
	}
	name, err := nextName(l.opts.Path)
	if err != nil {
		return err
	}
	if err := l.disk.rename(l.opts.Path, name); err != nil {
		return err
	}
	full := l.file
	l.file = nil
	return full.Close()
}

// next opens the current file. Before anything is written, its name and the one
// of a file that was rotated are durable.
func (l *Log) next() error {
	f, size, err := l.disk.open(l.opts.Path)
	if err != nil {
		return err
	}
	if err := l.disk.syncDir(l.opts.Path); err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size, l.synced = f, size, 0
	return nil
}

// cutBack removes what a write that failed may have left.
func (l *Log) cutBack() error {
	if !l.torn {
		return nil
	}
	if err := l.file.Truncate(l.size); err != nil {
		return err
	}
	l.torn = false
	return nil
}

// sync makes the file durable. Its error stays.
func (l *Log) sync() error {
	if l.synced == l.size {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		l.syncFailed(err)
		return err
	}
	l.synced = l.size
	return nil
}

func (l *Log) syncFailed(err error) {
	if l.syncErr == nil {
		l.syncErr = fmt.Errorf("records may not survive a loss of power; check the disk and restart the server: %w", err)
		l.opts.Log.Error("record file", "error", l.syncErr)
	}
}

func (l *Log) syncEverySecond() {
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			l.syncBeside()
		}
	}
}

// syncBeside is sync without holding up Append. A rotation meanwhile syncs by
// itself and closes the file.
func (l *Log) syncBeside() {
	l.mu.Lock()
	f, size, due := l.file, l.size, l.file != nil && l.synced != l.size
	l.mu.Unlock()
	if !due {
		return
	}
	err := f.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && l.file == f:
		l.synced = size
	case err != nil && !errors.Is(err, os.ErrClosed):
		l.syncFailed(err)
	}
}
