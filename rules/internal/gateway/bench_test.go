package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"assay/rules/internal/worker"
)

// BenchmarkRequest shows what the gateway adds to a request and to a chunk: compare
// it with the bare handler of the same run. The peers are in bench/.
func BenchmarkRequest(b *testing.B) {
	const chunks = 1000
	f := launch(b, fmt.Sprintf(`{"rules":[{"when":{"prompt":"long"},"do":{"count":%d}}],"default":{"count":8}}`, chunks), nil)
	f.await(worker.Idle, 1)
	chunk := "data: " + strings.Repeat("x", 150) + "\n\n"
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/stream" {
			io.WriteString(w, `{"choices":[{"text":"abcdefgh"}]}`)
			return
		}
		for range chunks {
			io.WriteString(w, chunk)
			w.(http.Flusher).Flush()
		}
	}))
	defer bare.Close()
	for _, c := range []struct{ name, url, body string }{
		{"bare", bare.URL, completion("hi", "")},
		{"buffered", f.url + textPath, completion("hi", "")},
		{"streamed", f.url + textPath, completion("hi", streamed)},
		{"bare/1000 chunks", bare.URL + "/stream", completion("hi", "")},
		{"streamed/1000 chunks", f.url + textPath, completion("long", streamed)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
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
