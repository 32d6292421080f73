package ledger

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
)

// store keeps pieces of bytes in large blocks.
type store struct{ blocks [][]byte }

// place is where a piece starts: block and offset.
type place uint64

const (
	blockBits = 20
	blockSize = 1 << blockBits
)

func (s *store) put(piece []byte) place {
	last := len(s.blocks) - 1
	if last < 0 || len(s.blocks[last])+len(piece)+slack > cap(s.blocks[last]) {
		s.blocks = append(s.blocks, make([]byte, 0, max(blockSize, len(piece)+slack)))
		last++
	}
	b := &s.blocks[last]
	at := place(last)<<blockBits | place(len(*b))
	*b = append(*b, piece...)
	return at
}

// at returns the piece at a place, and what is behind it: a piece knows its end.
func (s *store) at(p place) []byte {
	b := s.blocks[p>>blockBits]
	return b[p&(blockSize-1) : cap(b)]
}

// symbol stands for a text; the first is 0.
type symbol uint32

// symbols gives every text a number. A map of strings would take twice as much and
// make each collection of garbage follow millions of pointers.
type symbols struct {
	seed  maphash.Seed
	slots []slot // open addressing, at most half full
	at    []place
	store store
	piece []byte
}

type slot struct {
	hash uint32
	next symbol // the text's symbol + 1; 0 is free
}

// symbolOf returns the symbol of a text, a new one if it has none.
func symbolOf[T string | []byte](s *symbols, text T) symbol {
	if 2*len(s.at) >= len(s.slots) {
		s.grow()
	}
	s.piece = shorten(s.piece[:0], text)
	hash := uint32(maphash.Bytes(s.seed, s.piece))
	mask := uint32(len(s.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch slot := &s.slots[i]; {
		case slot.next == 0:
			s.at = append(roomy(s.at), s.store.put(s.piece))
			slot.hash, slot.next = hash, symbol(len(s.at))
			return slot.next - 1
		case slot.hash == hash && bytes.HasPrefix(s.store.at(s.at[slot.next-1]), s.piece):
			return slot.next - 1
		}
	}
}

// text returns the text of a symbol.
func (s *symbols) text(x symbol) string { return string(s.append(nil, x)) }

func (s *symbols) append(dst []byte, x symbol) []byte { return lengthen(dst, s.store.at(s.at[x])) }

// shorten appends a text in a form that knows its end: twice its length and the text,
// or for a UUID in lower case, as most ids are, 1 and its 16 bytes.
func shorten[T string | []byte](dst []byte, text T) []byte {
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		to, bad := append(dst, 1), byte(0)
		for _, i := range uuidPairs {
			high, low := fromHex[text[i]], fromHex[text[i+1]]
			to, bad = append(to, high<<4|low), bad|high|low
		}
		if bad < 16 {
			return to
		}
	}
	return append(binary.AppendUvarint(dst, 2*uint64(len(text))), text...)
}

// lengthen appends the text that short begins with.
func lengthen(dst, short []byte) []byte {
	if short[0] != 1 {
		size, n := binary.Uvarint(short)
		return append(dst, short[n:n+int(size/2)]...)
	}
	from := len(dst)
	dst = append(dst, "........-....-....-....-............"...)
	for i, at := range uuidPairs {
		binary.LittleEndian.PutUint16(dst[from+at:], hexPairs[short[1+i]])
	}
	return dst
}

// uuidPairs are the places of a UUID's pairs of digits.
var uuidPairs = [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

func (s *symbols) grow() {
	if s.slots == nil {
		s.seed = maphash.MakeSeed()
	}
	old := s.slots
	s.slots = make([]slot, max(1024, 2*len(old)))
	mask := uint32(len(s.slots) - 1)
	for _, o := range old {
		i := o.hash & mask
		for o.next != 0 && s.slots[i].next != 0 {
			i = (i + 1) & mask
		}
		if o.next != 0 {
			s.slots[i] = o
		}
	}
}
