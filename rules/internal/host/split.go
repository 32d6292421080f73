package host

import "fmt"

// Split gives the server its threads' worth of CPUs from the end of allowed and
// the rest to the load generator with the gateway. Where there are too few for
// disjoint sets both get all of them and shared is true: contention is then part
// of what is measured, and has to be said.
func Split(allowed []int, serverThreads int) (server, client []int, shared bool, err error) {
	if serverThreads < 1 || len(allowed) == 0 {
		return nil, nil, false, fmt.Errorf("cannot split %d CPUs for %d server threads", len(allowed), serverThreads)
	}
	if cut := len(allowed) - serverThreads; cut >= 1 {
		return allowed[cut:], allowed[:cut], false, nil
	}
	return allowed, allowed, true, nil
}
