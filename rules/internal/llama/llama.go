// Package llama holds the worker for llama.cpp: a Python program that needs
// xllamacpp and nothing else.
package llama

import _ "embed"

// Worker is the program. It runs as `python -I FILE --config CONFIG`, where
// CONFIG is a file with a Config.
//
//go:embed worker.py
var Worker []byte

// Transports: how a request reaches the engine.
const (
	InProcess = "in_process" // a call in the worker's own process
	HTTP      = "http"       // the engine's own HTTP server, over loopback
)

// Config is what the program is told.
type Config struct {
	Model       string `json:"model"`   // path of the GGUF file
	Context     int    `json:"context"` // tokens
	Threads     int    `json:"threads"`
	PromptCache bool   `json:"prompt_cache"`
	Transport   string `json:"transport"`
	MMProj      string `json:"mmproj,omitempty"` // path of the projector for media
}
