//go:build unix && !linux

package supervise

// AdoptOrphans does nothing: only Linux has subreapers.
func AdoptOrphans() {}

// KillDescendants does nothing: without /proc the descendants are not known.
// Groups are still ended by Stop.
func KillDescendants() (killed int) { return 0 }
