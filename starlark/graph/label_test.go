package graph

import (
	"strings"
	"testing"
)

func TestParseLabel(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{in: "//a/b:c", want: "//a/b:c"},
		{in: "//a/b", want: "//a/b:b"},
		{in: "//a", want: "//a:a"},
		{in: ":c", want: "//here/now:c"},
		{in: "//:c", want: "//:c"},
		{in: "//qwen3-0.6B:fp16+x", want: "//qwen3-0.6B:fp16+x"},
		{in: "", err: "the label is empty"},
		{in: "c", err: `"c" is not a label; write ":c" for a target of this package`},
		{in: "a/b:c", err: `label "a/b:c" is not absolute; write "//a/b:c"`},
		{in: "a:c", err: `label "a:c" is not absolute; write "//a:c"`},
		{in: "/a:c", err: `label "/a:c" starts with one slash; write "//a:c"`},
		{in: "//", err: `label "//" names no package; targets of the root are "//:name"`},
		{in: "//a:", err: `label "//a:" has no name after the colon`},
		{in: ":", err: `label ":" has no name after the colon`},
		{in: "//:", err: `label "//:" has no name after the colon`},
		{in: "//a//b:c", err: `label "//a//b:c": package "a//b" has an empty folder name`},
		{in: "///a:c", err: `label "///a:c": package "/a" has an empty folder name`},
		{in: "//a/:c", err: `label "//a/:c": package "a/" has an empty folder name`},
		{in: "//../a:c", err: `label "//../a:c": package "../a": ".." is not allowed, packages are named from the root of the workspace`},
		{in: "//a/.:c", err: `label "//a/.:c": package "a/.": "." is not allowed, packages are named from the root of the workspace`},
		{in: "//a b:c", err: `label "//a b:c": package "a b": folder name "a b" may only hold letters, digits and _ . + -`},
		{in: "//.git:c", err: `label "//.git:c": package ".git": folder name ".git" may only hold letters, digits and _ . + -`},
		{in: "//a:b/c", err: `label "//a:b/c": "b/c" cannot be the name of a target`},
		{in: "//a:b:c", err: `label "//a:b:c": "b:c" cannot be the name of a target`},
		{in: "//a:..", err: `label "//a:..": ".." cannot be the name of a target`},
		{in: "@repo//a:b", err: `label "@repo//a:b" is not absolute; write "//@repo//a:b"`},
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseLabel(tt.in, "here/now")
			switch {
			case tt.err != "":
				if err == nil || err.Error() != tt.err {
					t.Errorf("error %v, want %s", err, tt.err)
				}
			case err != nil:
				t.Error(err)
			case got.String() != tt.want:
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestParsePattern(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Pattern
		err  string
	}{
		{in: "//...", want: Pattern{Recursive: true}},
		{in: "//a/b/...", want: Pattern{Package: "a/b", Recursive: true}},
		{in: "//a/b:all", want: Pattern{Package: "a/b"}},
		{in: "//:all", want: Pattern{}},
		{in: ":all", want: Pattern{Package: "here"}},
		{in: "//all", want: Pattern{Package: "all"}},
		{in: "//a/b", want: Pattern{Package: "a/b", Name: "b"}},
		{in: ":c", want: Pattern{Package: "here", Name: "c"}},
		{in: "...", err: `pattern "...": "..." stands alone after a slash, as in "//a/b/..."`},
		{in: "//a...", err: `pattern "//a...": "..." stands alone after a slash, as in "//a/b/..."`},
		{in: "//a:...", err: `pattern "//a:...": "..." stands alone after a slash, as in "//a/b/..."`},
		{in: "//../...", err: `pattern "//../...": package "..": ".." is not allowed, packages are named from the root of the workspace`},
		{in: "//a:", err: `pattern "//a:": "" cannot be the name of a target`},
		{in: "c", err: `"c" is not a label; write ":c" for a target of this package`},
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParsePattern(tt.in, "here")
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("got %+v, %v, want %+v", got, err, tt.want)
			}
			if again, err := ParsePattern(got.String(), ""); err != nil || again != got {
				t.Errorf("%s reads back as %+v, %v", got, again, err)
			}
		})
	}
}

func FuzzParseLabel(f *testing.F) {
	for _, s := range []string{"//a/b:c", "//a", ":c", "//:c", "c", "//../x:y", "//a:b:c", "//\xff", "//a/..."} {
		f.Add(s, "p/q")
	}
	f.Fuzz(func(t *testing.T, s, pkg string) {
		l, err := ParseLabel(s, pkg)
		if err != nil {
			return
		}
		if strings.HasPrefix(s, ":") && l.Package != pkg {
			t.Fatalf("%q left package %q for %q", s, pkg, l.Package)
		}
		if CheckPackage(l.Package) != nil {
			return // the current package is the caller's
		}
		if again, err := ParseLabel(l.String(), ""); err != nil || again != l {
			t.Fatalf("%q reads as %v and back as %v, %v", s, l, again, err)
		}
		for elem := range strings.SplitSeq(l.Package, "/") {
			if elem == ".." {
				t.Fatalf("%q leaves the workspace", s)
			}
		}
	})
}
