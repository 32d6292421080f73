// Package gguftest writes small valid GGUF files, so that tests need no
// download: of the format's reader, of the tokenizer, and of the rules that
// take checkpoints apart.
package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"assay/rules/internal/gguf"
)

const alignment = 32

// Tensor is one tensor with its data.
type Tensor struct {
	Name string
	Dims []uint64
	Type gguf.TensorType
	Data []byte
}

// Write writes a GGUF file of version 3. Values have the types that gguf.Entry
// allows; data must have the size that type and dimensions ask for.
func Write(w io.Writer, meta []gguf.Entry, tensors []Tensor) error {
	var b bytes.Buffer
	b.WriteString("GGUF")
	put(&b, uint32(3), uint64(len(tensors)), uint64(len(meta)))
	for _, e := range meta {
		putString(&b, e.Key)
		if err := putValue(&b, e.Value); err != nil {
			return fmt.Errorf("gguftest: %s: %w", e.Key, err)
		}
	}
	var data bytes.Buffer
	for _, t := range tensors {
		want, err := t.Type.Bytes(t.Dims)
		if err != nil {
			return fmt.Errorf("gguftest: tensor %s: %w", t.Name, err)
		}
		if int64(len(t.Data)) != want {
			return fmt.Errorf("gguftest: tensor %s has %d bytes of data, %s%v takes %d", t.Name, len(t.Data), t.Type, t.Dims, want)
		}
		pad(&data)
		putString(&b, t.Name)
		put(&b, uint32(len(t.Dims)), t.Dims, uint32(t.Type), uint64(data.Len()))
		data.Write(t.Data)
	}
	pad(&b)
	b.Write(data.Bytes())
	_, err := w.Write(b.Bytes())
	return err
}

func pad(b *bytes.Buffer) {
	for b.Len()%alignment != 0 {
		b.WriteByte(0)
	}
}

// put never fails: a buffer takes everything and the values have a fixed size.
func put(b *bytes.Buffer, values ...any) {
	for _, v := range values {
		_ = binary.Write(b, binary.LittleEndian, v)
	}
}

func putString(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

func putValue(b *bytes.Buffer, v any) error {
	if id, ok := scalarType(v); ok {
		put(b, id)
		putScalar(b, v)
		return nil
	}
	switch a := v.(type) {
	case []uint8:
		return putArray(b, a)
	case []int8:
		return putArray(b, a)
	case []uint16:
		return putArray(b, a)
	case []int16:
		return putArray(b, a)
	case []uint32:
		return putArray(b, a)
	case []int32:
		return putArray(b, a)
	case []float32:
		return putArray(b, a)
	case []bool:
		return putArray(b, a)
	case []string:
		return putArray(b, a)
	case []uint64:
		return putArray(b, a)
	case []int64:
		return putArray(b, a)
	case []float64:
		return putArray(b, a)
	}
	return fmt.Errorf("a value of type %T has no place in a GGUF file", v)
}

func putArray[T any](b *bytes.Buffer, a []T) error {
	var one T
	id, _ := scalarType(one)
	put(b, uint32(9), id, uint64(len(a)))
	for _, v := range a {
		putScalar(b, v)
	}
	return nil
}

func putScalar(b *bytes.Buffer, v any) {
	if s, ok := v.(string); ok {
		putString(b, s)
		return
	}
	put(b, v)
}

// scalarType is the format's number for the type of v.
func scalarType(v any) (id uint32, ok bool) {
	switch v.(type) {
	case uint8:
		return 0, true
	case int8:
		return 1, true
	case uint16:
		return 2, true
	case int16:
		return 3, true
	case uint32:
		return 4, true
	case int32:
		return 5, true
	case float32:
		return 6, true
	case bool:
		return 7, true
	case string:
		return 8, true
	case uint64:
		return 10, true
	case int64:
		return 11, true
	case float64:
		return 12, true
	}
	return 0, false
}
