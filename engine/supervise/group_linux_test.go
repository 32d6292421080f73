package supervise

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// leave starts a shell whose child outlives it, as after the end of a build that
// was killed, and returns what the build had noted.
func leave(t *testing.T, script string) Group {
	t.Helper()
	dir := t.TempDir()
	var noted []Group
	ctx := WithObserver(t.Context(), func(g Group) { noted = append(noted, g) })
	p, err := Start(ctx, Spec{Path: "/bin/sh", Args: []string{"-c", script}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	for {
		if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if len(noted) != 1 || noted[0].ID != p.Pid() || noted[0].Start == 0 || noted[0].Boot == "" || noted[0].Program != "sh" {
		t.Fatalf("noted %+v", noted)
	}
	return noted[0]
}

const (
	leaderStays  = "sleep 1000 & : > ready; wait"
	leaderLeaves = "sleep 1000 & : > ready"
)

func TestGroupThatIsTheSameIsKilled(t *testing.T) {
	for name, script := range map[string]string{"leader stays": leaderStays, "leader leaves": leaderLeaves} {
		t.Run(name, func(t *testing.T) {
			g := leave(t, script)
			if killed, err := g.Kill(); err != nil || !killed {
				t.Fatalf("killed %t, %v", killed, err)
			}
			if groupAlive(g.ID) {
				t.Error("it is still there")
			}
			if killed, err := g.Kill(); err != nil || killed {
				t.Errorf("a second time: killed %t, %v", killed, err)
			}
		})
	}
}

func TestGroupThatMayBeAnotherIsLeftAlone(t *testing.T) {
	stays, leaves := leave(t, leaderStays), leave(t, leaderLeaves)
	for name, change := range map[string]func(*Group){
		"another boot":      func(g *Group) { g.Boot = "another" },
		"no boot":           func(g *Group) { g.Boot = "" },
		"another start":     func(g *Group) { g.Start++; g.Dir = "" },
		"another directory": func(g *Group) { g.Start++; g.Dir = "/nowhere" },
		"everybody":         func(g *Group) { g.ID = 1 },
		"this group":        func(g *Group) { g.ID = 0 },
	} {
		for _, g := range []Group{stays, leaves} {
			change(&g)
			if killed, err := g.Kill(); err != nil || killed {
				t.Errorf("%s: killed %t, %v", name, killed, err)
			}
		}
	}
	if !groupAlive(stays.ID) || !groupAlive(leaves.ID) {
		t.Error("one was killed")
	}
}
