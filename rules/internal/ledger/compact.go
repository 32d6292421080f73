package ledger

import (
	"encoding/binary"
	"encoding/hex"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/record"
)

// A ledger can only be closed when both files have been read, so all requests are
// held at once, packed: one takes some hundred bytes on either side, without a
// pointer that a collection of garbage would have to follow.

// codec packs and unpacks, by one and the same list of fields. Numbers are
// varints, since most are small or absent.
type codec struct {
	b         []byte
	unpacking bool
	numbers   []int64 // those that were unpacked
	names     *names
	texts     *texts // where unpacked ones go
}

func (c *codec) int(v *int64) {
	if !c.unpacking {
		c.b = binary.AppendVarint(c.b, *v)
		return
	}
	n := 0
	*v, n = binary.Varint(c.b)
	c.b = c.b[n:]
}

func (c *codec) uint(v *uint64) {
	if !c.unpacking {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	n := 0
	*v, n = binary.Uvarint(c.b)
	c.b = c.b[n:]
}

func (c *codec) count(v *int) {
	n := int64(*v)
	c.int(&n)
	*v = int(n)
}

// known packs which of the numbers are, and those.
func (c *codec) known(values ...**int64) {
	bits := uint64(0)
	for i, v := range values {
		if *v != nil {
			bits |= 1 << i
		}
	}
	c.uint(&bits)
	for i, v := range values {
		if bits>>i&1 == 0 {
			continue
		}
		if c.unpacking {
			c.numbers = append(c.numbers, 0)
			*v = &c.numbers[len(c.numbers)-1]
		}
		c.int(*v)
	}
}

func (c *codec) flags(flags ...*bool) {
	bits := uint64(0)
	for i, f := range flags {
		if *f {
			bits |= 1 << i
		}
	}
	c.uint(&bits)
	for i, f := range flags {
		*f = bits>>i&1 != 0
	}
}

func (c *codec) text(s *string) {
	n := uint64(len(*s))
	c.uint(&n)
	if !c.unpacking {
		c.b = append(c.b, *s...)
		return
	}
	c.texts.add(s, c.b[:n])
	c.b = c.b[n:]
}

// texts collects the strings of an entry, which then share one piece of memory.
type texts struct {
	b    []byte
	to   []*string
	ends []int
}

func (t *texts) add(to *string, text []byte) {
	if len(text) > 0 {
		t.b = append(t.b, text...)
		t.to, t.ends = append(t.to, to), append(t.ends, len(t.b))
	}
}

func (t *texts) addHex(to *string, sum aiperf.Digest) {
	if sum != (aiperf.Digest{}) {
		t.b = hex.AppendEncode(t.b, sum[:])
		t.to, t.ends = append(t.to, to), append(t.ends, len(t.b))
	}
}

func (t *texts) set() {
	all, start := string(t.b), 0
	for i, to := range t.to {
		*to = all[start:t.ends[i]]
		start = t.ends[i]
	}
	t.b, t.to, t.ends = t.b[:0], t.to[:0], t.ends[:0]
}

// name packs a text that many requests share.
func (c *codec) name(s *string) {
	x := uint64(0)
	if !c.unpacking {
		x = c.names.of(*s)
	}
	if c.uint(&x); c.unpacking {
		*s = c.names.list[x]
	}
}

// names numbers texts of which there are few.
type names struct {
	list   []string
	number map[string]uint64
}

func (n *names) of(s string) uint64 {
	x, ok := n.number[s]
	if !ok {
		x = uint64(len(n.list))
		n.number[s], n.list = x, append(n.list, s)
	}
	return x
}

// digest packs a hex digest; what is in another form stays as it is.
func (c *codec) digest(s *string) {
	var sum aiperf.Digest
	inHex := !c.unpacking && lowerHex(&sum, *s)
	if c.flags(&inHex); !inHex {
		c.text(s)
		return
	}
	if c.binary((*[32]byte)(&sum)); c.unpacking {
		c.texts.addHex(s, sum)
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
	if !c.unpacking {
		c.b = append(c.b, sum[:]...)
		return
	}
	c.b = c.b[copy(sum[:], c.b):]
}

// draft packs what readClient found out about a request.
func (c *codec) draft(d *draft) {
	f, client := &d.facts, &d.client
	c.flags(&f.cancelled, &f.failure, &f.after, &f.overload, &f.refusal, &f.ended, &f.streamed, &f.finished,
		&f.malformed, &f.content, &f.closed, &d.seen.text, &d.seen.reasoning, &d.tools, &client.Stream, &client.AIPerfSuccess)
	c.text(&d.CorrelationID)
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
	prompt := uint64(d.prompt)
	c.uint(&prompt)
	d.prompt = symbol(prompt)
}

// record packs what the ledger needs of a server's record, apart from its id. An
// unpacked one has its account of the call in task.
func (c *codec) record(r *record.Record, task *record.Task) {
	made, called := r.IDSource == "server", r.Task != nil
	c.flags(&made, &r.Repeated, &called)
	c.name((*string)(&r.Outcome))
	c.name((*string)(&r.Reason))
	c.count(&r.Status)
	c.int(&r.ReceivedWallNS)
	c.int(&r.TotalNS)
	c.known(&r.QueueNS, &r.FirstWriteNS)
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
