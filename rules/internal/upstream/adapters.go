package upstream

import (
	"regexp"
	"time"

	"assay/rules/internal/worker"
)

var both = []string{"chat", "completions"}

// media are the content parts that an engine may take. One that has no model for
// them refuses them itself.
var media = []string{"image_url", "video_url", "input_audio"}

// openAI is any server with OpenAI's HTTP interface: what most of them share.
//
//   - https://platform.openai.com/docs/api-reference/chat and …/completions
//   - errors of vLLM, SGLang and Ollama: their sources, by message, as their codes
//     say less
var openAI = Adapter{
	Name:         "openai",
	Verified:     "Assay's own gateway; llama.cpp's server in xllamacpp 2026.10.11549",
	Ready:        modelsPath,
	Capabilities: worker.Capabilities{Endpoints: both, Cancel: true, Logprobs: true, Content: media},
	KeepAlive:    time.Second,
	SendID:       "X-Request-ID",
	Prefixes:     []string{"chatcmpl-", "cmpl-"},
	Usage:        true,
	Refusals: []Refusal{
		{Status: 503, Message: regexp.MustCompile(`(?i)\b(overloaded|queue is full|queue timeout|server busy|too many requests)\b`), As: overloaded},
		{Status: 400, Message: regexp.MustCompile(`(?i)\bcontext (length|size|window)\b`), As: tooLong},
	},
}

// llamaServer is llama.cpp's HTTP server: the program llama-server, or the same
// code in the Python package xllamacpp.
//
// It has no id from outside, queues without limit, and stops a generation when the
// connection goes away. 503 with type unavailable_error means that it is loading,
// which is no refusal for capacity.
//
// https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
var llamaServer = Adapter{
	Name:         "llama-server",
	Verified:     "llama.cpp's server in xllamacpp 2026.10.11549",
	KeyVariable:  "LLAMA_API_KEY",
	Ready:        "/health",
	WarmUp:       map[string]any{"prompt": "a", "max_tokens": 1, "cache_prompt": false},
	Build:        Member{"/props", "build_info"},
	Capabilities: worker.Capabilities{Endpoints: both, Cancel: true, Logprobs: true, Tokenize: true, Content: media},
	CacheMember:  "cache_prompt",
	Usage:        true,
	Timings:      "timings",
	Tokenizer: &Tokenizer{Path: "/tokenize", Body: func(text string) any {
		return map[string]any{"content": text, "add_special": false, "parse_special": true}
	}},
	Refusals: []Refusal{
		{Status: 400, Kind: "exceed_context_size_error", As: tooLong},
		// It takes a picture for a text model for a fault of its own.
		{Status: 500, Message: regexp.MustCompile(`\b(image|audio|video) input is not supported\b`), As: invalid},
	},
}

// trtmcServer is trtmc-server, as its documentation describes the wire. It has one
// thread and a queue (16 places, --queue-capacity), so the time of a call includes
// what it waited there. It takes no id, tells no tokens, timing and finish reason,
// and finishes what it has begun. It refuses members that it does not know.
//
// A full queue is 429 queue_full; draining, 503 server_draining, is no refusal for
// capacity.
var trtmcServer = Adapter{
	Name:         "trtmc-server",
	Ready:        "/health/ready",
	Capabilities: worker.Capabilities{Endpoints: both, Buffered: true},
	ReplyID:      "X-Request-ID",
	NoFinish:     true,
}
