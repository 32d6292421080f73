package key

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden preimage")

func sample() Preimage {
	return Preimage{
		Rule: "bundle", Version: 3,
		Attrs:  map[string]any{"context": int64(512), "ratio": 0.5, "name": "é <&>", "list": []string{"b", "a"}, "flag": false},
		Inputs: map[string]digest.Digest{"checkpoint": digest.FromString("w"), "family": digest.FromString("f")},
		Tools:  map[string]string{"uv": "1.2.3"},
	}
}

func encode(t testing.TB, p Preimage) ([]byte, digest.Digest) {
	data, key, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data, key
}

// The form of a preimage is an interface: every key on every cache depends on it.
// A change here needs a new Schema.
func TestGoldenPreimage(t *testing.T) {
	data, key := encode(t, sample())
	got := string(data) + "\n" + key.String() + "\n"
	const path = "testdata/preimage.golden"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Fatalf("the form of preimages changed:\n%s\nwas\n%s", got, want)
	}
}

func TestEveryComponentIsInTheKey(t *testing.T) {
	_, base := encode(t, sample())
	for name, change := range map[string]func(*Preimage){
		"rule":          func(p *Preimage) { p.Rule = "other" },
		"version":       func(p *Preimage) { p.Version++ },
		"attrs.context": func(p *Preimage) { p.Attrs["context"] = int64(1024) },
		"attrs.flag":    func(p *Preimage) { p.Attrs["flag"] = true },
		"attrs.list":    func(p *Preimage) { p.Attrs["list"] = []string{"a", "b"} },
		"attrs.new":     func(p *Preimage) { p.Attrs["new"] = "x" },
		"inputs.family": func(p *Preimage) { p.Inputs["family"] = digest.FromString("g") },
		"inputs.gone":   func(p *Preimage) { delete(p.Inputs, "family") },
		"tools.uv":      func(p *Preimage) { p.Tools["uv"] = "1.2.4" },
		"absent.new":    func(p *Preimage) { p.Absent = map[string]string{"new": "it failed"} },
	} {
		p := sample()
		p.Attrs, p.Inputs, p.Tools = maps.Clone(p.Attrs), maps.Clone(p.Inputs), maps.Clone(p.Tools)
		change(&p)
		if _, key := encode(t, p); key == base {
			t.Errorf("changing %s does not change the key", name)
		}
	}
}

func TestDiffNamesTheComponent(t *testing.T) {
	before, _ := encode(t, sample())
	p := sample()
	p.Attrs["context"] = int64(1024)
	delete(p.Inputs, "family")
	p.Tools["go"] = "2"
	after, _ := encode(t, p)
	changes, err := Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	want := []string{
		"attrs.context changed: 512 → 1024",
		"inputs.family removed (was " + digest.FromString("f").String()[:19] + ")",
		`tools.go added: "2"`,
	}
	if !slices.Equal(lines, want) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestDiffTellsNestingFromDots(t *testing.T) {
	diff := func(before, after string) string {
		t.Helper()
		changes, err := Diff([]byte(before), []byte(after))
		if err != nil || len(changes) != 1 {
			t.Fatalf("Diff = %v, %v", changes, err)
		}
		return changes[0].Component
	}
	for _, test := range []struct{ before, after, want string }{
		{`{"a":{"b":1}}`, `{"a":{"b":2}}`, `a.b`},
		{`{"a.b":1}`, `{"a.b":2}`, `"a.b"`},
		{`{"a.b":1}`, `{}`, `"a.b"`},
		{`{}`, `{"a.b":{"c":1}}`, `"a.b"`},
		{`{"a.b":{"c":1}}`, `{"a.b":{"c":2}}`, `"a.b".c`},
		{`{"a":{"b.c":1}}`, `{"a":{"b.c":2}}`, `a."b.c"`},
		{`{"\"a.b\"":1}`, `{}`, `"\"a.b\""`},
		{`{"\"a":{"b\"":1}}`, `{"\"a":{}}`, `"\"a"."b\""`},
		{`{"":{"a":1}}`, `{"":{}}`, `"".a`},
	} {
		got := diff(test.before, test.after)
		if got != test.want {
			t.Errorf("%s → %s: %s, want %s", test.before, test.after, got, test.want)
		}
	}
	if Path("inputs", "words.txt") != `inputs."words.txt"` {
		t.Errorf("Path = %s", Path("inputs", "words.txt"))
	}
}

// Beyond 2^53-1 two integers may be one float64, and so one key.
func TestIntegersThatAKeyCannotTellApart(t *testing.T) {
	const limit = 1<<53 - 1
	for name, test := range map[string]struct {
		attrs map[string]any
		want  []string // parts of the error; none if there is none
	}{
		"largest":     {map[string]any{"n": int64(limit), "m": int64(-limit), "u": uint64(limit)}, nil},
		"floats":      {map[string]any{"n": 1e300, "m": float64(1 << 60)}, nil},
		"strings":     {map[string]any{"n": "9007199254740993"}, nil},
		"nothing":     {map[string]any{"n": nil}, nil},
		"too large":   {map[string]any{"n": int64(limit + 1), "ok": 1}, []string{"attrs.n is 9007199254740992", "as a string"}},
		"too small":   {map[string]any{"n": -limit - 1}, []string{"attrs.n is -9007199254740992"}},
		"unsigned":    {map[string]any{"n": uint64(1 << 63)}, []string{"attrs.n is 9223372036854775808"}},
		"in a list":   {map[string]any{"l": []any{1, int64(1 << 60)}}, []string{"attrs.l[1] is 1152921504606846976"}},
		"in a dict":   {map[string]any{"d": map[string]int64{"a.b": 1 << 60}}, []string{`attrs.d."a.b" is 1152921504606846976`}},
		"all at once": {map[string]any{"a": 1 << 60, "b": 1 << 61}, []string{"attrs.a is", "attrs.b is"}},
	} {
		_, _, err := Preimage{Rule: "r", Attrs: test.attrs}.Encode()
		if (err != nil) != (test.want != nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range test.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// genAttrs draws attributes as schemas produce them.
func genAttrs(t *rapid.T) map[string]any {
	value := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.Int64Range(-1<<53+1, 1<<53-1), func(n int64) any { return n }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.SliceOf(rapid.String()), func(l []string) any { return l }),
	)
	return rapid.MapOf(rapid.StringMatching(`[a-z_]{1,8}`), value).Draw(t, "attrs")
}

func TestKeyIgnoresOrderAndSeesDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genAttrs(t), genAttrs(t)
		p := Preimage{Rule: "r", Attrs: a}
		first, k1, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		// A map built in another order is the same map.
		again := map[string]any{}
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(a))) {
			again[name] = a[name]
		}
		second, k2, err := Preimage{Rule: "r", Attrs: again}.Encode()
		if err != nil || k1 != k2 || !bytes.Equal(first, second) {
			t.Fatalf("order changed the key: %s, %s, %v", k1, k2, err)
		}
		other, k3, err := Preimage{Rule: "r", Attrs: b}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		changes, err := Diff(first, other)
		if err != nil {
			t.Fatal(err)
		}
		if (k1 == k3) != (len(changes) == 0) {
			t.Fatalf("keys equal: %v, but %d changes: %v", k1 == k3, len(changes), changes)
		}
	})
}

func FuzzDiff(f *testing.F) {
	data, _ := encode(f, sample())
	f.Add(data, data)
	f.Add([]byte(`null`), []byte(`{"a":{"b":1}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		_, _ = Diff(a, b)
	})
}
