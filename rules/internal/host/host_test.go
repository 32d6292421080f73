package host

import (
	"maps"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R) Processor\n\n" +
		"processor\t: 1\nmodel name\t: Another\n"
	arm = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n" +
		"processor\t: 1\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd05\n"
	openModule   = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)  \nGCC version:  gcc version 15.3.0 (GCC) \n"
	closedModule = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 12.2.0\n"
)

// What a machine tells becomes facts and an environment; what it does not tell
// is in neither.
func TestObserve(t *testing.T) {
	gpu := func(model string) string {
		return "Model: \t\t " + model + "\nIRQ:   \t\t 41\nGPU UUID: \t GPU-97e8d1db\n"
	}
	for _, c := range []struct {
		name  string
		proc  map[string]string
		facts Facts
		env   map[string]string
	}{
		{"nothing", nil, Facts{}, nil},
		{"unreadable figures", map[string]string{"cpuinfo": "model name\t:\n", "meminfo": "MemTotal: lots\n", "driver/nvidia/version": "none\n"}, Facts{}, nil},
		{"a server",
			map[string]string{"cpuinfo": intel, "meminfo": "MemTotal:       131981020 kB\nMemFree: 1 kB\n", "sys/kernel/random/boot_id": "b-1\n"},
			Facts{CPUModel: "Intel(R) Xeon(R) Processor", MemoryBytes: 131981020 << 10, BootID: "b-1"},
			map[string]string{"cpu_model": "Intel(R) Xeon(R) Processor", "memory_class": "128 GiB"}},
		{"Arm", map[string]string{"cpuinfo": arm},
			Facts{CPUModel: "implementer 0x41, part 0xd0c, variant 0x3"},
			map[string]string{"cpu_model": "implementer 0x41, part 0xd0c, variant 0x3"}},
		{"GPUs of one model",
			map[string]string{
				"driver/nvidia/version":                       openModule,
				"driver/nvidia/gpus/0000:00:06.0/information": gpu("NVIDIA H200"),
				"driver/nvidia/gpus/0000:00:07.0/information": gpu("NVIDIA H200"),
			},
			Facts{GPUs: []string{"NVIDIA H200", "NVIDIA H200"}, GPUDriver: "580.159.04"},
			map[string]string{"gpu_model": "NVIDIA H200", "gpu_count": "2", "gpu_driver": "580.159.04"}},
		{"GPUs of two models, the closed module",
			map[string]string{
				"driver/nvidia/version":                       closedModule,
				"driver/nvidia/gpus/0000:00:06.0/information": gpu("NVIDIA L4"),
				"driver/nvidia/gpus/0000:00:07.0/information": gpu("NVIDIA A10"),
				"driver/nvidia/gpus/0000:00:08.0/registry":    "no information",
			},
			Facts{GPUs: []string{"NVIDIA A10", "NVIDIA L4"}, GPUDriver: "535.104.05"},
			map[string]string{"gpu_model": "NVIDIA A10, NVIDIA L4", "gpu_count": "2", "gpu_driver": "535.104.05"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			proc := fstest.MapFS{}
			for name, text := range c.proc {
				proc[name] = &fstest.MapFile{Data: []byte(text)}
			}
			c.facts.OS, c.facts.Architecture = runtime.GOOS, runtime.GOARCH
			facts := observe(proc)
			if diff := cmp.Diff(c.facts, facts); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			want := map[string]string{
				"os": runtime.GOOS, "architecture": runtime.GOARCH,
				"server_cpus": "3", "client_cpus": "5", "shared_cpus": "false",
			}
			maps.Copy(want, c.env)
			if diff := cmp.Diff(want, facts.Environment(3, 5, false)); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

// Samples whose server and client contend are never pooled with others.
func TestEnvironmentTellsSharedCPUs(t *testing.T) {
	f := Observe(2)
	if f.CPUs != 2 || f.Kernel == "" {
		t.Errorf("%+v", f)
	}
	if alone, shared := f.Environment(1, 1, false), f.Environment(1, 1, true); shared["shared_cpus"] != "true" || maps.Equal(alone, shared) {
		t.Errorf("%v and %v", alone, shared)
	}
	for name, value := range f.Environment(1, 1, true) {
		if value == "" {
			t.Errorf("%s is empty, not absent", name)
		}
	}
}

func TestMemoryClass(t *testing.T) {
	for bytes, want := range map[int64]string{1: "1 GiB", 1 << 30: "1 GiB", 1<<30 + 1: "2 GiB", 24_640_000_000: "32 GiB", 32 << 30: "32 GiB"} {
		if got := (Facts{MemoryBytes: bytes}).Environment(1, 1, false)["memory_class"]; got != want {
			t.Errorf("%d bytes: %q, want %q", bytes, got, want)
		}
	}
}

func TestQuiet(t *testing.T) {
	reading := func(stat, psi string) (l Load) {
		l.busy, l.steal, l.haveStat = parseStat(stat)
		l.pressure, l.havePSI = parsePressure(psi)
		return l
	}
	before := reading("cpu  100 0 50 1000 5 0 0 10 0 0\ncpu0 1\n", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0 total=9\n")
	after := reading("cpu  300 0 150 1000 5 0 0 30 0 0\n", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n")
	q := after.Since(before, 2*time.Second)
	got := []float64{*q.OwnCPUSeconds, *q.OtherCPUSeconds, *q.StealSeconds, *q.PressureSeconds}
	if want := []float64{2, 1, 0.2, 0.5}; !slices.Equal(got, want) {
		t.Errorf("own, other, steal, pressure: %v, want %v", got, want)
	}
	for _, stat := range []string{"", "cpu 1 2 3", "cpu a b c d e f g h", "cpu0 1 2 3 4 5 6 7 8"} {
		for _, psi := range []string{"", "full total=1", "some total=x", "some avg10=0"} {
			if q := reading(stat, psi).Since(before, 0); q.OtherCPUSeconds != nil || q.StealSeconds != nil || q.PressureSeconds != nil {
				t.Errorf("%q and %q: %+v", stat, psi, q)
			}
		}
	}
}
