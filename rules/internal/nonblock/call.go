//go:build !linux || race

package nonblock

import "syscall"

// The race detector has to see that bytes put their reader behind their writer, and
// other systems want to be called through their libraries.
func read(fd int, p []byte) (int, error)  { return syscall.Read(fd, p) }
func write(fd int, p []byte) (int, error) { return syscall.Write(fd, p) }
