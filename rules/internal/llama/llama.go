// Package llama holds two programs around llama.cpp, in Python, that need
// xllamacpp and nothing else: a worker that calls the engine in its own process,
// and the engine's own HTTP server.
package llama

import _ "embed"

// Worker speaks the worker protocol. It runs as `python -I FILE --config CONFIG`,
// where CONFIG is a file with a Config.
//
//go:embed worker.py
var Worker []byte

// Server is reached through the adapter llama-server. It runs as
// `python -I FILE --config CONFIG --port PORT`, where CONFIG is a file with a
// ServerConfig.
//
//go:embed server.py
var Server []byte

// Config is what the worker is told.
type Config struct {
	Model       string `json:"model"`   // path of the GGUF file
	Context     int    `json:"context"` // tokens
	Threads     int    `json:"threads"`
	PromptCache bool   `json:"prompt_cache"`
	MMProj      string `json:"mmproj,omitempty"` // path of the projector for media
}

// ServerConfig is what the server is told.
type ServerConfig struct {
	Model       string `json:"model"` // path of the GGUF file
	Name        string `json:"name"`  // of the model, in requests
	Context     int    `json:"context"`
	Slots       int    `json:"slots"`   // requests served at the same time
	Threads     int    `json:"threads"` // of all slots together
	PromptCache bool   `json:"prompt_cache"`
}
