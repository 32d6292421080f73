// Package measured versions the code in the measured path: gateway, workers and
// runner. The version is part of the key of every measurement, so that a change
// of that code measures again and a change of anything else does not.
package measured

import (
	_ "embed"
	"strings"
)

// history has one line a version: the version and the digest of the sources. A
// test fails when the sources have a digest that the last line does not name.
//
//go:embed versions.txt
var history string

// Version and Sources identify the measured path of this program: a number, and
// the digest of the sources it stands for.
var Version, Sources = last(history)

func last(history string) (version, sources string) {
	lines := strings.Split(strings.TrimSpace(history), "\n")
	version, sources, _ = strings.Cut(lines[len(lines)-1], " ")
	return version, sources
}
