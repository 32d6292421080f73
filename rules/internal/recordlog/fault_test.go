package recordlog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"assay/rules/internal/record"

	"github.com/google/go-cmp/cmp"
)

var errFull = errors.New("no space left on device")

// faulty is a real disk some of whose operations fail.
type faulty struct {
	osDisk
	mu  sync.Mutex
	ops []string
	// fails says whether an operation fails, from 1 on; nil means that none does.
	fails func(op string, n int) bool
	// part is how much of a write that fails is done, of 1.
	part float64
}

func (d *faulty) do(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = append(d.ops, op)
	if d.fails != nil && d.fails(op, len(d.ops)) {
		return errFull
	}
	return nil
}

func (d *faulty) count(op string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, did := range d.ops {
		if did == op {
			n++
		}
	}
	return n
}

func (d *faulty) open(path string) (file, int64, error) {
	if err := d.do("open"); err != nil {
		return nil, 0, err
	}
	f, size, err := d.osDisk.open(path)
	return &faultyFile{f, d}, size, err
}

func (d *faulty) rename(from, to string) error {
	if err := d.do("rename"); err != nil {
		return err
	}
	return d.osDisk.rename(from, to)
}

func (d *faulty) syncDir(path string) error { return d.do("syncdir") }

type faultyFile struct {
	file
	d *faulty
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.d.do("write"); err != nil {
		n, _ := f.file.Write(p[:int(f.d.part*float64(len(p)))])
		return n, err
	}
	return f.file.Write(p)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.d.do("truncate"); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

func (f *faultyFile) Sync() error { return f.d.do("sync") }

func (f *faultyFile) Close() error {
	// A file is closed whatever close says.
	return errors.Join(f.d.do("close"), f.file.Close())
}

// sweep calls test for every operation of a log that gets 12 records in 5 files,
// for every policy and for writes that are not, half or wholly done when they
// fail.
func sweep(t *testing.T, test func(t *testing.T, o Options, d *faulty, n int)) {
	for _, policy := range []SyncPolicy{SyncClose, SyncAlways} {
		o := place(t)
		o.Sync, o.MaxBytes = policy, 3*lineSize
		d := &faulty{}
		l := mustOpen(t, o, d)
		mustAppend(t, l, 1, 12)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for n := range len(d.ops) {
			for _, part := range []float64{0, 0.5, 1} {
				t.Run(fmt.Sprintf("%s/%d %s/%v", policy, n+1, d.ops[n], part), func(t *testing.T) {
					o := place(t)
					o.Sync, o.MaxBytes = policy, 3*lineSize
					test(t, o, &faulty{part: part}, n+1)
				})
			}
		}
	}
}

// Whatever fails, for however long: when the disk works again, every record is
// there once and in order.
func TestEveryFault(t *testing.T) {
	for _, length := range []int{1, 2, 5, 1000} {
		t.Run(fmt.Sprintf("%d operations", length), func(t *testing.T) {
			sweep(t, func(t *testing.T, o Options, d *faulty, from int) {
				d.fails = func(_ string, n int) bool { return from <= n && n < from+length }
				l, err := open(o, d)
				if err != nil { // nothing is at stake yet
					d.fails = nil
					l = mustOpen(t, o, d)
				}
				for n := 1; n <= 12; n++ {
					if err := l.Append(request(n)); (err != nil) != (len(l.backlog) > 0 || l.syncErr != nil) {
						t.Errorf("%d records wait, and Append says %v", len(l.backlog), err)
					}
				}
				d.fails = nil
				if err := l.Failure(); err != l.syncErr {
					t.Errorf("the disk works again, and yet: %v", err)
				}
				if err := l.Close(); (err != nil) != (l.syncErr != nil) {
					t.Errorf("Close: %v", err)
				}
				if diff := cmp.Diff(ids(1, 12), union(t, o.Path)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The process is killed while its disk fails: what Append has accepted is there,
// once and in order, and the next process goes on behind it.
func TestEveryCrash(t *testing.T) {
	sweep(t, func(t *testing.T, o Options, d *faulty, from int) {
		d.fails = func(_ string, n int) bool { return n >= from }
		var accepted []string
		l, err := open(o, d)
		if err == nil {
			for n := 1; n <= 12; n++ {
				// A sync that failed is an error too, of a record that is in the file.
				if l.Append(request(n)) == nil || len(l.backlog) == 0 {
					accepted = append(accepted, request(n).RequestID)
				}
			}
			l.unlock() // all that the kernel does for a process that was killed
		}
		l = mustOpen(t, o, osDisk{})
		mustAppend(t, l, 13, 14)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		got := union(t, o.Path)
		// The first that failed may have got there all the same; nothing else.
		if maybe := len(accepted); len(got) == maybe+3 && got[maybe] == request(maybe+1).RequestID {
			got = slices.Delete(got, maybe, maybe+1)
		}
		if diff := cmp.Diff(append(accepted, ids(13, 14)...), got); diff != "" {
			t.Error(diff)
		}
	})
}

// The state of a log through an outage, as a server sees it.
func TestOutage(t *testing.T) {
	o := place(t)
	full := false
	d := &faulty{part: 0.5, fails: func(op string, _ int) bool { return full && op == "write" }}
	l := mustOpen(t, o, d)
	mustAppend(t, l, 1, 2)
	full = true
	for n := 3; n <= 5; n++ {
		err := l.Append(request(n))
		want := fmt.Sprintf("wait in memory until the disk takes them: %d, from request r3 on: no space", n-2)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, errFull) {
			t.Errorf("Append: %v", err)
		}
	}
	// Meanwhile the file has whole lines only.
	if diff := cmp.Diff(ids(1, 2), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
	if err := l.Failure(); !errors.Is(err, errFull) {
		t.Errorf("Failure: %v", err)
	}
	full = false
	if err := l.Failure(); err != nil {
		t.Errorf("there is space again: %v", err)
	}
	if diff := cmp.Diff(ids(1, 5), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
	mustAppend(t, l, 6, 6)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(ids(1, 6), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
}

func TestCloseCountsWhatIsLost(t *testing.T) {
	for _, c := range []struct {
		name string
		most bounds
	}{
		{"by number", bounds{records: 5, bytes: MaxBacklogBytes}},
		{"by size", bounds{records: MaxBacklogRecords, bytes: int(5*lineSize + 1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := place(t)
			full := true
			d := &faulty{fails: func(op string, _ int) bool { return full && op == "write" }}
			l := mustOpen(t, o, d)
			l.most = c.most
			for n := 1; n <= 7; n++ {
				if l.Append(request(n)) == nil {
					t.Fatal("a full disk took a record")
				}
			}
			full = false
			if err := l.Failure(); err != nil {
				t.Errorf("what was kept is written, and yet: %v", err)
			}
			mustAppend(t, l, 8, 8)
			if err := l.Close(); err == nil || !strings.Contains(err.Error(), "lost records: 2, the first of request r6, the last of request r7: no space") {
				t.Errorf("Close: %v", err)
			}
			if diff := cmp.Diff(append(ids(1, 5), "r8"), union(t, o.Path)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("the disk stays full", func(t *testing.T) {
		o := place(t)
		d := &faulty{part: 0.5, fails: func(op string, _ int) bool { return op == "write" }}
		l := mustOpen(t, o, d)
		for n := 1; n <= 3; n++ {
			_ = l.Append(request(n))
		}
		err := l.Close()
		if err == nil || !strings.Contains(err.Error(), "lost records: 3, the first of request r1, the last of request r3: no space") {
			t.Errorf("Close: %v", err)
		}
		if got := union(t, o.Path); len(got) > 0 {
			t.Errorf("there is %v", got)
		}
	})
	t.Run("no JSON", func(t *testing.T) {
		o := place(t)
		l := mustOpen(t, o, osDisk{})
		bad := request(1)
		bad.Task = &record.Task{Engine: map[string]float64{"rate": math.Inf(1)}}
		if err := l.Append(bad); err == nil || !strings.Contains(err.Error(), "request r1") {
			t.Errorf("Append: %v", err)
		}
		mustAppend(t, l, 2, 2)
		if err := l.Close(); err == nil || !strings.Contains(err.Error(), "lost records: 1, the first of request r1") {
			t.Errorf("Close: %v", err)
		}
		if diff := cmp.Diff(ids(2, 2), union(t, o.Path)); diff != "" {
			t.Error(diff)
		}
	})
}

// After a sync that failed nobody knows what is on the disk, so it is not
// forgotten; records are written all the same.
func TestAFailedSyncStays(t *testing.T) {
	o := place(t)
	o.Sync = SyncAlways
	d := &faulty{fails: func(op string, n int) bool { return op == "sync" }}
	l := mustOpen(t, o, d)
	if err := l.Append(request(1)); !errors.Is(err, errFull) {
		t.Errorf("Append: %v", err)
	}
	d.fails = nil
	for n := 2; n <= 3; n++ {
		if err := l.Append(request(n)); !errors.Is(err, errFull) {
			t.Errorf("Append: %v", err)
		}
	}
	if err := l.Failure(); err == nil || !strings.Contains(err.Error(), "may not survive a loss of power") {
		t.Errorf("Failure: %v", err)
	}
	if err := l.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v", err)
	}
	if diff := cmp.Diff(ids(1, 3), union(t, o.Path)); diff != "" {
		t.Error(diff)
	}
}
