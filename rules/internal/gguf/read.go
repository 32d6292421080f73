package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

const (
	magic            = "GGUF"
	defaultAlignment = 32
	maxBytes         = math.MaxInt64

	// Limits of the format (docs/gguf.md) and of ggml.
	maxKey  = 1<<16 - 1
	maxName = 64
	maxDims = 4
)

// File is what a GGUF file says about itself.
type File struct {
	Version uint32
	// Metadata is in the order of the file; keys are unique.
	Metadata []Entry
	// Tensors are in the order of the file; names are unique.
	Tensors []Tensor
	// DataOffset is where the tensors' data starts, in bytes from the start of
	// the file: a multiple of Alignment.
	DataOffset int64
	Alignment  int64

	index map[string]int
}

// FormatError says where a file breaks the format.
type FormatError struct {
	// Offset is in bytes from the start of the file.
	Offset int64
	// Reading is what stands, or should stand, there.
	Reading string
	Problem string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("gguf: byte %d, reading %s: %s", e.Offset, e.Reading, e.Problem)
}

// Read reads the metadata and the tensor table of the file of size bytes behind
// r. Errors are *FormatError, or those of r. A file that is too short for the
// tensors it lists is an error.
func Read(r io.ReaderAt, size int64) (*File, error) {
	d := &decoder{
		r:    bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16),
		size: size,
		what: "the header",
	}
	f := &File{index: map[string]int{}}
	d.file(f)
	if d.err != nil {
		return nil, d.err
	}
	return f, nil
}

// decoder reads little-endian values and stops at the first error: after it,
// every read yields zero.
type decoder struct {
	r    *bufio.Reader
	off  int64
	size int64
	what string // for errors: what is being read
	err  error
	buf  [8]byte
}

// failAt records the first error; later ones are its consequences.
func (d *decoder) failAt(off int64, format string, args ...any) {
	if d.err == nil {
		d.err = &FormatError{Offset: off, Reading: d.what, Problem: fmt.Sprintf(format, args...)}
	}
}

func (d *decoder) left() int64 { return d.size - d.off }

func (d *decoder) fill(b []byte) {
	if d.err != nil {
		return
	}
	n := int64(len(b))
	if n > d.left() {
		d.failAt(d.off, "needs %d bytes and %d are left of the file's %d; the file is cut short", n, d.left(), d.size)
		return
	}
	if _, err := io.ReadFull(d.r, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			d.failAt(d.off, "the file ended before its stated size of %d bytes", d.size)
			return
		}
		d.err = fmt.Errorf("gguf: byte %d, reading %s: %w", d.off, d.what, err)
		return
	}
	d.off += n
}

func (d *decoder) uint(width int) uint64 {
	d.buf = [8]byte{}
	d.fill(d.buf[:width])
	if d.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(d.buf[:])
}

