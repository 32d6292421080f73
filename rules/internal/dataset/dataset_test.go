package dataset_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"assay/rules/internal/dataset"
)

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	at := int64(1500)
	plan := []dataset.Planned{{Conversation: "a", AtNS: &at, OutputTokens: 3}, {Conversation: "a", Turn: 1}, {Conversation: "b<&>"}}
	h := dataset.Header{Version: 1, Kind: dataset.Trace, Format: "mooncake_trace", Endpoint: "completions", Requests: 3, Conversations: 2, Scheduled: true, Source: "sha256:00"}
	if err := dataset.Write(dir, h, plan, []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	gotHeader, err := dataset.ReadHeader(dir)
	if err != nil || !reflect.DeepEqual(gotHeader, h) {
		t.Errorf("%+v, %v", gotHeader, err)
	}
	got, err := dataset.ReadPlan(dir)
	if err != nil || !reflect.DeepEqual(got, plan) {
		t.Errorf("%+v, %v", got, err)
	}
	if plan, err := dataset.ReadPlan(t.TempDir()); plan != nil || err != nil {
		t.Errorf("no plan: %v, %v", plan, err)
	}
}

func TestReadPlanNamesThePlace(t *testing.T) {
	for plan, want := range map[string]string{
		`{"conversation":"a","turn":0}` + "\n" + `{"conversation":"a","turn":0}`: `plan.jsonl:2: turn 0 of conversation "a" is on line 1 already`,
		`{"conversation":"a","turn":0}` + "\n" + `{"turn":"x"}`:                  "plan.jsonl:2: at byte",
		`{"conversation":"a","turn":0,"more":1}`:                                 `unknown field "more"`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, dataset.PlanFile), []byte(plan), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := dataset.ReadPlan(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", plan, err, want)
		}
	}
}

func TestFill(t *testing.T) {
	members := map[string]json.RawMessage{"model": []byte(`"m"`), "temperature": []byte("0")}
	got, err := dataset.Fill([]byte(`{"session_id":"a","timestamp":3,"payload":{"prompt":"<b>","temperature":1}}`+"\n"+`{"session_id":"b","turns":[]}`+"\n"), members)
	want := `{"payload":{"model":"m","prompt":"<b>","temperature":1},"session_id":"a","timestamp":3}` + "\n" + `{"session_id":"b","turns":[]}` + "\n"
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	for bad, want := range map[string]string{
		"{}\n[]\n":           "requests.jsonl:2: ",
		`{"payload":null}`:   "requests.jsonl:1: payload: it is null",
		`{"payload":[1,2]}`:  "requests.jsonl:1: payload: ",
		`{"payload":{"a":1}`: "requests.jsonl:1: ",
	} {
		if _, err := dataset.Fill([]byte(bad), members); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", bad, err, want)
		}
	}
}
