package gguf

import (
	"errors"
	"fmt"
)

// ErrAbsent is what the accessors wrap when a key is not in the metadata.
var ErrAbsent = errors.New("not in the metadata")

// Entry is one key of the metadata. Value is one of uint8, int8, uint16, int16,
// uint32, int32, float32, bool, string, uint64, int64, float64, or a slice of
// one of these.
type Entry struct {
	Key   string
	Value any
}

// Lookup returns the value of key.
func (f *File) Lookup(key string) (any, bool) {
	i, ok := f.index[key]
	if !ok {
		return nil, false
	}
	return f.Metadata[i].Value, true
}

// String returns the text at key.
func (f *File) String(key string) (string, error) { return lookup[string](f, key) }

// Bool returns the truth value at key.
func (f *File) Bool(key string) (bool, error) { return lookup[bool](f, key) }

// Strings returns the array of texts at key. The caller must not change it.
func (f *File) Strings(key string) ([]string, error) { return lookup[[]string](f, key) }

// Floats returns an array of 32-bit floats.
func (f *File) Floats(key string) ([]float32, error) { return lookup[[]float32](f, key) }

// Uint returns the integer at key, whatever its width; a negative one is an
// error.
func (f *File) Uint(key string) (uint64, error) {
	v, ok := f.Lookup(key)
	if !ok {
		return 0, fmt.Errorf("gguf: %s: %w", key, ErrAbsent)
	}
	var signed int64
	switch n := v.(type) {
	case uint8:
		return uint64(n), nil
	case uint16:
		return uint64(n), nil
	case uint32:
		return uint64(n), nil
	case uint64:
		return n, nil
	case int8:
		signed = int64(n)
	case int16:
		signed = int64(n)
	case int32:
		signed = int64(n)
	case int64:
		signed = n
	default:
		return 0, fmt.Errorf("gguf: %s holds %T, want an integer", key, v)
	}
	if signed < 0 {
		return 0, fmt.Errorf("gguf: %s is %d, want no negative number", key, signed)
	}
	return uint64(signed), nil
}

// Ints returns the array of integers at key, whatever their width.
func (f *File) Ints(key string) ([]int64, error) {
	v, ok := f.Lookup(key)
	if !ok {
		return nil, fmt.Errorf("gguf: %s: %w", key, ErrAbsent)
	}
	switch a := v.(type) {
	case []uint8:
		return widen(a), nil
	case []int8:
		return widen(a), nil
	case []uint16:
		return widen(a), nil
	case []int16:
		return widen(a), nil
	case []uint32:
		return widen(a), nil
	case []int32:
		return widen(a), nil
	case []int64:
		return widen(a), nil
	}
	return nil, fmt.Errorf("gguf: %s holds %T, want an array of integers that fit 64 bits with a sign", key, v)
}

func lookup[T any](f *File, key string) (T, error) {
	var zero T
	v, ok := f.Lookup(key)
	if !ok {
		return zero, fmt.Errorf("gguf: %s: %w", key, ErrAbsent)
	}
	t, ok := v.(T)
	if !ok {
		return zero, fmt.Errorf("gguf: %s holds %T, want %T", key, v, zero)
	}
	return t, nil
}

func widen[T uint8 | int8 | uint16 | int16 | uint32 | int32 | int64](a []T) []int64 {
	out := make([]int64, len(a))
	for i, n := range a {
		out[i] = int64(n)
	}
	return out
}
