package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Names of the two files in the data folder.
const (
	clientFile = "profile_export_raw.jsonl"
	serverFile = "server.jsonl"
)

// generate writes n requests as AIPerf 0.13.0 exports them, and the records of
// the server that answered them. The same seed gives the same bytes. Of 10,000
// requests, in whole or in part at random:
//
//	100 are refused with 429, and the server has a record without a call
//	 10 are missing on the server, 10 others are only there
//	  5 have a second record on the server, a 503 before the answer
//	  2 share the id of the request before them
//
// Both files are in the order of the ends of the requests, as they are in a run;
// AIPerf's several writers put its own a little more out of order.
func generate(dir string, n int, seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 0))
	requests := make([]request, n)
	at := int64(0)
	for i := range requests {
		at += rnd.Int64N(2_000_000)
		requests[i] = draw(rnd, at)
		if i > 0 && rnd.IntN(10_000) < 1 {
			requests[i].id = requests[i-1].id
		}
	}
	slices.SortFunc(requests, func(a, b request) int { return int(a.start + a.latency - b.start - b.latency) })
	err := write(filepath.Join(dir, serverFile), func(w *bufio.Writer) {
		for i := range requests {
			requests[i].served(w, rnd)
		}
	})
	shuffleNear(rnd, requests)
	return errors.Join(err, write(filepath.Join(dir, clientFile), func(w *bufio.Writer) {
		for i := range requests {
			requests[i].exported(w, i)
		}
	}))
}

// request is what both sides are written from. Times are in ns, those called
// start and latency from the first dispatch.
type request struct {
	id, correlation uuid
	seed            uint64 // of the prompt
	start           int64
	latency, ttft   int64
	stream, refused bool
	chunks          int
}

type uuid [16]byte

