package container

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	"pgregory.net/rapid"
)

func text(name, content string) Source {
	return Source{name, int64(len(content)), func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(content)), nil
	}}
}

func write(t testing.TB, sections ...Source) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := Write(context.Background(), &b, "smollm2", "text_generation", sections); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(b []byte) (*Bundle, error) { return Open(bytes.NewReader(b), int64(len(b))) }

// raw is a bundle with any header and payload.
func raw(header, payload string) []byte {
	b := binary.LittleEndian.AppendUint64([]byte(magic), uint64(len(header)))
	return append(append(b, header...), payload...)
}

func TestBytesAreExactly(t *testing.T) {
	got := write(t, text("weights.gguf", "WW"), text(ProvenanceSection, "{}"), text("empty", ""))
	want := raw(`{"family":"smollm2","sections":{`+
		`"checkpoint_provenance.json":{"length":2,"offset":2},`+
		`"empty":{"length":0,"offset":4},`+
		`"weights.gguf":{"length":2,"offset":0}},`+
		`"task":"text_generation"}`, "WW{}")
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9_][A-Za-z0-9._-]{0,20}`), 0, 6, rapid.ID).Draw(t, "names")
		var sections []Source
		content := map[string]string{}
		for _, n := range names {
			content[n] = rapid.String().Draw(t, "content")
			sections = append(sections, text(n, content[n]))
		}
		var b bytes.Buffer
		written, err := Write(context.Background(), &b, "f", "t", sections)
		if err != nil {
			t.Fatal(err)
		}
		if written.Size != int64(b.Len()) || written.Digest != digest.FromBytes(b.Bytes()) {
			t.Fatalf("%+v for %d bytes", written, b.Len())
		}
		bundle, err := open(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if bundle.Family != "f" || bundle.Task != "t" || len(bundle.Sections) != len(sections) {
			t.Fatalf("%+v", bundle)
		}
		for name, want := range content {
			r, err := bundle.Section(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err != nil || string(got) != want || written.Sections[name] != digest.FromString(want) {
				t.Fatalf("section %s: %q, %v, %s", name, got, err, written.Sections[name])
			}
		}
	})
}

func TestUnknownSectionNamesTheOthers(t *testing.T) {
	b, err := open(write(t, text("b", "1"), text("a", "2")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Section("c"); err == nil || !strings.Contains(err.Error(), `no section "c"; there are ["a" "b"]`) {
		t.Error(err)
	}
}

func TestMalformedBundles(t *testing.T) {
	ok := string(write(t, text("a", "AAAA"), text("b", "BB")))
	// sections is a valid header around these sections.
	sections := func(s string) string { return `{"family":"f","task":"t","sections":{` + s + `}}` }
	length := func(n uint64) []byte { return binary.LittleEndian.AppendUint64([]byte(magic), n) }
	const a = `"a":{"offset":0,"length":4}`
	cases := []struct {
		name string
		file []byte
		want string
	}{
		{"empty file", nil, "byte 0, prefix: the file has 0 bytes"},
		{"only half a prefix", []byte(ok[:11]), "byte 11, prefix: the file has 11 bytes"},
		{"another magic", append([]byte("BUNDLE\x02\x00"), ok[8:]...), `byte 0, magic: is "BUNDLE\x02\x00"`},
		{"header above the limit", length(100<<20 + 1), "byte 8, header length: is 104857601 bytes, at most 104857600"},
		{"header length overflows", length(1<<63 + 5), "byte 8, header length: is 9223372036854775813 bytes"},
		{"header longer than the file", append(length(50), `{}`...), "header length: is 50 bytes, and 2 are left of the file's 18"},
		{"header cut short", raw(`{"family":"f`, ""), "broken JSON"},
		{"no header", raw("", ""), "it ends too early"},
		{"header is an array", raw(`[]`, ""), "byte 17, header: is an array, want an object"},
		{"header is null", raw(`null`, ""), "is null, want an object"},
		{"header is no JSON", raw(`family`, ""), "broken JSON"},
		{"header is not UTF-8", raw("{\"family\":\"\xff\"}", ""), "byte 27, header: not UTF-8"},
		{"two values", raw(sections(a)+` {}`, "AAAA"), "more follows after the JSON value"},
		{"no family", raw(`{"task":"t","sections":{}}`, ""), `key "family" is missing`},
		{"no task", raw(`{"family":"f","sections":{}}`, ""), `key "task" is missing`},
		{"no sections", raw(`{"family":"f","task":"t"}`, ""), `key "sections" is missing`},
		{"unknown key", raw(`{"family":"f","task":"t","sections":{},"x":1}`, ""), `x: unknown key; known are ["family" "sections" "task"]`},
		{"key in another case", raw(`{"Family":"f","task":"t","sections":{}}`, ""), "Family: unknown key"},
		{"key twice", raw(`{"family":"f","family":"g","task":"t","sections":{}}`, ""), `key "family" occurs twice`},
		{"family is a number", raw(`{"family":1,"task":"t","sections":{}}`, ""), "family: is a number, want text"},
		{"family is null", raw(`{"family":null,"task":"t","sections":{}}`, ""), "family: is null, want text"},
		{"family is empty", raw(`{"family":"","task":"t","sections":{}}`, ""), "family: a family has 1 to 256 bytes"},
		{"task with a line break", raw(`{"family":"f","task":"a\nb","sections":{}}`, ""), "not printable"},
		{"task with half a surrogate pair", raw(`{"family":"f","task":"\ud800","sections":{}}`, ""), "not printable"},
		{"sections is an array", raw(`{"family":"f","task":"t","sections":[]}`, ""), "sections: is an array, want an object"},
		{"section is null", raw(sections(`"a":null`), ""), "sections.a: is null, want an object"},
		{"section without name", raw(sections(`"":{"offset":0,"length":0}`), ""), "a section's name has 1 to 256 bytes"},
		{"section with a long name", raw(sections(`"`+strings.Repeat("x", 257)+`":{}`), ""), "this one has 257"},
		{"section outside the folder", raw(sections(`"../a":{"offset":0,"length":0}`), ""), `has the part ".."`},
		{"absolute section", raw(sections(`"/etc/passwd":{"offset":0,"length":0}`), ""), `has the part ""`},
		{"section with a backslash", raw(sections(`"a\\b":{"offset":0,"length":0}`), ""), `has '\\' at byte 1`},
		{"section with a space", raw(sections(`"a b":{"offset":0,"length":0}`), ""), `has ' ' at byte 1`},
		{"section like an option", raw(sections(`"-rf":{"offset":0,"length":0}`), ""), "starts with '.' or '-'"},
		{"section twice", raw(sections(a+","+a), "AAAA"), `key "a" occurs twice`},
		{"section without offset", raw(sections(`"a":{"length":4}`), "AAAA"), `sections.a: key "offset" is missing`},
		{"section without length", raw(sections(`"a":{"offset":0}`), "AAAA"), `sections.a: key "length" is missing`},
		{"section with more", raw(sections(`"a":{"offset":0,"length":4,"crc":1}`), "AAAA"), "sections.a.crc: unknown key"},
		{"offset twice", raw(sections(`"a":{"offset":0,"offset":0,"length":4}`), "AAAA"), `sections.a: key "offset" occurs twice`},
		{"negative offset", raw(sections(`"a":{"offset":-1,"length":4}`), "AAAA"), "sections.a.offset: -1 is less than 0"},
		{"negative length", raw(sections(`"a":{"offset":0,"length":-4}`), "AAAA"), "sections.a.length: -4 is less than 0"},
		{"offset overflows", raw(sections(`"a":{"offset":9223372036854775808,"length":4}`), "AAAA"), "does not fit 63 bits"},
		{"offset and length overflow", raw(sections(`"a":{"offset":9223372036854775807,"length":9223372036854775807}`), "AAAA"), "do not fit the 4 bytes after the header"},
		{"length is text", raw(sections(`"a":{"offset":0,"length":"4"}`), "AAAA"), "sections.a.length: is text, want a whole number"},
		{"length with a fraction", raw(sections(`"a":{"offset":0,"length":4.0}`), "AAAA"), "4.0 is not a whole number in plain digits"},
		{"length with an exponent", raw(sections(`"a":{"offset":0,"length":4e0}`), "AAAA"), "4e0 is not a whole number"},
		{"length with a leading zero", raw(sections(`"a":{"offset":0,"length":04}`), "AAAA"), "broken JSON"},
		{"length is true", raw(sections(`"a":{"offset":0,"length":true}`), "AAAA"), "is a truth value, want a whole number"},
		{"comma at the end", raw(sections(a+","), "AAAA"), "broken JSON"},
		{"payload cut short", []byte(ok[:len(ok)-1]), "section b: 2 bytes at offset 4 do not fit the 5 bytes after the header"},
		{"trailing byte", []byte(ok + "x"), "file: 1 bytes after section b belong to no section"},
		{"payload without sections", raw(sections(""), "x"), "file: 1 bytes after the header belong to no section"},
		{"gap", raw(sections(`"a":{"offset":0,"length":1},"b":{"offset":3,"length":1}`), "AxxB"), "section b: 2 bytes after section a belong to no section"},
		{"gap before the first", raw(sections(`"a":{"offset":1,"length":3}`), "AAAA"), "section a: 1 bytes after the header belong to no section"},
		{"overlap", raw(sections(`"a":{"offset":0,"length":3},"b":{"offset":2,"length":2}`), "AAAA"), "section b: overlaps section a by 1 bytes"},
		{"same place twice", raw(sections(`"a":{"offset":0,"length":4},"b":{"offset":0,"length":4}`), "AAAA"), "section b: overlaps section a by 4 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, err := open(c.file)
			var fe *FormatError
			if b != nil || !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant an error with %q", err, c.want)
			}
		})
	}
}

