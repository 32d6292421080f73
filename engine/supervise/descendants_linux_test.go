package supervise

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// A grandchild in a session of its own, which ignores TERM, is out of reach of
// its group's end; it is not out of reach of this.
func TestDescendantsAreFoundWhateverTheirSession(t *testing.T) {
	cmd := exec.Command("sh", "-c", `setsid sh -c 'trap "" TERM; while :; do sleep 1; done' & wait`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	var below []int
	for len(below) < 3 { // sh, sh, sleep
		below = descendants(os.Getpid())
		time.Sleep(time.Millisecond)
	}
	if !slices.Contains(below, cmd.Process.Pid) {
		t.Fatalf("%v does not contain the child %d", below, cmd.Process.Pid)
	}
	KillDescendants()
	for _, pid := range below {
		if slices.Contains(descendants(os.Getpid()), pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
}

func TestCPUTimeIsThatOfTheTree(t *testing.T) {
	p, err := Start(t.Context(), Spec{Path: "/bin/sh", Args: []string{"-c", `sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'`}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if p.CPUTime() <= 0 {
		t.Fatalf("CPU time %s", p.CPUTime())
	}
}