func (u uuid) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func newUUID(rnd *rand.Rand) (u uuid) {
	for i := range u {
		u[i] = byte(rnd.Uint32())
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u
}

func draw(rnd *rand.Rand, at int64) request {
	r := request{id: newUUID(rnd), correlation: newUUID(rnd), seed: rnd.Uint64(), start: at}
	r.latency = 20_000_000 + int64(rnd.ExpFloat64()*40_000_000)
	r.ttft = r.latency / 4
	r.stream = rnd.IntN(10) < 3
	r.refused = rnd.IntN(100) < 1
	r.chunks = 1
	if r.stream {
		r.chunks = 2 + rnd.IntN(3)
	}
	return r
}

// shuffleNear moves requests by some hundred places at most.
func shuffleNear(rnd *rand.Rand, requests []request) {
	for part := range slices.Chunk(requests, 200) {
		rnd.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
	}
}

var words = []string{" blue", " sky", " über", " the", " of", " water", " 海", " light", " and", " moves", " \"quoted\"", " slow"}

func word(r *request, i int) string { return words[(r.seed>>(4*i))%uint64(len(words))] }

const (
	wallZero = 1_796_073_242_390_226_176 // Unix time of the first dispatch
	perfZero = 2_819_199_604_874
)

// exported writes the client's record. Events behind the last content carry its
// stamp, as when they come in one packet: so the other contenders find the end of
// the content without a look into the events.
func (r *request) exported(w *bufio.Writer, i int) {
	start := int64(wallZero) + r.start
	accept := "application/json"
	if r.stream {
		accept = "text/event-stream"
	}
	fmt.Fprintf(w, `{"metadata":{"session_num":%d,"x_request_id":"%s","x_correlation_id":"%s","conversation_id":"session_%06d","turn_index":0,"credit_issued_ns":%d,"request_start_ns":%d,`,
		i, r.id, r.correlation, i, start-1_200_000, start)
	if !r.refused {
		fmt.Fprintf(w, `"request_ack_ns":%d,`, start+r.ttft)
	}
	fmt.Fprintf(w, `"request_end_ns":%d,"worker_id":"worker_7b91edac","record_processor_id":"record_processor_fee3bcf5","benchmark_phase":"profiling","was_cancelled":false},"start_perf_ns":%d,`,
		start+r.latency, perfZero+r.start)
	fmt.Fprintf(w, `"request_headers":{"User-Agent":"aiperf/0.13.0","X-Request-ID":"%s","Accept":"%s","Content-Type":"application/json"},`, r.id, accept)
	switch end := perfZero + r.start + r.latency; {
	case r.refused:
		w.WriteString(`"status":429,"responses":[],"error":{"code":429,"type":"Too Many Requests","message":"{\"error\": {\"code\": \"overloaded\", \"message\": \"all lanes busy\"}}"}`)
	case r.stream:
		w.WriteString(`"status":200,"responses":[`)
		for c := range r.chunks {
			fmt.Fprintf(w, `{"perf_ns":%d,"packets":[{"name":"data","value":"{\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\"%s\",\"finish_reason\":null}]}"}]},`,
				perfZero+r.start+r.ttft+(r.latency-r.ttft)*int64(c)/int64(r.chunks-1), escaped(word(r, c), 2))
		}
		fmt.Fprintf(w, `{"perf_ns":%d,"packets":[{"name":"data","value":"{\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":%d}}"}]},`, end, r.chunks)
		fmt.Fprintf(w, `{"perf_ns":%d,"packets":[{"name":"data","value":"[DONE]"}]}]`, end)
	default:
		fmt.Fprintf(w, `"status":200,"responses":[{"perf_ns":%d,"text":"{\"id\":\"c\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"%s\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":%d}}","content_type":"application/json"}]`,
			end, escaped(word(r, 0), 2), r.chunks)
	}
	fmt.Fprintf(w, `,"payload":{"prompt":"%s","model":"m","stream":%t,"max_tokens":16}}`+"\n", escaped(r.prompt(), 1), r.stream)
}

func (r *request) prompt() string {
	text := fmt.Sprintf("%016x", r.seed)
	for i := range 8 {
		text += word(r, i)
	}
	return text
}

// escaped is the inside of a JSON string within level-1 others.
func escaped(s string, level int) string {
	for range level {
		var b []byte
		for i := range len(s) {
			if s[i] == '"' || s[i] == '\\' {
				b = append(b, '\\')
			}
			b = append(b, s[i])
		}
		s = string(b)
	}
	return s
}

// served writes the server's records of a request.
func (r *request) served(w *bufio.Writer, rnd *rand.Rand) {
	fate := rnd.IntN(10_000)
	id := r.id
	switch {
	case fate < 10:
		id = newUUID(rnd) // missing, and a stranger in its place
	case fate < 15:
		r.head(w, id, 503, "rejected")
		fmt.Fprintf(w, `"total_ns":%d}`+"\n", 80_000)
	}
	if r.refused {
		r.head(w, id, 429, "rejected")
		fmt.Fprintf(w, `"total_ns":%d}`+"\n", 90_000)
		return
	}
	scope := "public_task_call_wall"
	if r.stream {
		scope = "public_task_stream_wall_including_backpressure"
	}
	text := ""
	for c := range r.chunks {
		text += word(r, c)
	}
	wall := r.latency - 2_000_000 - rnd.Int64N(5_000_000)
	r.head(w, id, 200, "completed")
	fmt.Fprintf(w, `"queue_ns":%d,"first_write_ns":%d,"total_ns":%d,"task":{"scope":"%s","source":"worker","wall_ns":%d,"first_increment_ns":%d,"increments":%d,`,
		40_000+rnd.Int64N(20_000), r.ttft, wall+400_000, scope, wall, wall/4, r.chunks)
	fmt.Fprintf(w, `"prompt_tokens":12,"completion_tokens":%d,"cached_tokens":0,"finish_reason":"stop","text_sha256":"%x","text_bytes":%d}}`+"\n", r.chunks, sha256.Sum256([]byte(text)), len(text))
}

func (r *request) head(w *bufio.Writer, id uuid, status int, outcome string) {
	fmt.Fprintf(w, `{"schema":1,"request_id":"%s","id_source":"client","endpoint":"completions","stream":%t,"model":"m","status":%d,"outcome":"%s","lane":0,"worker":1,"received_wall_ns":%d,"received_ns":%d,"boot_id":"6f1b2a3c-0d4e-4f5a-8b6c-7d8e9f0a1b2c",`,
		id, r.stream, status, outcome, wallZero+r.start+200_000, r.start+200_000)
}

func write(path string, fill func(*bufio.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	fill(w)
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
