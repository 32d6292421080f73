package host

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// Busy is how long a set of CPUs has been busy, all of them together: a reading
// of counters that start with the boot, good for the difference of two.
type Busy struct {
	WallNS int64 `json:"wall_ns"` // Unix time
	BusyNS int64 `json:"busy_ns"`
}

// ReadBusy takes a reading of these CPUs, whoever uses them; false where the
// machine does not tell.
func ReadBusy(cpus []int) (Busy, bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Busy{}, false
	}
	busy, ok := parseBusy(string(stat), cpus)
	return Busy{WallNS: time.Now().UnixNano(), BusyNS: busy.Nanoseconds()}, ok
}

// parseBusy adds up the lines cpu0, cpu1, … of /proc/stat.
func parseBusy(stat string, cpus []int) (sum time.Duration, ok bool) {
	for _, cpu := range cpus {
		name := "cpu" + strconv.Itoa(cpu) + " "
		_, line, found := strings.Cut(stat, "\n"+name)
		if !found {
			return 0, false
		}
		busy, _, ok := parseStat("cpu " + line)
		if !ok {
			return 0, false
		}
		sum += busy
	}
	return sum, len(cpus) > 0
}

// BusyLog is a series of readings, ever further apart: it never has more than
// maxReadings.
type BusyLog struct {
	Readings []Busy
	calls    int
	step     int
}

const maxReadings = 128

// Add takes a reading in, or leaves it out where the series has grown coarser.
func (l *BusyLog) Add(b Busy) {
	l.step = max(l.step, 1)
	if l.calls++; (l.calls-1)%l.step != 0 {
		return
	}
	if l.Readings = append(l.Readings, b); len(l.Readings) < maxReadings {
		return
	}
	for i := range maxReadings / 2 {
		l.Readings[i] = l.Readings[2*i]
	}
	l.Readings = l.Readings[:maxReadings/2]
	l.step *= 2
}
