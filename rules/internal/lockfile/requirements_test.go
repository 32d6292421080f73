package lockfile

import "testing"

func TestRequirementsReadBackTheSame(t *testing.T) {
	text := "B_b==2 ; python_version < '3.12' \\\n    --hash=sha256:" + zeros + " \\\n    --hash=sha256:" + ones + "\n    # via a\na==1.0 --hash=sha256:" + ones + "\n"
	l, err := Parse("x.lock", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again", l.Requirements())
	if err != nil {
		t.Fatalf("%v\n%s", err, l.Requirements())
	}
	if string(again.Canonical()) != string(l.Canonical()) || string(again.Requirements()) != string(l.Requirements()) {
		t.Fatalf("got\n%s\nfrom\n%s", again.Requirements(), l.Requirements())
	}
}

const (
	zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	ones  = "1111111111111111111111111111111111111111111111111111111111111111"
)
