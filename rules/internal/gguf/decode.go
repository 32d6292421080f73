package gguf

import (
	"encoding/binary"
	"math"
)

// Value types as the format numbers them.
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

func (d *decoder) value() any {
	at := d.off
	switch t := d.uint(4); t {
	case typeUint8:
		return uint8(d.uint(1))
	case typeInt8:
		return int8(d.uint(1))
	case typeUint16:
		return uint16(d.uint(2))
	case typeInt16:
		return int16(d.uint(2))
	case typeUint32:
		return uint32(d.uint(4))
	case typeInt32:
		return int32(d.uint(4))
	case typeFloat32:
		return math.Float32frombits(uint32(d.uint(4)))
	case typeBool:
		return d.bool()
	case typeString:
		return d.string()
	case typeArray:
		return d.array()
	case typeUint64:
		return d.uint(8)
	case typeInt64:
		return int64(d.uint(8))
	case typeFloat64:
		return math.Float64frombits(d.uint(8))
	default:
		d.failAt(at, "unknown value type %d", t)
		return nil
	}
}

func (d *decoder) array() any {
	at := d.off
	switch t := d.uint(4); t {
	case typeUint8:
		return numbers[uint8](d)
	case typeInt8:
		return numbers[int8](d)
	case typeUint16:
		return numbers[uint16](d)
	case typeInt16:
		return numbers[int16](d)
	case typeUint32:
		return numbers[uint32](d)
	case typeInt32:
		return numbers[int32](d)
	case typeFloat32:
		return numbers[float32](d)
	case typeUint64:
		return numbers[uint64](d)
	case typeInt64:
		return numbers[int64](d)
	case typeFloat64:
		return numbers[float64](d)
	case typeBool:
		return elements(d, 1, d.bool)
	case typeString:
		return elements(d, 8, d.string)
	case typeArray:
		d.failAt(at, "an array of arrays, which no reader of GGUF supports")
		return nil
	default:
		d.failAt(at, "an array of unknown type %d", t)
		return nil
	}
}

// bool reads a byte that must be 0 or 1: other values would be lost on the way
// to a Go bool.
func (d *decoder) bool() bool {
	at := d.off
	n := d.uint(1)
	if n > 1 {
		d.failAt(at, "a truth value is 0 or 1, this one is %d", n)
	}
	return n == 1
}

func elements[T any](d *decoder, least int64, read func() T) []T {
	n := d.count("elements", least)
	out := make([]T, 0, n)
	for i := 0; i < n && d.err == nil; i++ {
		out = append(out, read())
	}
	return out
}

// numbers reads an array of fixed-width numbers in one go.
func numbers[T any](d *decoder) []T {
	var one T
	n := d.count("elements", int64(binary.Size(one)))
	out := make([]T, n)
	b := make([]byte, n*binary.Size(one))
	d.fill(b)
	if d.err != nil {
		return nil
	}
	if _, err := binary.Decode(b, binary.LittleEndian, out); err != nil {
		d.failAt(d.off, "%v", err)
	}
	return out
}
