package gguf

import "fmt"

// Tensor is one row of the tensor table.
type Tensor struct {
	Name string
	// Dims are in elements, the fastest-varying first.
	Dims []uint64
	Type TensorType
	// Offset is in bytes from the start of the data (File.DataOffset), Size the
	// bytes that the tensor takes there.
	Offset, Size int64
}

// TensorType is how the elements of a tensor are stored (ggml_type).
type TensorType uint32

// Types that the tests and fixtures of this product write.
const (
	F32 TensorType = 0
	F16 TensorType = 1
)

// layout is how many elements one block of a type holds and how many bytes it
// takes.
type layout struct {
	name            string
	elements, bytes uint64
}

// layouts follows ggml-common.h. Numbers that are missing were removed from
// ggml, and no engine reads them.
var layouts = map[TensorType]layout{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, 30: {"BF16", 1, 2}, 28: {"F64", 1, 8},
	24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8},
	2: {"Q4_0", 32, 18}, 3: {"Q4_1", 32, 20}, 6: {"Q5_0", 32, 22}, 7: {"Q5_1", 32, 24},
	8: {"Q8_0", 32, 34}, 9: {"Q8_1", 32, 36},
	10: {"Q2_K", 256, 84}, 11: {"Q3_K", 256, 110}, 12: {"Q4_K", 256, 144},
	13: {"Q5_K", 256, 176}, 14: {"Q6_K", 256, 210}, 15: {"Q8_K", 256, 292},
	16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74}, 18: {"IQ3_XXS", 256, 98},
	19: {"IQ1_S", 256, 50}, 20: {"IQ4_NL", 32, 18}, 21: {"IQ3_S", 256, 110},
	22: {"IQ2_S", 256, 82}, 23: {"IQ4_XS", 256, 136}, 29: {"IQ1_M", 256, 56},
	34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66},
	39: {"MXFP4", 32, 17}, 40: {"NVFP4", 64, 36}, 41: {"Q1_0", 128, 18},
}

func (t TensorType) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Bytes returns how many bytes a tensor of these dimensions takes.
func (t TensorType) Bytes(dims []uint64) (int64, error) {
	l, ok := layouts[t]
	if !ok {
		return 0, fmt.Errorf("unknown tensor type %d, so its size is unknown", uint32(t))
	}
	if dims[0]%l.elements != 0 {
		return 0, fmt.Errorf("a row of %d elements is not a whole number of %s blocks of %d", dims[0], l.name, l.elements)
	}
	total := uint64(1)
	for _, d := range dims {
		if d == 0 {
			return 0, fmt.Errorf("dimensions %v hold a zero", dims)
		}
		if total > maxBytes/d {
			return 0, fmt.Errorf("dimensions %v overflow", dims)
		}
		total *= d
	}
	blocks := total / l.elements
	if blocks > maxBytes/l.bytes {
		return 0, fmt.Errorf("dimensions %v overflow", dims)
	}
	return int64(blocks * l.bytes), nil
}
