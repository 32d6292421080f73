package ledger

import (
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
	if last < 0 || len(s.blocks[last])+len(piece) > cap(s.blocks[last]) {
		s.blocks = append(s.blocks, make([]byte, 0, max(blockSize, len(piece))))
		last++
	}
	b := &s.blocks[last]
	at := place(last)<<blockBits | place(len(*b))
	*b = append(*b, piece...)
	return at
}

// at returns the piece at a place, and what is behind it: a piece knows its end.
func (s *store) at(p place) []byte { return s.blocks[p>>blockBits][p&(blockSize-1):] }

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

// of returns the symbol of a text, a new one if it has none.
func (s *symbols) of(text string) symbol {
	if 2*len(s.at) >= len(s.slots) {
		s.grow()
	}
	hash := uint32(maphash.String(s.seed, text))
	mask := uint32(len(s.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch slot := &s.slots[i]; {
		case slot.next == 0:
			s.piece = append(binary.AppendUvarint(s.piece[:0], uint64(len(text))), text...)
			s.at = append(s.at, s.store.put(s.piece))
			slot.hash, slot.next = hash, symbol(len(s.at))
			return slot.next - 1
		case slot.hash == hash && string(s.text(slot.next-1)) == text:
			return slot.next - 1
		}
	}
}

func (s *symbols) text(x symbol) []byte {
	b := s.store.at(s.at[x])
	size, n := binary.Uvarint(b)
	return b[n : n+int(size)]
}

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
