package ledger_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/rules/internal/ledger"
	"assay/rules/internal/record"
)

// filled sets every field below v to a value of its own.
func filled(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), n)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]float64{"prompt_ms": 1.25, "näme \"q\"": -3e-7}))
	case reflect.String:
		v.SetString(strings.Repeat("é", *n%3) + string(rune('A'+*n)))
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(int64(*n) * 1_000_003)
	}
}

// A field that is added to the record must be read too.
func TestRecordsAreReadWhole(t *testing.T) {
	var want record.Record
	filled(reflect.ValueOf(&want).Elem(), new(int))
	want.Schema, want.Outcome = record.Schema, record.Completed
	var line bytes.Buffer
	for range 3 { // the parser's memory is used again
		if err := json.NewEncoder(&line).Encode(want); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for got, err := range ledger.ReadServer(&line, "server.jsonl", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&want, got); d != "" {
			t.Error(d)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d records", n)
	}
}

func TestRecordFaultsAreNamed(t *testing.T) {
	good := `{"schema":1,"request_id":"a","outcome":"completed","status":200,"lane":null,"task":null}`
	for bad, want := range map[string]string{
		strings.Replace(good, `"schema":1`, `"schema":2`, 1):              "server.jsonl:2: schema 2; this build reads 1",
		strings.Replace(good, `"a"`, `""`, 1):                             "server.jsonl:2: no request_id",
		strings.Replace(good, `"completed"`, `"fine"`, 1):                 `server.jsonl:2: unknown outcome "fine"`,
		strings.Replace(good, `200`, `"200"`, 1):                          `server.jsonl:2:61: status: '"' instead of a value`,
		strings.Replace(good, `"task":null`, `"task":{"wall_ns":1.5}`, 1): "server.jsonl:2:95: task: wall_ns: 1.5 is not a whole number",
		strings.Replace(good, `"lane"`, `"status"`, 1):                    `server.jsonl:2:65: the key "status" is there twice`,
	} {
		var errs []error
		for _, err := range ledger.ReadServer(strings.NewReader(good+"\n"+bad+"\n"+good), "server.jsonl", 0) {
			errs = append(errs, err)
		}
		if len(errs) != 3 || errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), want) || errs[2] != nil {
			t.Errorf("%s: %v, want %s", bad, errs, want)
		}
	}
}
