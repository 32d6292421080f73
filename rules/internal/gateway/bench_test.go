package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"assay/rules/internal/worker"
)

// BenchmarkRequest shows what the gateway adds to a request: compare it with
// the bare handler of the same run.
func BenchmarkRequest(b *testing.B) {
	f := launch(b, `{"default":{"tokens":["a","b","c","d","e","f","g","h"]}}`, nil)
	f.await(worker.Idle, 1)
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"choices":[{"text":"abcdefgh"}]}`)
	}))
	defer bare.Close()
	for _, c := range []struct{ name, url, body string }{
		{"bare", bare.URL, completion("hi", "")},
		{"buffered", f.url + textPath, completion("hi", "")},
		{"streamed", f.url + textPath, completion("hi", streamed)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				resp, err := f.client.Post(c.url, "application/json", strings.NewReader(c.body))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					b.Fatal(resp.Status, err)
				}
				resp.Body.Close()
			}
		})
	}
	f.end()
}
