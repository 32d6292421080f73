package jsonfile

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type thing struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "a.json")
	want := thing{"x", 3}
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "{\n  \"name\": \"x\",\n  \"n\": 3\n}\n" {
		t.Errorf("%q, %v", data, err)
	}
	var got thing
	if err := Read(path, &got); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		``:                                    "at byte 0: EOF",
		`{"name": "x"`:                        "unexpected EOF",
		`{"name": "x", "m": 1}`:               `unknown field "m"`,
		`{"name": 1}`:                         "at byte 10: name is of type number, not string",
		`{"n": "x"}`:                          "n is of type string, not whole number within its limits",
		`{"n": 1.5}`:                          "n is of type number 1.5, not whole number within its limits",
		`[]`:                                  "it is of type array, not object",
		`{"name": "x"} {}`:                    "more than one JSON value",
		`{"name": "x"} trailing`:              "more than one JSON value",
		"{\"name\": \"x\"}\n\n":               "",
		"\t{\"n\": 1, \"name\": \"\\u0041\"}": "",
	} {
		err := Decode([]byte(text), &thing{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// An error names the file, but not where on this machine it lies.
func TestErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	if err := os.WriteFile(path, []byte("[]"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, &thing{}); err == nil || !strings.HasPrefix(err.Error(), "a.json: at byte ") {
		t.Errorf("got %v", err)
	}
	if err := Write(path, math.Inf(1)); err == nil || !strings.HasPrefix(err.Error(), "a.json: ") {
		t.Errorf("got %v", err)
	}
	if err := Read(filepath.Join(dir, "none.json"), &thing{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name": "x", "n": 1}`))
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v thing
		if Decode(data, &v) != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "a.json")
		var again thing
		if err := errors.Join(Write(path, v), Read(path, &again)); err != nil || again != v {
			t.Fatalf("%+v became %+v, %v", v, again, err)
		}
	})
}
