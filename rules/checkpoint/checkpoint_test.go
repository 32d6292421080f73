package checkpoint

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const part = "m-part1==1.0 sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef m/x.gguf.part00"

func TestCheck(t *testing.T) {
	sha := strings.Repeat("0", 64)
	for _, c := range []struct {
		name  string
		given map[string]any
		want  []string // attribute and a word of each problem
	}{
		{"a file", map[string]any{"file": "x"}, nil},
		{"a wheel", map[string]any{"wheel": "m==1", "sha256": sha, "member": "x"}, nil},
		{"parts", map[string]any{"parts": []string{part, strings.Replace(part, "part00", "part01", 1)}, "sha256": sha}, nil},
		{"nothing", nil, []string{"file: takes its bytes from one of"}},
		{"two sources", map[string]any{"file": "x", "parts": []string{part}, "sha256": sha}, []string{"file: takes its bytes from one of"}},
		{"a file with a member", map[string]any{"file": "x", "member": "y"}, []string{"member: goes with `wheel`"}},
		{"a wheel alone", map[string]any{"wheel": "m==1"}, []string{"sha256: `wheel` needs `sha256`", "member: `wheel` needs `member`"}},
		{"parts without the whole", map[string]any{"parts": []string{part}}, []string{"sha256: `parts` needs `sha256`"}},
		{"a part without a digest", map[string]any{"parts": []string{"m==1 x.gguf.part00"}, "sha256": sha}, []string{"parts: is no part"}},
		{"a part of another file", map[string]any{"parts": []string{part, strings.Replace(part, "x.gguf", "y.gguf", 1)}, "sha256": sha},
			[]string{`parts: "y.gguf.part00" is a part of "y.gguf", the first part is one of "x.gguf"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := map[string]any{"file": "", "wheel": "", "sha256": "", "member": "", "parts": []string(nil)}
			for name, value := range c.given {
				v[name] = value
			}
			problems := check(v)
			if len(problems) != len(c.want) {
				t.Fatalf("%v", problems)
			}
			for i, want := range c.want {
				attr, message, _ := strings.Cut(want, ": ")
				if problems[i].Attr != attr || !strings.Contains(problems[i].Message, message) {
					t.Errorf("%+v, want %s", problems[i], want)
				}
			}
		})
	}
}

func TestJoin(t *testing.T) {
	dir := t.TempDir()
	source := Source{}
	for i, content := range []string{"GG", "UF", "!"} {
		name := string(rune('a' + i))
		f, err := os.Create(filepath.Join(dir, name+"==1"))
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(f)
		w, err := z.Create("d/x.part")
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err != nil || z.Close() != nil || f.Close() != nil {
			t.Fatal(err)
		}
		source.Parts = append(source.Parts, Part{Wheel: name + "==1", Member: "d/x.part"})
	}
	get := func(pin, _ string) (string, error) { return filepath.Join(dir, pin), nil }
	sum := sha256.Sum256([]byte("GGUF!"))
	source.SHA256 = hex.EncodeToString(sum[:])
	var whole bytes.Buffer
	if err := join(&whole, source, get); err != nil || whole.String() != "GGUF!" {
		t.Fatalf("%q, %v", whole.String(), err)
	}
	source.Parts[0], source.Parts[1] = source.Parts[1], source.Parts[0]
	if err := join(&whole, source, get); err == nil || !strings.Contains(err.Error(), "sha256: the parts make a file with ") {
		t.Errorf("parts out of order: %v", err)
	}
	source.Parts[0].Member = "d/y.part"
	if err := join(&whole, source, get); err == nil || !strings.Contains(err.Error(), "d/y.part") {
		t.Errorf("a member that is not there: %v", err)
	}
	if got := source.Wheels(); got != "b==1 a==1 c==1" {
		t.Error(got)
	}
}
