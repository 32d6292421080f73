package ledger_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"runtime"
	"testing"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/ledger"
)

// written yields n lines without holding them, and looks at the heap meanwhile.
type written struct {
	n, next int
	line    func(io.Writer, int)
	rest    bytes.Buffer
	peak    *uint64
}

func (w *written) Read(p []byte) (int, error) {
	for w.rest.Len() < len(p) && w.next < w.n {
		w.line(&w.rest, w.next)
		w.next++
	}
	note(w.peak)
	return w.rest.Read(p)
}

func note(peak *uint64) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*peak = max(*peak, m.HeapAlloc)
}

// A million requests must fit a small machine: each may take 1,000 bytes at the
// most, twice what is held, since a collection begins when the heap has doubled.
func TestMemoryIsBounded(t *testing.T) {
	const n, fixed, each = 100_000, 16 << 20, 1_000
	var before, peak uint64
	runtime.GC()
	note(&before)
	id := func(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", i*2654435761%(1<<32), i) }
	client := &written{n: n, peak: &peak, line: func(w io.Writer, i int) {
		fmt.Fprintf(w, `{"metadata":{"x_request_id":%q,"x_correlation_id":"%x-c","conversation_id":"session_%06d","benchmark_phase":"profiling","request_start_ns":%d},"start_perf_ns":%d,"status":200,"responses":[{"perf_ns":%d,"text":"{\"choices\":[{\"text\":\"x%d\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":3}}"}],"payload":{"prompt":"p %d"}}`+"\n",
			id(i), i, i, 1_796_000_000_000_000_000+i*1_000_000, i*1_000_000, i*1_000_000+500_000, i, i)
	}}
	server := &written{n: n, peak: &peak, line: func(w io.Writer, i int) {
		fmt.Fprintf(w, `{"schema":1,"request_id":%q,"status":200,"outcome":"completed","queue_ns":5000,"first_write_ns":90000,"total_ns":400000,"task":{"scope":"s","wall_ns":300000,"completion_tokens":3,"text_sha256":"%s"}}`+"\n", id(i), digest(fmt.Sprint("x", i)))
	}}
	entries := 0
	s, err := ledger.Build(ledger.Input{
		Plan: ledger.Plan{Measured: n}, Client: aiperf.ReadRaw(client, "client", 0), Server: ledger.ReadServer(server, "server", 0),
	}, func(e *ledger.Entry) error {
		if entries++; entries%1000 == 0 {
			note(&peak)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Quality.Identical != 0 || s.Quality.OneToOne != n || s.Quality.Text[ledger.Equal] != n {
		t.Errorf("%+v", s.Quality)
	}
	if used := peak - before; used > fixed+n*each {
		t.Errorf("%d bytes at the peak for %d requests, more than %d and %d each", used, n, fixed, each)
	}
}

var bytesRead = flag.Int64("bytes", 96<<20, "size of the export of TestMemoryDoesNotGrowWithSize, such as 20000000000")

// Requests with a picture each: however many bytes there are, only the records that
// are being read are held.
func TestMemoryDoesNotGrowWithSize(t *testing.T) {
	const picture, most = 1 << 20, 64 << 20
	n := int(*bytesRead / picture)
	var before, peak uint64
	runtime.GC()
	note(&before)
	data := bytes.Repeat([]byte("A"), picture)
	client := &written{n: n, peak: &peak, line: func(w io.Writer, i int) {
		fmt.Fprintf(w, `{"metadata":{"x_request_id":"%d","benchmark_phase":"profiling","request_start_ns":%d},"start_perf_ns":%d,"status":200,"responses":[{"perf_ns":%d,"text":"{\"choices\":[{\"text\":\"x\",\"finish_reason\":\"stop\"}]}"}],"payload":{"prompt":"%s"}}`+"\n",
			i, 1_796_000_000_000_000_000+i, i, i+5, data)
	}}
	s, err := ledger.Build(ledger.Input{Plan: ledger.Plan{Measured: n}, Client: aiperf.ReadRaw(client, "client", 0)}, func(*ledger.Entry) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Counts[ledger.Measured][ledger.Completed]; got != n {
		t.Errorf("%d of %d requests completed", got, n)
	}
	if used := peak - before; used > most {
		t.Errorf("%d MiB at the peak for %d MiB, more than %d", used>>20, *bytesRead>>20, most>>20)
	}
	t.Logf("%d MiB read, %d MiB at the peak", *bytesRead>>20, (peak-before)>>20)
}
