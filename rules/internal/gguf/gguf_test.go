package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"assay/rules/internal/gguf"
	"assay/rules/internal/gguf/gguftest"

	"github.com/google/go-cmp/cmp"
)

func read(b []byte) (*gguf.File, error) { return gguf.Read(bytes.NewReader(b), int64(len(b))) }

func TestReadsWhatWasWritten(t *testing.T) {
	meta := []gguf.Entry{
		{Key: "u8", Value: uint8(200)}, {Key: "i8", Value: int8(-3)},
		{Key: "u16", Value: uint16(60000)}, {Key: "i16", Value: int16(-30000)},
		{Key: "u32", Value: uint32(1 << 31)}, {Key: "i32", Value: int32(math.MinInt32)},
		{Key: "u64", Value: uint64(math.MaxUint64)}, {Key: "i64", Value: int64(math.MinInt64)},
		{Key: "f32", Value: float32(1.5)}, {Key: "f64", Value: 2.25},
		{Key: "yes", Value: true}, {Key: "text", Value: "grüße 中"}, {Key: "empty", Value: ""},
		{Key: "texts", Value: []string{"", "a", "ĠĊ"}}, {Key: "none", Value: []string{}},
		{Key: "u8s", Value: []uint8{1, 2}}, {Key: "i8s", Value: []int8{-1}},
		{Key: "u16s", Value: []uint16{1}}, {Key: "i16s", Value: []int16{-2}},
		{Key: "u32s", Value: []uint32{7}}, {Key: "i32s", Value: []int32{-7, 3}},
		{Key: "u64s", Value: []uint64{8}}, {Key: "i64s", Value: []int64{-8}},
		{Key: "f32s", Value: []float32{0.5}}, {Key: "f64s", Value: []float64{0.25}},
		{Key: "bools", Value: []bool{true, false}},
	}
	tensors := []gguftest.Tensor{
		{Name: "a", Dims: []uint64{3}, Type: gguf.F32, Data: make([]byte, 12)},
		{Name: "b", Dims: []uint64{2, 3}, Type: gguf.F16, Data: make([]byte, 12)},
		{Name: "c", Dims: []uint64{32, 2}, Type: 3, Data: make([]byte, 40)},
	}
	var b bytes.Buffer
	if err := gguftest.Write(&b, meta, tensors); err != nil {
		t.Fatal(err)
	}
	f, err := read(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(meta, f.Metadata); diff != "" {
		t.Errorf("metadata (-written +read):\n%s", diff)
	}
	want := []gguf.Tensor{
		{Name: "a", Dims: []uint64{3}, Type: gguf.F32, Offset: 0, Size: 12},
		{Name: "b", Dims: []uint64{2, 3}, Type: gguf.F16, Offset: 32, Size: 12},
		{Name: "c", Dims: []uint64{32, 2}, Type: 3, Offset: 64, Size: 40},
	}
	if diff := cmp.Diff(want, f.Tensors); diff != "" {
		t.Errorf("tensors (-want +got):\n%s", diff)
	}
	if f.DataOffset%32 != 0 || f.DataOffset+64+40 != int64(b.Len()) {
		t.Errorf("data at %d of %d", f.DataOffset, b.Len())
	}
	if got := f.Tensors[2].Type.String(); got != "Q4_1" {
		t.Errorf("type 3 is %s", got)
	}
}

func TestAccessors(t *testing.T) {
	f, err := read(gguftest.Tiny())
	if err != nil {
		t.Fatal(err)
	}
	if s, err := f.String("general.architecture"); s != "llama" || err != nil {
		t.Errorf("architecture %q, %v", s, err)
	}
	if n, err := f.Uint("llama.context_length"); n != 512 || err != nil {
		t.Errorf("context %d, %v", n, err)
	}
	if v, err := f.Bool("tokenizer.ggml.add_bos_token"); v || err != nil {
		t.Errorf("add_bos_token %v, %v", v, err)
	}
	if a, err := f.Strings("tokenizer.ggml.tokens"); len(a) != 3+256+6 || err != nil {
		t.Errorf("%d tokens, %v", len(a), err)
	}
	if a, err := f.Ints("tokenizer.ggml.token_type"); len(a) != 3+256+6 || a[0] != 3 || err != nil {
		t.Errorf("%d types, %v", len(a), err)
	}
	if _, err := f.String("general.author"); !errors.Is(err, gguf.ErrAbsent) {
		t.Errorf("absent key: %v", err)
	}
	if _, err := f.Uint("general.name"); err == nil || !strings.Contains(err.Error(), "general.name holds string, want an integer") {
		t.Errorf("wrong type: %v", err)
	}
	if _, err := f.Strings("general.name"); err == nil || !strings.Contains(err.Error(), "holds string, want []string") {
		t.Errorf("wrong type: %v", err)
	}
}

// Whatever the place at which a download stopped, the error says where, what was
// being read, and both sizes.
func TestEveryTruncationIsAnError(t *testing.T) {
	whole := gguftest.Tiny()
	for n := range whole {
		_, err := read(whole[:n])
		var fe *gguf.FormatError
		if !errors.As(err, &fe) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
		}
		if !strings.Contains(fe.Problem, fmt.Sprint(n)) {
			t.Fatalf("cut to %d bytes: the error does not name the size: %v", n, err)
		}
	}
	_, err := read(whole[:len(whole)-1])
	for _, want := range []string{`the data of tensor "output_norm.weight"`, "needs 32 bytes", "cut short"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %q", want, err)
		}
	}
}

