// Package host observes the machine: what a measurement depends on without
// declaring it. Everything here is best effort on Linux; what a machine does not
// tell is absent.
package host

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Facts are the properties of the machine that do not change during a run.
// Neither host nor user name is among them.
type Facts struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Kernel       string `json:"kernel,omitempty"`
	CPUModel     string `json:"cpu_model,omitempty"`
	// CPUs is the number this process may use.
	CPUs int `json:"cpus"`
	// MemoryBytes is the physical memory.
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	BootID      string `json:"boot_id,omitempty"`
}

// Observe reads the facts.
func Observe(allowedCPUs int) Facts {
	f := Facts{OS: runtime.GOOS, Architecture: runtime.GOARCH, CPUs: allowedCPUs, BootID: BootID()}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		f.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	f.CPUModel = field("/proc/cpuinfo", "model name")
	if kb, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		f.MemoryBytes = kb << 10
	}
	return f
}

// Environment is the part of the facts that decides whether two samples may be
// pooled. Memory is a class, in GiB rounded up to a power of two: a few reserved
// pages do not make another machine.
func (f Facts) Environment(serverCPUs, clientCPUs int) map[string]string {
	env := map[string]string{
		"os": f.OS, "architecture": f.Architecture, "cpu_model": f.CPUModel,
		"server_cpus": strconv.Itoa(serverCPUs), "client_cpus": strconv.Itoa(clientCPUs),
	}
	if f.MemoryBytes > 0 {
		class := int64(1)
		for class<<30 < f.MemoryBytes {
			class *= 2
		}
		env["memory_class"] = fmt.Sprintf("%d GiB", class)
	}
	return env
}

// BootID names the current boot of the kernel; empty where there is none.
func BootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Load is a reading of the machine's counters.
type Load struct {
	at          time.Time
	busy, steal time.Duration
	pressure    time.Duration
	haveStat    bool
	havePSI     bool
	own         time.Duration
}

// Quiet says what else the machine did between two readings. Limits are not
// judged here; an absent figure was not observable.
type Quiet struct {
	WallSeconds float64 `json:"wall_seconds"`
	// OwnCPUSeconds is the CPU time of the server and the load generator,
	// OtherCPUSeconds that of everything else on the machine.
	OwnCPUSeconds   *float64 `json:"own_cpu_seconds,omitempty"`
	OtherCPUSeconds *float64 `json:"other_cpu_seconds,omitempty"`
	// StealSeconds is time the hypervisor gave to others.
	StealSeconds *float64 `json:"steal_seconds,omitempty"`
	// PressureSeconds is the time some task waited for a CPU (PSI "some").
	PressureSeconds *float64 `json:"cpu_pressure_seconds,omitempty"`
}

// ReadLoad takes a reading now.
func ReadLoad() Load {
	l := Load{at: time.Now()}
	if stat, err := os.ReadFile("/proc/stat"); err == nil {
		l.busy, l.steal, l.haveStat = parseStat(string(stat))
	}
	if psi, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		l.pressure, l.havePSI = parsePressure(string(psi))
	}
	var self unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &self) == nil {
		l.own = cpuTime(self)
	}
	return l
}

// Since compares l with an earlier reading; children is the CPU time that the
// processes of the run used.
func (l Load) Since(before Load, children time.Duration) Quiet {
	q := Quiet{WallSeconds: l.at.Sub(before.at).Seconds()}
	own := l.own - before.own + children
	q.OwnCPUSeconds = seconds(own)
	if l.haveStat && before.haveStat {
		q.OtherCPUSeconds = seconds(max(0, l.busy-before.busy-own))
		q.StealSeconds = seconds(l.steal - before.steal)
	}
	if l.havePSI && before.havePSI {
		q.PressureSeconds = seconds(l.pressure - before.pressure)
	}
	return q
}

func seconds(d time.Duration) *float64 {
	s := d.Round(time.Millisecond).Seconds()
	return &s
}

func cpuTime(r unix.Rusage) time.Duration {
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// parseStat reads the first line of /proc/stat, in ticks of 10 ms: user nice
// system idle iowait irq softirq steal (proc(5)).
func parseStat(text string) (busy, steal time.Duration, ok bool) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, false
	}
	var ticks [8]int64
	for i := range ticks {
		n, err := strconv.ParseInt(fields[i+1], 10, 64)
		if err != nil {
			return 0, 0, false
		}
		ticks[i] = n
	}
	const tick = 10 * time.Millisecond
	return time.Duration(ticks[0]+ticks[1]+ticks[2]+ticks[5]+ticks[6]) * tick, time.Duration(ticks[7]) * tick, true
}

// parsePressure reads the "some" total, in µs (kernel: accounting/psi).
func parsePressure(text string) (time.Duration, bool) {
	line, _, _ := strings.Cut(text, "\n")
	_, total, ok := strings.Cut(line, "total=")
	if !ok || !strings.HasPrefix(line, "some ") {
		return 0, false
	}
	us, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
	return time.Duration(us) * time.Microsecond, err == nil
}

// field returns the value after "name :" in a file of such lines.
func field(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
