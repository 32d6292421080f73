//go:build unix && !linux

package main

import "context"

func fileSystem(string) (verdict, text string) { return fine, "can be written" }

func namespaces(context.Context) (verdict, text string) {
	return warn, "there are none on this system: server and load generator share the machine's network"
}
