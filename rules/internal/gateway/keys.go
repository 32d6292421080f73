package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"strings"

	"assay/rules/internal/openai"
)

// keys are the digests of the API keys; none means that none is asked for.
type keys [][sha256.Size]byte

// readKeys reads a file with one key a line. Empty lines and lines that begin with
// # are comments.
func readKeys(file string) (keys, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("api_keys_file: %w", err)
	}
	var k keys
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			k = append(k, sha256.Sum256([]byte(line)))
		}
	}
	if k == nil {
		return nil, fmt.Errorf("api_keys_file: there is no key in %s", file)
	}
	return k, nil
}

// admit says why a request may not come in, and is nil if it may. How long it takes
// tells nothing of the keys: digests are compared, all of them, and in full.
func (k keys) admit(r *http.Request) *openai.Error {
	if k == nil {
		return nil
	}
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(given))
	known := 0
	for i := range k {
		known |= subtle.ConstantTimeCompare(k[i][:], sum[:])
	}
	if bearer && known == 1 {
		return nil
	}
	return &openai.Error{Type: "authentication_error", Code: "invalid_api_key", Message: "an API key is needed: Authorization: Bearer KEY"}
}

// locked asks for a key before it lets a request in.
func (s *Server) locked(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		mark(w, r)
		if refusal := s.keys.admit(r); refusal != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			respond(w, http.StatusUnauthorized, openai.ErrorBody{Error: refusal})
			return
		}
		h(w, r)
	}
}