// count reads a number of things that take at least min bytes each, so that
// nothing is allocated for things that cannot be there.
func (d *decoder) count(things string, least int64) int {
	at := d.off
	n := d.uint(8)
	if d.err == nil && n > uint64(d.left()/least) {
		d.failAt(at, "%d %s need at least %d bytes each and %d bytes are left of the file's %d", n, things, least, d.left(), d.size)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.count("bytes of text", 1)
	if d.err != nil || n == 0 {
		return ""
	}
	b := make([]byte, n)
	d.fill(b)
	return string(b)
}

func (d *decoder) file(f *File) {
	var m [len(magic)]byte
	d.fill(m[:])
	if d.err == nil && string(m[:]) != magic {
		d.failAt(0, "magic is %q, want %q: this is no GGUF file", m[:], magic)
	}
	f.Version = uint32(d.uint(4))
	if d.err == nil && f.Version != 2 && f.Version != 3 {
		hint := ""
		if f.Version&0xffff == 0 {
			hint = " (the file looks big endian, which is not supported)"
		}
		d.failAt(4, "version is %d, want 2 or 3%s", f.Version, hint)
	}
	const minTensor = 8 + 4 + 8 + 4 + 8 // name length, dims, one dim, type, offset
	const minEntry = 8 + 4 + 1          // key length, type, the smallest value
	tensors := d.count("tensors", minTensor)
	keys := d.count("keys", minEntry)
	d.metadata(f, keys)
	d.alignment(f)
	d.table(f, tensors)
	d.data(f)
}

func (d *decoder) metadata(f *File, n int) {
	for i := 0; i < n && d.err == nil; i++ {
		d.what = fmt.Sprintf("key %d of %d", i+1, n)
		at := d.off
		key := d.string()
		if d.err != nil {
			return
		}
		if key == "" || len(key) > maxKey {
			d.failAt(at, "a key has 1 to %d bytes, this one has %d", maxKey, len(key))
			return
		}
		if _, dup := f.index[key]; dup {
			d.failAt(at, "%q occurs twice", key)
			return
		}
		d.what = fmt.Sprintf("the value of %q", key)
		f.index[key] = len(f.Metadata)
		f.Metadata = append(f.Metadata, Entry{key, d.value()})
	}
}

func (d *decoder) alignment(f *File) {
	f.Alignment = defaultAlignment
	if _, ok := f.index["general.alignment"]; !ok || d.err != nil {
		return
	}
	d.what = `"general.alignment"`
	n, err := f.Uint("general.alignment")
	if err != nil {
		d.failAt(d.off, "%v", err)
	} else if n == 0 || n&(n-1) != 0 || n > math.MaxUint32 {
		d.failAt(d.off, "alignment is %d, want a power of two of at most 32 bits", n)
	}
	f.Alignment = int64(n)
}

func (d *decoder) table(f *File, n int) {
	names := make(map[string]bool, n)
	for i := 0; i < n && d.err == nil; i++ {
		d.what = fmt.Sprintf("tensor %d of %d", i+1, n)
		at := d.off
		t := Tensor{Name: d.string()}
		if d.err != nil {
			return
		}
		if t.Name == "" || len(t.Name) > maxName {
			d.failAt(at, "a tensor's name has 1 to %d bytes, this one has %d", maxName, len(t.Name))
			return
		}
		if names[t.Name] {
			d.failAt(at, "tensor %q occurs twice", t.Name)
			return
		}
		names[t.Name] = true
		d.what = fmt.Sprintf("tensor %q", t.Name)
		at = d.off
		dims := d.uint(4)
		if d.err == nil && (dims < 1 || dims > maxDims) {
			d.failAt(at, "has %d dimensions, want 1 to %d", dims, maxDims)
		}
		if d.err != nil {
			return
		}
		for range dims {
			t.Dims = append(t.Dims, d.uint(8))
		}
		t.Type = TensorType(d.uint(4))
		offset := d.uint(8)
		if d.err != nil {
			return
		}
		var err error
		if t.Size, err = t.Type.Bytes(t.Dims); err != nil {
			d.failAt(at, "%v", err)
			return
		}
		if offset > uint64(d.size) || offset%uint64(f.Alignment) != 0 {
			d.failAt(d.off-8, "its data starts at %d, want a multiple of %d inside the file", offset, f.Alignment)
			return
		}
		t.Offset = int64(offset)
		f.Tensors = append(f.Tensors, t)
	}
}

// data checks that the file holds the data of every tensor, each in a place of
// its own.
func (d *decoder) data(f *File) {
	if d.err != nil {
		return
	}
	f.DataOffset = (d.off + f.Alignment - 1) / f.Alignment * f.Alignment
	byOffset := slices.Clone(f.Tensors)
	slices.SortStableFunc(byOffset, func(a, b Tensor) int { return int(min(1, max(-1, a.Offset-b.Offset))) })
	var end int64
	var before string
	for _, t := range byOffset {
		d.what = fmt.Sprintf("the data of tensor %q", t.Name)
		if t.Offset < end {
			d.failAt(f.DataOffset+t.Offset, "it overlaps the data of %q", before)
			return
		}
		start := f.DataOffset + t.Offset
		if start > d.size || t.Size > d.size-start {
			d.failAt(start, "needs %d bytes up to %d and the file has %d; the file is cut short", t.Size, uint64(start)+uint64(t.Size), d.size)
			return
		}
		end, before = t.Offset+t.Size, t.Name
	}
}
