package wheel

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

const (
	metadata = "Metadata-Version: 2.4\nName: Tiny_Model\nVersion: 0.1.2\nLicense-Expression: Apache-2.0\n\nLicense: not this one\n"
	record   = "tiny/model.gguf,sha256=abc,5\n"
)

// pack is a wheel with these members, in order of name.
func pack(t testing.TB, members map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, members[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tiny(t testing.TB) []byte {
	return pack(t, map[string]string{
		"tiny/__init__.py":                     "",
		"tiny/model.gguf":                      "GGUF!",
		"tiny-0.1.2.dist-info/METADATA":        metadata,
		"tiny-0.1.2.dist-info/RECORD":          record,
		"tiny-0.1.2.dist-info/licenses/NOTICE": "",
	})
}

func save(t testing.TB, b []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tiny-0.1.2-py3-none-any.whl")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExtract(t *testing.T) {
	var b bytes.Buffer
	sha, size, err := Extract(save(t, tiny(t)), "tiny/model.gguf", &b)
	if err != nil || b.String() != "GGUF!" || size != 5 || sha != digest.FromString("GGUF!") {
		t.Errorf("%q, %s, %d, %v", b.String(), sha, size, err)
	}
}

func TestExtractFails(t *testing.T) {
	whole := tiny(t)
	damaged := bytes.Replace(whole, []byte("GGUF!"), []byte("GGUF?"), 1)
	cases := []struct {
		name, member string
		file         []byte
		want         []string
	}{
		{"no such member", "tiny/Model.Q4.gguf", whole, []string{`no member "tiny/Model.Q4.gguf"; the nearest are ["tiny/model.gguf"`}},
		{"damaged member", "tiny/model.gguf", damaged, []string{"tiny/model.gguf, after 5 of 5 bytes", zip.ErrChecksum.Error()}},
		{"cut short", "tiny/model.gguf", whole[:len(whole)-30], []string{"tiny-0.1.2-py3-none-any.whl", zip.ErrFormat.Error()}},
		{"no zip", "tiny/model.gguf", []byte("<html>"), []string{zip.ErrFormat.Error()}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sha, _, err := Extract(save(t, c.file), c.member, io.Discard)
			for _, want := range c.want {
				if sha != "" || err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant an error with %q", err, want)
				}
			}
		})
	}
	if _, _, err := Extract(filepath.Join(t.TempDir(), "x.whl"), "m", io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestDistInfo(t *testing.T) {
	info, err := DistInfo(save(t, tiny(t)))
	want := Info{"Tiny_Model", "0.1.2", digest.FromString(metadata), digest.FromString(record), "Apache-2.0"}
	if err != nil || info != want {
		t.Errorf("got  %+v, %v\nwant %+v", info, err, want)
	}
}

func TestLicence(t *testing.T) {
	head := "Name: x\nVersion: 1\n"
	for _, c := range []struct{ name, metadata, want string }{
		{"none", head, ""},
		{"field", head + "License: MIT\n", "MIT"},
		{"expression before field", "License: see file\n" + head + "License-Expression: MIT OR Apache-2.0\n", "MIT OR Apache-2.0"},
		{"field of several lines", head + "License: MIT License\n        \n        Copyright x\n\nText", "MIT License\n\nCopyright x"},
		{"classifiers", head + "Classifier: Topic :: Software\nClassifier: License :: OSI Approved :: MIT License\nClassifier: License :: Other\n", "MIT License, Other"},
		{"name in another case, CRLF", "NAME: x\r\nversion: 1\r\nlicense: MIT\r\n\r\nLicense-Expression: no", "MIT"},
		{"description without an empty line", head + "A thing\nLicense: no\n", ""},
	} {
		file := save(t, pack(t, map[string]string{"x-1.dist-info/METADATA": c.metadata, "x-1.dist-info/RECORD": ""}))
		if info, err := DistInfo(file); err != nil || info.Licence != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.name, info.Licence, err, c.want)
		}
	}
}

func TestDistInfoFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		members map[string]string
		want    string
	}{
		{"no folder", map[string]string{"a": ""}, "has one .dist-info folder, this one has []"},
		{"two folders", map[string]string{"a.dist-info/METADATA": "", "b.dist-info/METADATA": ""}, `this one has ["a.dist-info" "b.dist-info"]`},
		{"no METADATA", map[string]string{"a.dist-info/RECORD": ""}, "no a.dist-info/METADATA"},
		{"no RECORD", map[string]string{"a.dist-info/METADATA": metadata}, "no a.dist-info/RECORD"},
		{"no name", map[string]string{"a.dist-info/METADATA": "Version: 1\n", "a.dist-info/RECORD": ""}, "has no Name or no Version"},
	} {
		info, err := DistInfo(save(t, pack(t, c.members)))
		if info != (Info{}) || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

func FuzzDistInfo(f *testing.F) {
	f.Add([]byte(metadata))
	f.Add([]byte(":\n \n\r\nx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, values := range parseMetadata(b) {
			if len(values) == 0 || strings.ToLower(name) != name {
				t.Fatalf("%q: %q", name, values)
			}
		}
	})
}
