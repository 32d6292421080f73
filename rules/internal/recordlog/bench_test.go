package recordlog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"assay/rules/internal/record"
)

// typical is a record with all that a served stream has.
func typical() *record.Record {
	lane, worker, tokens := 0, 1, int64(36)
	ns := int64(486_473_560)
	return &record.Record{
		Schema: 1, RequestID: "3f2b8c1e-9d4a-4e57-8b60-0a1f2c3d4e5f", IDSource: "client", Endpoint: "chat", Stream: true, Model: "qwen3-0.6b",
		Status: 200, Outcome: record.Completed, Lane: &lane, Worker: &worker,
		ReceivedWallNS: 1_796_073_242_390_226_176, ReceivedNS: 12_345_678_901, BootID: "5e8d0a52-6a0e-4a3e-9f0c-2f3f1b7c8d9e",
		QueueNS: &ns, FirstWriteNS: &ns, TotalNS: ns, ClientWriteNS: &ns,
		Task: &record.Task{
			Scope: record.ScopeStream, Source: record.SourceWorker, WallNS: ns, FirstIncrementNS: &ns, Increments: 8,
			PromptTokens: &tokens, CompletionTokens: &tokens, CachedTokens: &tokens, FinishReason: "stop",
			TextSHA256: "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", TextBytes: 31,
			Engine: map[string]float64{"prompt_ms": 346.39, "predicted_ms": 136.6, "cache_n": 0},
		},
	}
}

// BenchmarkAppend appends a record; its peer only writes the bytes of one.
func BenchmarkAppend(b *testing.B) {
	r := typical()
	line, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	line = append(line, '\n')

	b.Run("log", func(b *testing.B) {
		l := mustOpen(b, place(b), osDisk{})
		b.ReportAllocs()
		b.SetBytes(int64(len(line)))
		for b.Loop() {
			if err := l.Append(r); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("bare write", func(b *testing.B) {
		f, err := os.OpenFile(filepath.Join(b.TempDir(), "bare"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.SetBytes(int64(len(line)))
		for b.Loop() {
			if _, err := f.Write(line); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	})
}
