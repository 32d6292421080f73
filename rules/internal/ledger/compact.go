package ledger

import (
	"encoding/binary"
	"math/bits"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
	"assay/rules/internal/record"
)

// A ledger can only be closed when both files have been read, so all requests are
// held at once, packed: one takes some hundred bytes on either side, without a
// pointer that a collection of garbage would have to follow.

// codec packs and unpacks, by one and the same list of fields. A number is its size
// in bytes and these bytes: most are small, and so there is no loop over bytes.
type codec struct {
	b         []byte // slack bytes or more are behind what is packed
	at        int    // in b
	unpacking bool
	numbers   []int64 // those that were unpacked
	names     *names
	texts     *jsonl.Texts // where unpacked ones go
}

// slack is how many bytes are touched beyond a number, at most.
const slack = 8

// absent stands where a number has its size.
const absent = 0xff

// begin makes room for all that is packed before the first text.
func (c *codec) begin() {
	if !c.unpacking {
		c.room(most)
	}
}

// packed is what was packed.
func (c *codec) packed() []byte { return c.b[:c.at] }

// room makes room for n bytes.
func (c *codec) room(n int) {
	if short := c.at + n + slack - len(c.b); short > 0 {
		c.b = append(c.b, make([]byte, short)...)
		c.b = c.b[:cap(c.b)]
	}
}

func (c *codec) int(v *int64) {
	here := (*[1 + slack]byte)(c.b[c.at:])
	if !c.unpacking {
		x := uint64(*v)<<1 ^ uint64(*v>>63) // the sign is the lowest bit
		size := (bits.Len64(x) + 7) / 8
		here[0] = byte(size)
		binary.LittleEndian.PutUint64(here[1:], x)
		c.at += 1 + size
		return
	}
	size := int(here[0])
	x := binary.LittleEndian.Uint64(here[1:]) & (1<<(8*size) - 1)
	*v = int64(x>>1) ^ -int64(x&1)
	c.at += 1 + size
}

func (c *codec) count(v *int) {
	n := int64(*v)
	c.int(&n)
	*v = int(n)
}

// known packs numbers that may be absent.
func (c *codec) known(values ...**int64) {
	for _, v := range values {
		switch {
		case c.unpacking && c.b[c.at] == absent:
			c.at++
			continue
		case c.unpacking:
			c.numbers = append(c.numbers, 0)
			*v = &c.numbers[len(c.numbers)-1]
		case *v == nil:
			c.b[c.at] = absent
			c.at++
			continue
		}
		c.int(*v)
	}
}

func (c *codec) flags(flags ...*bool) {
	here := c.b[c.at:]
	c.at += 2
	if !c.unpacking {
		set := uint16(0)
		for i, f := range flags {
			if *f {
				set |= 1 << (i & 15)
			}
		}
		binary.LittleEndian.PutUint16(here, set)
		return
	}
	set := binary.LittleEndian.Uint16(here)
	for i, f := range flags {
		*f = set>>(i&15)&1 != 0
	}
}

func (c *codec) text(s *string) {
	n := len(*s)
	c.count(&n)
	if !c.unpacking {
		c.room(n + most)
		copy(c.b[c.at:], *s)
	} else {
		*s = c.texts.String(c.b[c.at : c.at+n])
	}
	c.at += n
}

// most is more than all that is packed between two texts.
const most = 1 << 10

// id packs a text that most often is a UUID.
func (c *codec) id(s *string) {
	if !c.unpacking {
		c.room(len(*s) + most)
		c.at = len(shorten(c.b[:c.at], *s))
		return
	}
	var text [64]byte
	short := c.b[c.at:]
	*s = c.texts.String(lengthen(text[:0], short))
	if c.at += 17; short[0] != 1 {
		size, n := binary.Uvarint(short)
		c.at += n + int(size/2) - 17
	}
}

// inHex is the digest as text, none as "".
func inHex(texts *jsonl.Texts, sum aiperf.Digest) string {
	if sum == (aiperf.Digest{}) {
		return ""
	}
	var text [2 * len(sum)]byte
	for i, v := range sum {
		binary.LittleEndian.PutUint16(text[2*i:], hexPairs[v])
	}
	return texts.String(text[:])
}

// hexPairs has the two digits of each byte, the first in the lower half.
var hexPairs = func() (pairs [256]uint16) {
	const digits = "0123456789abcdef"
	for v := range pairs {
		pairs[v] = uint16(digits[v>>4]) | uint16(digits[v&15])<<8
	}
	return pairs
}()

