package exports

import (
	"bufio"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"assay/rules/internal/ledger"
)

// The keys of a record as AIPerf 0.13.0 names them in its models.
var (
	rawKeys     = set("metadata start_perf_ns payload request_headers status response_headers responses error cache_bust_marker cache_bust_target")
	figuresKeys = set("metadata metrics trace_data spec_decode_acceptance error")
	metaKeys    = set("session_num x_request_id x_correlation_id conversation_id turn_index source_trace_id source_outer_idx source_inner_idx source_kind " +
		"credit_issued_ns request_start_ns request_ack_ns request_end_ns worker_id record_processor_id benchmark_phase phase_index profiling_index phase_name " +
		"phase_kind was_cancelled cancellation_time_ns context_overflow_skip agent_depth parent_correlation_id root_correlation_id")
	// What every record has, and what the ledger would miss.
	rawNeeds  = set("metadata start_perf_ns payload responses")
	metaNeeds = set("session_num x_request_id conversation_id turn_index credit_issued_ns request_start_ns request_end_ns benchmark_phase")
)

func set(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}

// forms compares the first record of each file with those of 0.13.0. A key that
// is not known is passed over by the readers, and one that is missing is taken for
// absent: either is worth a word.
func (r *Run) forms() {
	for _, f := range r.of(Raw) {
		r.form(f, rawKeys, rawNeeds)
	}
	for _, f := range r.of(Figures) {
		r.form(f, figuresKeys, set("metadata"))
	}
}

func (r *Run) form(f File, known, needed map[string]bool) {
	top := firstRecord(f)
	if top == nil {
		return
	}
	var meta map[string]json.RawMessage
	_ = json.Unmarshal(top["metadata"], &meta) // what is no object has no keys
	tell := func(what string, keys []string) {
		if len(keys) > 0 {
			r.found.add(OtherVersion, ledger.Info, "", "%s: %s: %s", f.Name, what, strings.Join(keys, ", "))
		}
	}
	tell("keys that 0.13.0 does not write", slices.Concat(without(top, known), without(meta, metaKeys)))
	tell("keys that 0.13.0 writes and it does not", slices.Concat(without(needed, top), without(metaNeeds, meta)))
}

// without lists the keys of a that b has not.
func without[A, B any](a map[string]A, b map[string]B) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[key]; !ok {
			list = append(list, key)
		}
	}
	return list
}

// firstRecord decodes the first line of a file, nil if it is no object or too
// long to look at for its keys alone.
func firstRecord(f File) map[string]json.RawMessage {
	in, err := os.Open(f.path)
	if err != nil {
		return nil
	}
	defer in.Close()
	line, err := bufio.NewReaderSize(in, sniffed).ReadSlice('\n')
	if err != nil && errors.Is(err, bufio.ErrBufferFull) {
		return nil
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(line, &top) != nil {
		return nil
	}
	return top
}