func TestEverythingWrongWithTheLayoutIsSaid(t *testing.T) {
	_, err := open(raw(`{"family":"f","task":"t","sections":{"a":{"offset":0,"length":3},"b":{"offset":2,"length":1},"c":{"offset":9,"length":1}}}`, "AAAA"))
	for _, want := range []string{"section b: overlaps", "section c: 1 bytes at offset 9 do not fit"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	broken := Source{"a", 4, func() (io.ReadCloser, error) { return nil, errors.New("no such file") }}
	resize := func(s Source, size int64) Source { s.Size = size; return s }
	cases := []struct {
		name     string
		family   string
		sections []Source
		want     string
	}{
		{"no family", "", nil, "a family has 1 to 256 bytes"},
		{"bad name", "f", []Source{text("a b", "")}, "has ' ' at byte 1"},
		{"name twice", "f", []Source{text("a", ""), text("a", "")}, `"a" is given twice`},
		{"negative size", "f", []Source{resize(text("a", ""), -1)}, "size of -1 bytes"},
		{"sizes overflow", "f", []Source{resize(text("a", ""), 1<<62), resize(text("b", ""), 1<<62)}, `section "b" has a size`},
		{"too short", "f", []Source{resize(text("a", "AAA"), 4)}, "section a: ended after 3 bytes, 4 were announced"},
		{"too long", "f", []Source{resize(text("a", "AAAAA"), 4)}, "section a: has more than the 4 bytes"},
		{"cannot be opened", "f", []Source{broken}, "section a: no such file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Write(context.Background(), io.Discard, c.family, "t", c.sections)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant an error with %q", err, c.want)
			}
		})
	}
}

