package upstream

import (
	"net/http"
	"regexp"
	"slices"
	"time"

	"assay/rules/internal/worker"
)

// Adapter is what there is to know about one kind of engine. Docs/adapters.md shows
// all of them and says how to add the next one.
type Adapter struct {
	Name string
	// Verified names the engines and versions that Assay's tests run this adapter
	// against. Empty means unverified: its facts are only what somebody wrote down.
	Verified string
	// KeyVariable is the environment variable from which an engine that is started
	// takes its API key; empty means that it has none.
	KeyVariable string

	// Ready is the path that answers 200 when the engine takes requests.
	Ready string
	// WarmUp is the body of a completion that an engine gets before it is said to be
	// ready, if it is started here and sets up things late; nil for none.
	WarmUp map[string]any
	// Build is where the engine says its version, if it does.
	Build Member
	// Capabilities are those of every engine of the kind.
	Capabilities worker.Capabilities

	// KeepAlive is how long after an answer its connection takes another request for
	// sure. 0 means a connection for each request: the engine promises nothing, or
	// an open connection holds one of its threads.
	KeepAlive time.Duration
	// SendID is the header that gives the engine the request's id, empty if it takes
	// none. ReplyID is the header of the answer with the engine's own id; empty
	// means that it is the member id of the body. Prefixes come before it there.
	SendID, ReplyID string
	Prefixes        []string
	// CacheMember is the member of a request that says whether the engine may reuse
	// the work on an earlier prompt; it is always set.
	CacheMember string
	// Usage says that the engine counts tokens. A stream has to be asked for them.
	Usage bool
	// Timings is the member of the answer with the engine's own figures of the
	// request; they are recorded under the engine's names.
	Timings string
	// NoFinish says that the engine ends its answers without a finish reason.
	NoFinish bool
	// Tokenizer is nil for an engine that does not show its tokenizer.
	Tokenizer *Tokenizer
	// Refusals are the refusals that the gateway has a word of its own for; the
	// first that matches counts.
	Refusals []Refusal
}

// Member is a member of the JSON object at a path.
type Member struct{ Path, Name string }

// Tokenizer is an endpoint that answers {"tokens": [...]}.
type Tokenizer struct {
	Path string
	// Body is the request for the ids of a text, without special tokens around it.
	Body func(text string) any
}

// Refusal recognises an error of the engine. Empty fields match all.
type Refusal struct {
	Status  int
	Kind    string // the error's type or code
	Message *regexp.Regexp
	As      Word
}

// Word is what the gateway calls a refusal: a code, and a status unless the
// engine's is right.
type Word struct {
	Status int
	Code   string
}

var (
	// 429 and 529 say by themselves that the engine is full, 503 does not.
	overloaded = Word{Code: "overloaded"}
	tooLong    = Word{http.StatusBadRequest, "context_length_exceeded"}
	invalid    = Word{http.StatusBadRequest, "invalid_request"}
)

func (r *Refusal) matches(e *refused) bool {
	return (r.Status == 0 || r.Status == e.status) &&
		(r.Kind == "" || r.Kind == e.kind || r.Kind == e.code) &&
		(r.Message == nil || r.Message.MatchString(e.message))
}

// Adapters lists all adapters, the default first.
var Adapters = []Adapter{openAI, llamaServer, trtmcServer}

// Find returns the adapter of a name.
func Find(name string) (Adapter, bool) {
	i := slices.IndexFunc(Adapters, func(a Adapter) bool { return a.Name == name })
	if i < 0 {
		return Adapter{}, false
	}
	return Adapters[i], true
}

// Names lists the adapters' names, the default first.
func Names() []string {
	names := make([]string, len(Adapters))
	for i, a := range Adapters {
		names[i] = a.Name
	}
	return names
}
