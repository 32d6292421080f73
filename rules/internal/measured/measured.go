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
// the digest of the sources it stands for. Key is the component of keys: the
// version with the digest that it was introduced with, since two branches may
// give the same number to different sources. A change that cannot change results
// adds a line with the same version.
var Version, Sources, Key = parse(history)

func parse(history string) (version, sources, key string) {
	first := map[string]string{}
	for line := range strings.Lines(history) {
		version, sources, _ = strings.Cut(strings.TrimSpace(line), " ")
		if _, ok := first[version]; !ok {
			first[version] = sources
		}
	}
	return version, sources, version + " " + first[version]
}