// raw builds a file by hand, to break it.
type raw struct{ bytes.Buffer }

func (r *raw) put(values ...any) *raw {
	for _, v := range values {
		if s, ok := v.(string); ok {
			r.put(uint64(len(s)))
			r.WriteString(s)
		} else if err := binary.Write(r, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return r
}

func header(version uint32, tensors, keys uint64) *raw {
	r := &raw{}
	r.WriteString("GGUF")
	return r.put(version, tensors, keys)
}

func TestMalformed(t *testing.T) {
	const huge = uint64(math.MaxUint64)
	room := make([]byte, 256)
	tensor := func(name string, dims uint32, rest ...any) *raw {
		return header(3, 1, 0).put(name, dims).put(rest...)
	}
	cases := []struct {
		name string
		file *raw
		want string
	}{
		{"another file", &raw{*bytes.NewBufferString("PK\x03\x04 and much more than a header")}, `byte 0, reading the header: magic is "PK\x03\x04"`},
		{"version 1", header(1, 0, 0), "byte 4, reading the header: version is 1, want 2 or 3"},
		{"big endian", header(3<<24, 0, 0), "big endian"},
		{"tensor count beyond the file", header(3, 1<<40, 0), "byte 8, reading the header: 1099511627776 tensors need"},
		{"key count overflows", header(3, 0, huge), "byte 16, reading the header: 18446744073709551615 keys need"},
		{"key length beyond the file", header(3, 0, 1).put(huge, room), "byte 24, reading key 1 of 1"},
		{"empty key", header(3, 0, 1).put("", room), "a key has 1 to 65535 bytes"},
		{"same key twice", header(3, 0, 2).put("k", uint32(0), uint8(1), "k", uint32(0), uint8(1)), `"k" occurs twice`},
		{"unknown type", header(3, 0, 1).put("k", uint32(13), room), `reading the value of "k": unknown value type 13`},
		{"truth value of 2", header(3, 0, 1).put("k", uint32(7), uint8(2), room), "0 or 1, this one is 2"},
		{"text length beyond the file", header(3, 0, 1).put("k", uint32(8), uint64(1<<50), room), "bytes of text"},
		{"array count beyond the file", header(3, 0, 1).put("k", uint32(9), uint32(10), uint64(1<<60), room), "elements need at least 8 bytes each"},
		{"texts beyond the file", header(3, 0, 1).put("k", uint32(9), uint32(8), uint64(100), room), "100 elements need at least 8 bytes each"},
		{"nested array", header(3, 0, 1).put("k", uint32(9), uint32(9), uint64(1), room), "an array of arrays"},
		{"array of an unknown type", header(3, 0, 1).put("k", uint32(9), uint32(77), uint64(1), room), "an array of unknown type 77"},
		{"alignment 0", header(3, 0, 1).put("general.alignment", uint32(4), uint32(0)), "alignment is 0, want a power of two"},
		{"alignment 24", header(3, 0, 1).put("general.alignment", uint32(4), uint32(24)), "alignment is 24"},
		{"alignment is text", header(3, 0, 1).put("general.alignment", uint32(8), "32"), "general.alignment holds string"},
		{"tensor without a name", tensor("", 1, room), "a tensor's name has 1 to 64 bytes"},
		{"long tensor name", tensor(strings.Repeat("n", 65), 1, room), "this one has 65"},
		{"no dimension", tensor("t", 0, room), "0 dimensions"},
		{"five dimensions", tensor("t", 5, room), "5 dimensions"},
		{"dimension of 0", tensor("t", 1, uint64(0), uint32(0), uint64(0), room), "hold a zero"},
		{"dimensions overflow", tensor("t", 2, huge, uint64(2), uint32(0), uint64(0), room), "overflow"},
		{"size overflows", tensor("t", 1, uint64(math.MaxInt64), uint32(0), uint64(0), room), "overflow"},
		{"unknown tensor type", tensor("t", 1, uint64(32), uint32(4), uint64(0), room), "unknown tensor type 4"},
		{"half a block", tensor("t", 1, uint64(33), uint32(2), uint64(0), room), "not a whole number of Q4_0 blocks of 32"},
		{"unaligned data", tensor("t", 1, uint64(1), uint32(0), uint64(4), room), "its data starts at 4"},
		{"data far outside", tensor("t", 1, uint64(1), uint32(0), huge-31, room), "inside the file"},
		{"data past the end", tensor("t", 1, uint64(4096), uint32(0), uint64(0), room), `reading the data of tensor "t": needs 16384 bytes up to 16448 and the file has`},
		{"same tensor twice", header(3, 2, 0).put("t", uint32(1), uint64(1), uint32(0), uint64(0), "t", uint32(1), uint64(1), uint32(0), uint64(32), room), `"t" occurs twice`},
		{"overlap", header(3, 2, 0).put("a", uint32(1), uint64(16), uint32(0), uint64(0), "b", uint32(1), uint64(1), uint32(0), uint64(32), room), `reading the data of tensor "b": it overlaps the data of "a"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, err := read(c.file.Bytes())
			var fe *gguf.FormatError
			if f != nil || !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v\nwant an error with %q", f, err, c.want)
			}
		})
	}
}

func TestVersion2IsRead(t *testing.T) {
	f, err := read(header(2, 0, 1).put("general.alignment", uint32(4), uint32(64)).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 2 || f.Alignment != 64 || f.DataOffset%64 != 0 {
		t.Errorf("%+v", f)
	}
}

type brokenDisk struct{}

func (brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, errors.New("input/output error") }

func TestReadErrors(t *testing.T) {
	_, err := gguf.Read(brokenDisk{}, 100)
	var fe *gguf.FormatError
	if errors.As(err, &fe) || err == nil || !strings.Contains(err.Error(), "reading the header: input/output error") {
		t.Errorf("a broken disk is not a broken file: %v", err)
	}
	_, err = gguf.Read(bytes.NewReader(gguftest.Tiny()[:50]), 1<<20)
	if err == nil || !strings.Contains(err.Error(), "ended before its stated size of 1048576") {
		t.Errorf("a file that shrank: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	tiny := gguftest.Tiny()
	f.Add(tiny)
	f.Add(tiny[:len(tiny)/2])
	f.Add(header(3, 1, 0).put("t", uint32(1), uint64(1), uint32(0), uint64(0), make([]byte, 64)).Bytes())
	f.Add(header(3, 0, 1).put("k", uint32(9), uint32(5), uint64(3), int32(1), int32(2), int32(3)).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := read(b)
		if err != nil {
			var fe *gguf.FormatError
			if !errors.As(err, &fe) || fe.Offset < 0 {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, tensor := range file.Tensors {
			end := file.DataOffset + tensor.Offset + tensor.Size
			if tensor.Size <= 0 || end > int64(len(b)) {
				t.Fatalf("%+v ends at %d of %d", tensor, end, len(b))
			}
		}
	})
}
