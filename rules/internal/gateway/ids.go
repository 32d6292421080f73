package gateway

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

const idHeader = "X-Request-ID"

// idForm is the form of a request's id, as a refusal tells it.
const idForm = "^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"

func inForm(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && strings.IndexByte("._:/-", c) >= 0:
		default:
			return false
		}
	}
	return 0 < len(id) && len(id) <= 128
}

// remembered is how many ids are known at least, to mark repeats. At some 100 bytes
// each, a server that runs for months stays within bounds.
const remembered = 500_000

// ids holds the request ids that came last.
type ids struct {
	mu         sync.Mutex
	young, old map[string]struct{}
}

// repeated notes an id and says whether it is known.
func (s *ids) repeated(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, young := s.young[id]
	_, old := s.old[id]
	if s.young == nil || len(s.young) >= remembered {
		s.old, s.young = s.young, map[string]struct{}{}
	}
	s.young[id] = struct{}{}
	return young || old
}

// requestID is the id that the client gave, or a new one if it gave none in form.
func requestID(h http.Header) (id string, given bool) {
	if ids := h.Values(idHeader); len(ids) == 1 && inForm(ids[0]) {
		return ids[0], true
	}
	return newID(), false
}

// mark gives the answer to a request that leaves no record its id.
func mark(w http.ResponseWriter, r *http.Request) {
	id, _ := requestID(r.Header)
	w.Header().Set(idHeader, id)
}

// newID makes a random UUID (version 4).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// traceForm is the form of traceparent, version 00 and later ones that begin like it.
// https://www.w3.org/TR/trace-context/#traceparent-header
var traceForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-|$)`)

// maxTraceState is how much of tracestate is passed on, as the standard asks at least.
const maxTraceState = 512

// traceContext is the caller's trace context. One that is not in form is dropped, as
// the standard says: it must not fail a request.
func traceContext(h http.Header) (parent, state string) {
	given := h.Values("Traceparent")
	if len(given) != 1 || len(given[0]) > 256 || !traceForm.MatchString(given[0]) {
		return "", ""
	}
	state = strings.Join(h.Values("Tracestate"), ",")
	if len(state) > maxTraceState {
		state = ""
	}
	return given[0], state
}

// clock places durations: the zero of a record's received_ns, in which boot.
type clock struct {
	began  time.Time
	bootID string
}

func newClock() clock {
	// Only Linux has it; elsewhere times of two processes are never compared.
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return clock{time.Now(), strings.TrimSpace(string(boot))}
}
