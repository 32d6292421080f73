package joined

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"assay/rules/internal/ledger"
)

// What is read back is what the JSON lines of the same entries say, under the name
// of its place there; and the same entries give the same bytes.
func TestTableIsTheLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(rapid.Custom(drawEntry), 0, 5).Draw(t, "entries")
		file := write(t, entries)
		if again := write(t, entries); !bytes.Equal(file, again) {
			t.Fatal("the same entries gave other bytes")
		}
		got := read(t, file)
		if len(got) != len(entries) {
			t.Fatalf("%d rows of %d entries", len(got), len(entries))
		}
		for i, e := range entries {
			if d := cmp.Diff(flat(t, e), got[i]); d != "" {
				t.Fatalf("row %d (-ledger +table):\n%s", i, d)
			}
		}
	})
}

// A file of more than one row group is whole, and its footer says what it is.
func TestRowGroups(t *testing.T) {
	const n = 2*groupRows + 1
	entry := &ledger.Entry{Phase: ledger.Measured, Class: ledger.NotSent}
	var b bytes.Buffer
	w := NewWriter(&b, "s1")
	for range n {
		if err := w.Write(entry); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if f.NumRows() != n || len(f.RowGroups()) != 3 {
		t.Errorf("%d rows in %d groups", f.NumRows(), len(f.RowGroups()))
	}
	if v, ok := f.Lookup(VersionKey); !ok || v != "1" {
		t.Errorf("version %q", v)
	}
	if by := f.Metadata().CreatedBy; by != "assay version 1(build joined)" {
		t.Errorf("created by %q", by)
	}
}

func TestWriterReportsAFullDisk(t *testing.T) {
	full := errors.New("no space left on device")
	w := NewWriter(refusing{full}, "s1")
	err := w.Write(&ledger.Entry{Phase: ledger.Measured, Class: ledger.NotSent})
	if err = errors.Join(err, w.Close()); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

var _ io.Writer = refusing{}

// Every column is documented with its type, and nothing else is.
func TestColumnsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/joined.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	var order []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| ([a-z0-9?]+) \\|").FindAllStringSubmatch(string(page), -1) {
		if documented[m[1]] != "" {
			t.Errorf("%s is documented twice", m[1])
		}
		documented[m[1]] = m[2]
		order = append(order, m[1])
	}
	var columns []string
	for _, field := range parquet.SchemaOf(row{}).Fields() {
		kind := map[parquet.Kind]string{parquet.Int64: "int64", parquet.Double: "double", parquet.Boolean: "bool", parquet.ByteArray: "string"}[field.Type().Kind()]
		if field.Optional() {
			kind += "?"
		}
		if documented[field.Name()] != kind {
			t.Errorf("%s: a column of type %q, documented as %q", field.Name(), kind, documented[field.Name()])
		}
		columns = append(columns, field.Name())
	}
	if d := cmp.Diff(columns, order); d != "" {
		t.Errorf("columns and their documentation (-table +docs):\n%s", d)
	}
}

func write(t interface{ Fatal(...any) }, entries []*ledger.Entry) []byte {
	var b bytes.Buffer
	w := NewWriter(&b, "s1")
	for _, e := range entries {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read returns the rows by column, nulls left out.
func read(t interface{ Fatal(...any) }, file []byte) []map[string]any {
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	names := f.Schema().Columns()
	var list []map[string]any
	for _, group := range f.RowGroups() {
		rows := group.Rows()
		defer rows.Close()
		for buf := make([]parquet.Row, 1); ; {
			n, err := rows.ReadRows(buf)
			for _, r := range buf[:n] {
				m := map[string]any{}
				for _, v := range r {
					name := names[v.Column()][0]
					switch {
					case v.IsNull():
					case v.Kind() == parquet.Int64:
						m[name] = float64(v.Int64())
					case v.Kind() == parquet.Double:
						m[name] = v.Double()
					case v.Kind() == parquet.Boolean:
						m[name] = v.Boolean()
					default:
						m[name] = string(v.ByteArray())
					}
				}
				list = append(list, m)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return list
}

// flat is an entry as its line has it, on one level. A line leaves out 0 and false
// where the table has them.
func flat(t interface{ Fatal(...any) }, e *ledger.Entry) map[string]any {
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var nested map[string]any
	if err := json.Unmarshal(line, &nested); err != nil {
		t.Fatal(err)
	}
	m := map[string]any{"sample": "s1", "unplanned": false, "hidden_retries": 0.0}
	if e.Client != nil {
		m["client_disagrees"] = false
	}
	var put func(prefix string, of map[string]any)
	put = func(prefix string, of map[string]any) {
		for k, v := range of {
			if inner, ok := v.(map[string]any); ok {
				put(prefix+k+"_", inner)
			} else {
				m[prefix+k] = v
			}
		}
	}
	put("", nested)
	return m
}

// drawEntry fills an entry by its type, so that a field that is new to the ledger
// is in it before it has a column.
func drawEntry(t *rapid.T) *ledger.Entry {
	e := &ledger.Entry{}
	fill(t, reflect.ValueOf(e).Elem(), "")
	return e
}

var texts = []string{"a", "completed", strings.Repeat("0f", 32), "größer, \"x\"\n"}

func fill(t *rapid.T, v reflect.Value, tag reflect.StructTag) {
	name, mayBeAbsent := strings.CutSuffix(tag.Get("json"), ",omitempty")
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), v.Type().Field(i).Tag)
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, name+" is known") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), tag)
		}
	case reflect.String:
		if !mayBeAbsent || rapid.Bool().Draw(t, name+" is known") {
			v.SetString(rapid.SampledFrom(texts).Draw(t, name))
		}
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(-1<<53, 1<<53).Draw(t, name)) // what a float64 of JSON holds
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(-math.MaxFloat32, math.MaxFloat32).Draw(t, name))
	default:
		panic("an entry has a " + v.Kind().String())
	}
}
