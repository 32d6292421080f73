package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	a = "sha256:" + strings.Repeat("a", 64)
	b = "sha256:" + strings.Repeat("b", 64)
)

var sample = `aiofiles==24.1.0 \
    --hash=` + b + ` \
    --hash=` + a + `
    # via aiperf
colorama==0.4.6 ; sys_platform == 'win32' \
    --hash=` + a + `
    # via
    #   aiperf
    #   tqdm
numpy==2.4.6 ; python_full_version < '3.12' \
    --hash=` + a + `
numpy==2.5.5 ; python_full_version >= '3.12' \
    --hash=` + b + `
ruamel-yaml-clib==0.2.15 \
    --hash=` + a + `
`

func parse(t *testing.T, text string) *Lock {
	t.Helper()
	l, err := Parse("lock.txt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParse(t *testing.T) {
	want := &Lock{[]Package{
		{Name: "aiofiles", Version: "24.1.0", Hashes: []string{a, b}},
		{Name: "colorama", Version: "0.4.6", Marker: "sys_platform == 'win32'", Hashes: []string{a}},
		{Name: "numpy", Version: "2.4.6", Marker: "python_full_version < '3.12'", Hashes: []string{a}},
		{Name: "numpy", Version: "2.5.5", Marker: "python_full_version >= '3.12'", Hashes: []string{b}},
		{Name: "ruamel-yaml-clib", Version: "0.2.15", Hashes: []string{a}},
	}}
	l := parse(t, sample)
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := l.Package("NumPy"); len(got) != 2 || got[1].Version != "2.5.5" {
		t.Errorf("numpy: %v", got)
	}
	if got := l.Package("Ruamel.Yaml_clib"); len(got) != 1 {
		t.Errorf("a name in another spelling: %v", got)
	}
	if got := l.Package("scipy"); got != nil {
		t.Errorf("not in the lock: %v", got)
	}
}

// A lock keeps its identity through everything that does not change what is
// installed.
func TestCanonicalIgnoresLayout(t *testing.T) {
	want := parse(t, sample).Canonical()
	entries := strings.SplitAfter(sample, "\n")
	same := map[string]string{
		"other comments":    strings.ReplaceAll(sample, "# via", "# because of"),
		"no comments":       strings.Join(slices.DeleteFunc(slices.Clone(entries), func(l string) bool { return strings.Contains(l, "#") }), ""),
		"Windows":           strings.ReplaceAll(sample, "\n", "\r\n"),
		"tabs":              strings.ReplaceAll(sample, "    ", "\t"),
		"other order":       strings.Join(append(slices.Clone(entries[9:]), entries[:9]...), ""),
		"hashes in order":   strings.Replace(strings.Replace(sample, b+` \`, "X", 1), a+"\n", b+"\n", 1),
		"one line a pin":    strings.ReplaceAll(sample, "\\\n", ""),
		"empty lines":       "\n\n" + strings.ReplaceAll(sample, "colorama", "\ncolorama"),
		"other spelling":    strings.Replace(sample, "ruamel-yaml-clib", "Ruamel.yaml_clib", 1),
		"spaces around ==":  strings.Replace(sample, "aiofiles==24.1.0", "aiofiles == 24.1.0", 1),
		"no space before ;": strings.ReplaceAll(sample, " ; ", ";"),
		"a hash twice":      strings.Replace(sample, `aiofiles==24.1.0 \`, `aiofiles==24.1.0 --hash=`+a+` \`, 1),
		"no last newline":   strings.TrimSuffix(sample, "\n"),
	}
	same["hashes in order"] = strings.Replace(same["hashes in order"], "X", a+` \`, 1)
	for name, text := range same {
		if diff := cmp.Diff(string(want), string(parse(t, text).Canonical())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	other := map[string]string{
		"version":  strings.Replace(sample, "24.1.0", "24.1.1", 1),
		"marker":   strings.Replace(sample, "win32", "linux", 1),
		"hash":     strings.Replace(sample, `--hash=`+b+` \`, "\\", 1),
		"packages": sample[:strings.Index(sample, "ruamel")],
	}
	for name, text := range other {
		if bytes.Equal(want, parse(t, text).Canonical()) {
			t.Errorf("another %s, same canonical form", name)
		}
	}
	if start := `{"packages":[{"hashes":["sha256:`; !bytes.HasPrefix(want, []byte(start)) || !bytes.Contains(want, []byte(`"marker":"python_full_version < '3.12'"`)) {
		t.Errorf("canonical form: %s", want)
	}
}

func TestRefused(t *testing.T) {
	h := " --hash=" + a
	cases := []struct{ name, lock, want string }{
		{"empty", "", "1:1: the lock names no package"},
		{"comments only", "# nothing\n", "1:1: the lock names no package"},
		{"no version", "six" + h, `1:1: "six" is not pinned`},
		{"a range", "six>=1.0" + h, `"six>=1.0" is not pinned`},
		{"a compatible version", "six~=1.0" + h, "is not pinned"},
		{"two conditions", "six==1.0,!=1.1" + h, "is not pinned"},
		{"any of a series", "six==1.*" + h, "is not pinned"},
		{"arbitrary equality", "six===1.0" + h, "is not pinned"},
		{"no name", "==1.0" + h, "is not pinned"},
		{"no hash", "six==1.0", "1:1: six has no hash"},
		{"no hash, with a marker", "six==1.0 ; python_version < '3'", "six has no hash"},
		{"short hash", "six==1.0 --hash=sha256:abc", "1:10: bad hash"},
		{"hash in capitals", "six==1.0 --hash=sha256:" + strings.Repeat("A", 64), "bad hash"},
		{"another algorithm", "six==1.0 --hash=md5:" + strings.Repeat("a", 32), "bad hash"},
		{"hash apart", "six==1.0 --hash " + a, "bad hash"},
		{"hash alone", h, "1:2: a hash with no package before it"},
		{"hash after a comment", "six==1.0" + h + "\n # via x\n" + h, "3:2: a hash with no package before it"},
		{"index", "--index-url https://user:secret@example.org/simple\nsix==1.0" + h, "1:1: --index-url: a lock may not say where"},
		{"index, short", "-i https://example.org\n", "-i: a lock may not say where"},
		{"index, shorter", "-ihttps://example.org\n", "-i: a lock may not say where"},
		{"second index", "--extra-index-url=https://example.org\n", "--extra-index-url: a lock may not say where"},
		{"links", "-f ./wheels\n", "-f: a lock may not say where"},
		{"links, long", "--find-links ./wheels\n", "--find-links: a lock may not say where"},
		{"trusted host", "--trusted-host example.org\n", "--trusted-host: a lock may not say where"},
		{"index behind a pin", "six==1.0" + h + " --index-url https://example.org\n", "1:89: --index-url: a lock may not say where"},
		{"editable", "-e ./six\n", "-e: an editable package"},
		{"editable, long", "--editable=./six\n", "--editable: an editable package"},
		{"another file", "-r more.txt\n", "-r: a lock is one file"},
		{"constraints", "--constraint more.txt\n", "--constraint: a lock is one file"},
		{"another option", "--pre\n", "--pre: unknown option"},
		{"direct reference", "six @ https://user:secret@example.org/six.whl" + h, "1:1: an address or a path"},
		{"address", "git+https://example.org/six.git" + h, "an address or a path"},
		{"path", "./six-1.0.whl" + h, "an address or a path"},
		{"extras", "uvicorn[standard]==1.0" + h, "compile the lock with --strip-extras"},
		{"marker missing", "six==1.0 ;" + h, "a ';' with no marker"},
		{"same package twice", "six==1.0" + h + "\nSix==1.1" + h, "2:1: six is pinned twice for the same environment, first on line 1"},
		{"same package and marker twice", "six==1.0 ; a == 'b'" + h + "\nsix==1.1;  a  == 'b'" + h, "2:1: six is pinned twice"},
		{"cut short", "six==1.0 \\\n    --hash=" + a + " \\\n", "2:1: the last line ends in a backslash"},
		{"comment cut short", "six==1.0" + h + " # via x \\\nrich==1.0" + h, "1:89: a comment that ends in a backslash"},
		{"not text", "six==1.0" + h + "\n\x00", "2:1: not printable text"},
		{"not UTF-8", "six==1.0\xff" + h, "1:9: not printable text in UTF-8"},
		{"text after the hash", "six==1.0" + h + " six", "1:89: unexpected text"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, err := Parse("lock.txt", []byte(c.lock))
			var e *Error
			if l != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), "lock.txt:") || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v\nwant an error with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("a password is in the error: %v", err)
			}
		})
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, err := Parse("l", []byte("six>=1\n--index-url x\ntoml==1.0\nrich==1.0 --hash=md5:0\n"))
	want := []string{
		`l:1:1: "six>=1" is not pinned; want name==version`,
		`l:2:1: --index-url: a lock may not say where packages come from; configure the index of the machine`,
		`l:3:1: toml has no hash; compile the lock with --generate-hashes`,
		`l:4:11: bad hash; want --hash=sha256: and 64 lower-case hexadecimal digits`,
	}
	if diff := cmp.Diff(want, strings.Split(fmt.Sprint(err), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("six==1.0 \\\n--hash=" + a)
	f.Add("-i x\n six @ y;\\\n")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse("l", []byte(text))
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line < 1 || e.Col < 1 {
				t.Fatalf("%v", err)
			}
			return
		}
		// What was read, written down plainly, reads the same.
		var again strings.Builder
		for _, p := range l.Packages {
			fmt.Fprintf(&again, "%s==%s", p.Name, p.Version)
			if p.Marker != "" {
				fmt.Fprintf(&again, " ; %s", p.Marker)
			}
			for _, h := range p.Hashes {
				fmt.Fprintf(&again, " --hash=%s", h)
			}
			again.WriteString("\n")
		}
		l2, err := Parse("l", []byte(again.String()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(l.Canonical(), l2.Canonical()) {
			t.Fatalf("%s\nbecame\n%s", l.Canonical(), l2.Canonical())
		}
	})
}
