package host

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Split gives the server whole cores from the end of allowed, as few as have its
// threads' worth of CPUs, and the rest to the load generator with the gateway.
// Both sets are sorted.
//
// shared says that the two contend, which is then part of what is measured: they
// have the two hyperthreads of one core where no cut between cores is possible,
// and all CPUs where there are too few for two sets.
func Split(allowed []int, serverThreads int) (server, client []int, shared bool, err error) {
	sys := os.DirFS("/sys/devices/system/cpu")
	return split(allowed, serverThreads, func(cpu int) int { return core(sys, cpu) })
}

// split is Split with the core of each CPU, as any number that its hyperthreads
// have in common.
func split(allowed []int, serverThreads int, core func(cpu int) int) (server, client []int, shared bool, err error) {
	if serverThreads < 1 || len(allowed) == 0 {
		return nil, nil, false, fmt.Errorf("cannot split %d CPUs for %d server threads", len(allowed), serverThreads)
	}
	cores := make(map[int]int, len(allowed))
	for _, cpu := range allowed {
		cores[cpu] = core(cpu)
	}
	cpus := slices.SortedFunc(slices.Values(allowed), func(a, b int) int {
		return cmp.Or(cmp.Compare(cores[a], cores[b]), cmp.Compare(a, b))
	})
	most := len(cpus) - serverThreads
	if most < 1 {
		return sorted(cpus), sorted(cpus), true, nil
	}
	divides := func(cut int) bool { return cores[cpus[cut-1]] != cores[cpus[cut]] }
	cut := most
	for cut > 0 && !divides(cut) {
		cut--
	}
	if cut == 0 {
		cut, shared = most, true
	}
	return sorted(cpus[cut:]), sorted(cpus[:cut]), shared, nil
}

func sorted(cpus []int) []int { return slices.Sorted(slices.Values(cpus)) }

// core is the lowest CPU of the core that cpu belongs to; cpu itself where sys,
// the kernel's directory of CPUs, does not tell (kernel: ABI/stable/
// sysfs-devices-system-cpu). The second name is that of kernels before 5.3.
func core(sys fs.FS, cpu int) int {
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
		list, err := fs.ReadFile(sys, fmt.Sprintf("cpu%d/topology/%s", cpu, name))
		if err != nil {
			continue
		}
		// Lists are ascending: "0,32" or "0-1".
		text := strings.TrimSpace(string(list))
		if end := strings.IndexAny(text, ",-"); end >= 0 {
			text = text[:end]
		}
		if lowest, err := strconv.Atoi(text); err == nil {
			return lowest
		}
	}
	return cpu
}