type fullDisk struct{ room int }

func (w *fullDisk) Write(b []byte) (int, error) {
	if w.room -= len(b); w.room < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestWriteFails(t *testing.T) {
	for _, room := range []int{0, 200} {
		_, err := Write(context.Background(), &fullDisk{room}, "f", "t", []Source{text("a", strings.Repeat("x", 1000))})
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Write(ctx, io.Discard, "f", "t", []Source{text("a", "x")}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

type brokenDisk struct{}

func (brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, errors.New("input/output error") }

func TestReadFails(t *testing.T) {
	var fe *FormatError
	if _, err := Open(brokenDisk{}, 100); err == nil || errors.As(err, &fe) {
		t.Errorf("a broken disk is not a broken file: %v", err)
	}
	if _, err := Open(strings.NewReader(magic), 100); err == nil || !strings.Contains(err.Error(), "byte 8, file: it ended before its stated size") {
		t.Errorf("a file that shrank: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(write(f, text("a", "AAAA"), text(ProvenanceSection, v1)))
	f.Add(raw(`{"family":"f","task":"t","sections":{"a":{"offset":0,"length":3},"b":{"offset":2,"length":2}}}`, "AAAA"))
	f.Add(raw(`{"family":"f"`, ""))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := open(data)
		if err != nil {
			var fe *FormatError
			if !errors.As(err, &fe) {
				t.Fatal(err)
			}
			return
		}
		// Every byte after the header belongs to one section, in order.
		var payload []byte
		var sections []Source
		for _, s := range b.Sections {
			r, err := b.Section(s.Name)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			payload = append(payload, content...)
			sections = append(sections, text(s.Name, string(content)))
		}
		if !bytes.HasSuffix(data, payload) {
			t.Fatal("sections are not the payload")
		}
		var again bytes.Buffer
		if _, err := Write(context.Background(), &again, b.Family, b.Task, sections); err != nil {
			t.Fatal(err)
		}
		c, err := open(again.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(b.Sections) != fmt.Sprint(c.Sections) && !slices.ContainsFunc(b.Sections, func(s Section) bool { return s.Length == 0 }) {
			t.Fatalf("%v became %v", b.Sections, c.Sections)
		}
		_, _ = b.Provenance()
	})
}