// name packs a text that many requests share.
func (c *codec) name(s *string) {
	if !c.unpacking {
		x := int64(c.names.of(*s))
		c.int(&x)
		return
	}
	x := int64(0)
	c.int(&x)
	*s = c.names.list[x]
}

// names numbers texts of which there are few.
type names struct {
	list   []string
	number map[string]int
	last   [16]int // found before, by length: most often it is the same again
}

func (n *names) of(s string) int {
	last := &n.last[len(s)%len(n.last)]
	if *last < len(n.list) && n.list[*last] == s {
		return *last
	}
	x, ok := n.number[s]
	if !ok {
		x = len(n.list)
		n.number[s], n.list = x, append(n.list, s)
	}
	*last = x
	return x
}

// digest packs a hex digest; what is in another form stays as it is.
func (c *codec) digest(s *string) {
	var sum aiperf.Digest
	short := !c.unpacking && lowerHex(&sum, *s)
	if c.flags(&short); !short {
		c.text(s)
		return
	}
	if c.binary((*[32]byte)(&sum)); c.unpacking {
		*s = inHex(c.texts, sum)
	}
}

func lowerHex(sum *aiperf.Digest, s string) bool {
	if len(s) != 2*len(sum) {
		return false
	}
	bad := byte(0)
	for i := range sum {
		high, low := fromHex[s[2*i]], fromHex[s[2*i+1]]
		sum[i] = high<<4 | low
		bad |= high | low
	}
	return bad < 16
}

// fromHex has the values of lower-case digits, and 16 for all that is none.
var fromHex = func() (values [256]byte) {
	for c := range values {
		values[c] = 16
	}
	for v, c := range "0123456789abcdef" {
		values[c] = byte(v)
	}
	return values
}()

func (c *codec) binary(sum *[32]byte) {
	here := (*[32]byte)(c.b[c.at:])
	if c.unpacking {
		*sum = *here
	} else {
		*here = *sum
	}
	c.at += len(sum)
}

// draft packs what readClient found out about a request.
func (c *codec) draft(d *draft) {
	c.begin()
	f, client := &d.facts, &d.client
	c.flags(&f.cancelled, &f.failure, &f.after, &f.overload, &f.refusal, &f.ended, &f.streamed, &f.finished,
		&f.malformed, &f.content, &f.closed, &d.seen.text, &d.seen.reasoning, &d.tools, &client.Stream, &client.AIPerfSuccess)
	c.id(&d.CorrelationID)
	c.text(&d.Place.Conversation)
	c.int(&d.Place.Turn)
	c.int(&f.status)
	c.int(&f.code)
	c.int(&f.prompt.reserved)
	c.int(&client.StartWallNS)
	c.known(&client.Status, &d.perf.start, &d.perf.end, &client.LatencyNS, &client.TTFBNS, &client.TTFTNS, &d.refusedAfter,
		&d.usage.Prompt, &d.usage.Completion, &d.usage.Cached, &d.usage.Reasoning, &client.TTFONS, &d.seen.lag)
	c.count(&d.stream.chunks)
	c.count(&d.stream.gaps)
	c.count(&d.stream.tight)
	c.int(&d.stream.spread)
	c.name(&f.clientError)
	c.name(&client.ErrorType)
	c.name(&client.FinishReason)
	answered := d.text != (aiperf.Digest{})
	if c.flags(&answered); answered {
		c.binary((*[32]byte)(&d.text))
	}
	c.binary((*[32]byte)(&d.body))
	prompt := int64(d.prompt)
	c.int(&prompt)
	d.prompt = symbol(prompt)
}

// record packs what the ledger needs of a server's record, apart from its id. An
// unpacked one has its account of the call in task.
func (c *codec) record(r *record.Record, task *record.Task) {
	c.begin()
	made, called := r.IDSource == "server", r.Task != nil
	c.flags(&made, &r.Repeated, &called)
	c.name((*string)(&r.Outcome))
	c.name((*string)(&r.Reason))
	c.count(&r.Status)
	c.int(&r.ReceivedWallNS)
	c.int(&r.TotalNS)
	c.known(&r.QueueNS, &r.FirstWriteNS)
	c.digest(&r.PromptSHA256)
	if made {
		r.IDSource = "server"
	}
	if !called {
		return
	}
	if c.unpacking {
		r.Task = task
	}
	t := r.Task
	c.name(&t.Scope)
	c.name(&t.FinishReason)
	c.int(&t.WallNS)
	c.known(&t.FirstIncrementNS, &t.PromptTokens, &t.CompletionTokens, &t.CachedTokens)
	c.digest(&t.TextSHA256)
}
