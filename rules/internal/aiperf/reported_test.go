package aiperf_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/aiperf"
)

func TestReported(t *testing.T) {
	f, err := os.Open("testdata/mixed_summary.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := aiperf.ReadReported(f, "summary")
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != "0.13.0" || r.Schema != "1.4" || r.BenchmarkID != "099ed61dfb1c" || r.Strange != nil || r.Phases != nil || r.Measured() != nil {
		t.Errorf("%+v", r)
	}
	if *r.Latency.Count != 11 || *r.Latency.P50 != 94.261386 || *r.TTFT.P99 != 4.0208388 || *r.DurationS != 0.9449152000000001 {
		t.Errorf("%+v", r.Latency)
	}
}

func TestReportedTakesWhatItUnderstands(t *testing.T) {
	const text = `{"aiperf_version":9,"benchmark_id":"b","request_latency":[1],"request_throughput":{"avg":2.5},"input_config":{
		"models":{"items":[{"name":"m"}]},"endpoint":{"type":"chat","streaming":true},
		"phases":[{"kind":"warmup","requests":[1,2]},{"kind":"profiling","type":"constant","requests":20.0,"rate":5}]}}`
	r, err := aiperf.ReadReported(strings.NewReader(text), "s")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"aiperf_version", "input_config", "request_latency"}; !slices.Equal(r.Strange, want) {
		t.Errorf("strange %q, want %q", r.Strange, want)
	}
	if m := r.Measured(); r.BenchmarkID != "b" || *r.RequestsPerS != 2.5 || r.Model != "m" || !r.Streaming || m == nil || *m.Requests != 20 || *m.Rate != 5 {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{"", "[]", `{"a":`, "null x"} {
		if _, err := aiperf.ReadReported(strings.NewReader(bad), "s.json"); err == nil || !strings.Contains(err.Error(), "s.json") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestConversations(t *testing.T) {
	for text, want := range map[string]string{
		`{"data":[]}`: "",
		`{"data":[{"session_id":"a","payloads":[{"x":1}]},{"session_id":"b"}]}`: "a b",
		`{"data":[{"session_id":"a"},{"ses`:                                     "!inputs.json: byte",
		`{"other":[]}`:                                                          "!inputs.json: byte 8: other instead of data: not the inputs of AIPerf",
		``:                                                                      "!inputs.json: byte 0: EOF",
	} {
		var got []string
		err := aiperf.ReadConversations(strings.NewReader(text), "inputs.json", func(id string) { got = append(got, id) })
		if fault, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.HasPrefix(err.Error(), fault) {
				t.Errorf("%s: %v, want %s", text, err, fault)
			}
		} else if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// Whatever a summary holds, it is read or refused.
func FuzzReported(f *testing.F) {
	f.Add(`{"input_config":{"phases":[{"requests":1}]},"request_latency":{"count":1e400}}`)
	f.Add(`{"request_latency":null,"benchmark_duration":7}`)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := aiperf.ReadReported(strings.NewReader(text), "s"); err == nil {
			r.Measured()
		}
		_ = aiperf.ReadConversations(strings.NewReader(text), "i", func(string) {})
	})
}
