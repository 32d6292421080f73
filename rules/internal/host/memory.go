package host

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// OutOfMemoryKills is how many processes the kernel has killed for want of memory
// since it started; 0 where it does not tell.
func OutOfMemoryKills() int64 { return outOfMemoryKills(os.DirFS("/proc")) }

func outOfMemoryKills(proc fs.FS) int64 {
	data, err := fs.ReadFile(proc, "vmstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "oom_kill" {
			n, _ := strconv.ParseInt(value, 10, 64) // what is no number tells nothing
			return n
		}
	}
	return 0
}
