// Package host observes the machine: what a measurement depends on without
// declaring it. Everything here is best effort on Linux; what a machine does not
// tell is absent.
package host

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"slices"
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
	// CPUModel is the first CPU's name; on Arm, which names none, its
	// implementer, part and variant.
	CPUModel string `json:"cpu_model,omitempty"`
	// CPUs is the number this process may use.
	CPUs int `json:"cpus"`
	// MemoryBytes is the physical memory.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// GPUs are the models of the NVIDIA GPUs, sorted, one for each; GPUDriver is
	// the version of their kernel module.
	GPUs      []string `json:"gpus,omitempty"`
	GPUDriver string   `json:"gpu_driver,omitempty"`
	BootID    string   `json:"boot_id,omitempty"`
}

// Observe reads the facts.
func Observe(allowedCPUs int) Facts {
	f := observe(os.DirFS("/proc"))
	f.CPUs = allowedCPUs
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		f.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	return f
}

// observe reads the facts that proc tells, the kernel's file system.
func observe(proc fs.FS) Facts {
	f := Facts{OS: runtime.GOOS, Architecture: runtime.GOARCH, BootID: bootID(proc)}
	f.CPUModel = cpuModel(fields(proc, "cpuinfo"))
	if kb, err := strconv.ParseInt(strings.TrimSuffix(fields(proc, "meminfo")["MemTotal"], " kB"), 10, 64); err == nil {
		f.MemoryBytes = kb << 10
	}
	f.GPUs, f.GPUDriver = gpus(proc)
	return f
}

func cpuModel(info map[string]string) string {
	if model := info["model name"]; model != "" {
		return model
	}
	var parts []string
	for _, name := range []string{"implementer", "part", "variant"} {
		if value := info["CPU "+name]; value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	return strings.Join(parts, ", ")
}

// driverVersion is the version in a line such as "NVRM version: NVIDIA UNIX Open
// Kernel Module for x86_64  580.159.04  Release Build".
var driverVersion = regexp.MustCompile(`\s(\d+(?:\.\d+)+)(?:\s|$)`)

func gpus(proc fs.FS) (models []string, driver string) {
	files, _ := fs.Glob(proc, "driver/nvidia/gpus/*/information") // the pattern is well formed
	for _, file := range files {
		if model := fields(proc, file)["Model"]; model != "" {
			models = append(models, model)
		}
	}
	slices.Sort(models)
	if m := driverVersion.FindStringSubmatch(fields(proc, "driver/nvidia/version")["NVRM version"]); m != nil {
		driver = m[1]
	}
	return models, driver
}

// Environment is the part of the facts that decides whether two samples may be
// pooled; what the machine does not tell is absent. sharedCPUs is what Split said
// of the two sets. Memory is a class, in GiB rounded up to a power of two: a few
// reserved pages do not make another machine.
func (f Facts) Environment(serverCPUs, clientCPUs int, sharedCPUs bool) map[string]string {
	env := map[string]string{
		"os": f.OS, "architecture": f.Architecture,
		"server_cpus": strconv.Itoa(serverCPUs), "client_cpus": strconv.Itoa(clientCPUs),
		"shared_cpus": strconv.FormatBool(sharedCPUs),
	}
	if f.CPUModel != "" {
		env["cpu_model"] = f.CPUModel
	}
	if f.MemoryBytes > 0 {
		class := int64(1)
		for class<<30 < f.MemoryBytes {
			class *= 2
		}
		env["memory_class"] = fmt.Sprintf("%d GiB", class)
	}
	if len(f.GPUs) > 0 {
		env["gpu_model"] = strings.Join(slices.Compact(slices.Clone(f.GPUs)), ", ")
		env["gpu_count"] = strconv.Itoa(len(f.GPUs))
	}
	if f.GPUDriver != "" {
		env["gpu_driver"] = f.GPUDriver
	}
	return env
}

// BootID names the current boot of the kernel; empty where there is none.
func BootID() string { return bootID(os.DirFS("/proc")) }

func bootID(proc fs.FS) string {
	data, err := fs.ReadFile(proc, "sys/kernel/random/boot_id")
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

// fields reads a file of lines "name : value"; the first value of a name counts.
// A file that cannot be read has none.
func fields(fsys fs.FS, path string) map[string]string {
	data, err := fs.ReadFile(fsys, path)
	if err != nil {
		return nil
	}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); ok && values[name] == "" {
			values[name] = strings.TrimSpace(value)
		}
	}
	return values
}
