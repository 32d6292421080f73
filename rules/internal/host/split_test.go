package host

import (
	"slices"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"
)

func TestSplit(t *testing.T) {
	alone := func(cpu int) int { return cpu }
	// The usual numbering of n cores with two hyperthreads: 0 and n are siblings.
	usual := func(n int) func(int) int { return func(cpu int) int { return cpu % n } }
	pairs := func(cpu int) int { return cpu / 2 } // 0 and 1 are siblings
	hybrid := func(cpu int) int {                 // two cores of two threads, then four of one
		if cpu < 4 {
			return cpu / 2 * 2
		}
		return cpu
	}
	for _, c := range []struct {
		name           string
		allowed        []int
		threads        int
		core           func(int) int
		server, client []int
		shared         bool
	}{
		{"two CPUs without SMT", []int{0, 1}, 1, alone, []int{1}, []int{0}, false},
		{"eight without SMT", []int{0, 1, 2, 3, 4, 5, 6, 7}, 3, alone, []int{5, 6, 7}, []int{0, 1, 2, 3, 4}, false},
		{"siblings stay together", []int{0, 1, 2, 3, 4, 5, 6, 7}, 4, usual(4), []int{2, 3, 6, 7}, []int{0, 1, 4, 5}, false},
		{"a thread gets a whole core", []int{0, 1, 2, 3}, 1, usual(2), []int{1, 3}, []int{0, 2}, false},
		{"an odd number of threads", []int{0, 1, 2, 3, 4, 5}, 3, pairs, []int{2, 3, 4, 5}, []int{0, 1}, false},
		{"order of allowed is no matter", []int{3, 0, 2, 1}, 2, usual(2), []int{1, 3}, []int{0, 2}, false},
		{"siblings that are not allowed do not count", []int{0, 1, 5}, 1, usual(4), []int{1, 5}, []int{0}, false},
		{"cores of two kinds", []int{0, 1, 2, 3, 4, 5, 6, 7}, 3, hybrid, []int{5, 6, 7}, []int{0, 1, 2, 3, 4}, false},
		{"cores of two kinds, into the large ones", []int{0, 1, 2, 3, 4, 5, 6, 7}, 5, hybrid, []int{2, 3, 4, 5, 6, 7}, []int{0, 1}, false},
		{"one core", []int{0, 1}, 1, pairs, []int{1}, []int{0}, true},
		{"the server needs a part of the last core", []int{0, 1, 2, 3}, 3, usual(2), []int{1, 2, 3}, []int{0}, true},
		{"too few", []int{0, 1}, 2, alone, []int{0, 1}, []int{0, 1}, true},
		{"far too few", []int{4}, 8, alone, []int{4}, []int{4}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.allowed)
			server, client, shared, err := split(c.allowed, c.threads, c.core)
			if err != nil || !slices.Equal(server, c.server) || !slices.Equal(client, c.client) || shared != c.shared {
				t.Errorf("got  %v, %v, %v, %v\nwant %v, %v, %v", server, client, shared, err, c.server, c.client, c.shared)
			}
			if !slices.Equal(c.allowed, before) {
				t.Errorf("allowed became %v", c.allowed)
			}
		})
	}
	for _, c := range []struct {
		allowed []int
		threads int
	}{{nil, 1}, {[]int{0}, 0}, {[]int{0}, -1}} {
		if _, _, _, err := Split(c.allowed, c.threads); err == nil {
			t.Errorf("%v was split for %d threads", c.allowed, c.threads)
		}
	}
}

// Whatever the machine: two sorted sets that have enough CPUs and, unless it is
// said that they share, neither a CPU nor a core in common.
func TestSplitNeverSharesInSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		allowed := rapid.SliceOfNDistinct(rapid.IntRange(0, 40), 1, 24, rapid.ID[int]).Draw(t, "allowed")
		of := rapid.SliceOfN(rapid.IntRange(0, 12), 41, 41).Draw(t, "cores")
		threads := rapid.IntRange(1, 26).Draw(t, "threads")
		server, client, shared, err := split(allowed, threads, func(cpu int) int { return of[cpu] })
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(server) || !slices.IsSorted(client) || len(client) == 0 || len(server) < min(threads, len(allowed)) {
			t.Fatalf("server %v, client %v", server, client)
		}
		all := map[int]bool{}
		for _, cpu := range slices.Concat(server, client) {
			all[cpu] = true
		}
		if len(all) != len(allowed) {
			t.Fatalf("server %v, client %v, allowed %v", server, client, allowed)
		}
		for _, s := range server {
			for _, c := range client {
				if of[s] == of[c] && !shared {
					t.Fatalf("CPUs %d and %d are of core %d; server %v, client %v", s, c, of[s], server, client)
				}
			}
		}
	})
}

func TestCore(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	sys := fstest.MapFS{
		"cpu0/topology/core_cpus_list":        file("0,32\n"),
		"cpu32/topology/core_cpus_list":       file("0,32\n"),
		"cpu3/topology/thread_siblings_list":  file("2-3\n"), // an older kernel
		"cpu4/topology/core_cpus_list":        file("4\n"),
		"cpu5/topology/core_cpus_list":        file("\n"),
		"cpu5/topology/thread_siblings_list":  file("1,5\n"),
		"cpu6/topology/thread_siblings_list":  file("?"),
		"cpu10/topology/thread_siblings_list": file("10-13,20\n"),
	}
	for cpu, want := range map[int]int{0: 0, 32: 0, 3: 2, 4: 4, 5: 1, 6: 6, 7: 7, 10: 10} {
		if got := core(sys, cpu); got != want {
			t.Errorf("CPU %d: core %d, want %d", cpu, got, want)
		}
	}
}
