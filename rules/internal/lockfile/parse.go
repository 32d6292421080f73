package lockfile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Parse reads a lock; file is its name in errors. All errors are reported, each
// an *Error, joined.
func Parse(file string, data []byte) (*Lock, error) {
	p := &parser{file: file, seen: map[string]position{}}
	p.lines(string(data))
	if len(p.lock.Packages) == 0 && len(p.errs) == 0 {
		p.fail(position{1, 1}, "the lock names no package")
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	p.lock.sort()
	return &p.lock, nil
}

type position struct{ line, col int }

// word is a piece of a line without white space.
type word struct {
	position
	text string
}

type parser struct {
	file string
	lock Lock
	seen map[string]position // by name and marker
	errs []error
}

func (p *parser) fail(at position, format string, args ...any) {
	p.errs = append(p.errs, &Error{p.file, at.line, at.col, fmt.Sprintf(format, args...)})
}

// lines puts lines that end in a backslash together and hands them on, as words
// without comments.
func (p *parser) lines(data string) {
	var words []word
	n := 0
	for line := range strings.Lines(data) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if i := invalid(line); i >= 0 {
			p.fail(position{n, i + 1}, "not printable text in UTF-8")
			words = nil
			continue
		}
		line, comment := uncomment(line)
		if strings.HasSuffix(comment, `\`) {
			p.fail(position{n, len(line) + 1}, "a comment that ends in a backslash; installers disagree about the line after it")
		}
		rest, more := strings.CutSuffix(line, `\`)
		words = append(words, split(rest, n)...)
		if !more {
			p.requirement(words)
			words = nil
		}
	}
	if len(words) > 0 {
		p.fail(position{n, 1}, "the last line ends in a backslash; the lock is cut short")
	}
}

// invalid returns the place of the first byte that has no place in a text file.
func invalid(line string) int {
	for i, r := range line {
		if r == utf8.RuneError && !strings.HasPrefix(line[i:], string(utf8.RuneError)) || r < ' ' && r != '\t' {
			return i
		}
	}
	return -1
}

// uncomment cuts a comment off: a # at the start or after white space.
func uncomment(line string) (rest, comment string) {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i], line[i:]
		}
	}
	return line, ""
}

func split(line string, n int) []word {
	var out []word
	start := -1
	for i := 0; i <= len(line); i++ {
		space := i == len(line) || line[i] == ' ' || line[i] == '\t'
		if !space && start < 0 {
			start = i
		}
		if space && start >= 0 {
			out = append(out, word{position{n, start + 1}, line[start:i]})
			start = -1
		}
	}
	return out
}

var (
	pin  = regexp.MustCompile(`^([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9])==([A-Za-z0-9][A-Za-z0-9.!+_-]*)$`)
	hash = regexp.MustCompile(`^--hash=(sha256:[0-9a-f]{64})$`)
)

// requirement reads one pin: what to install, a marker, options.
func (p *parser) requirement(words []word) {
	if len(words) == 0 {
		return
	}
	first := words[0]
	if strings.HasPrefix(first.text, "-") {
		p.option(first)
		return
	}
	var spec, marker []string
	inMarker := false
	for len(words) > 0 && !strings.HasPrefix(words[0].text, "-") {
		text := words[0].text
		if !inMarker {
			var before string
			if before, text, inMarker = strings.Cut(text, ";"); before != "" {
				spec = append(spec, before)
			}
		}
		if inMarker && text != "" {
			marker = append(marker, text)
		}
		words = words[1:]
	}
	pkg := Package{Marker: strings.Join(marker, " ")}
	ok := p.pinned(first.position, strings.Join(spec, ""), &pkg)
	if inMarker && pkg.Marker == "" {
		p.fail(first.position, "a ';' with no marker after it")
	}
	hashes := 0
	for _, w := range words {
		if strings.HasPrefix(w.text, "--hash") {
			hashes++
		}
		if m := hash.FindStringSubmatch(w.text); m != nil {
			pkg.Hashes = append(pkg.Hashes, m[1])
		} else {
			p.option(w)
		}
	}
	if !ok {
		return
	}
	if hashes == 0 {
		p.fail(first.position, "%s has no hash; compile the lock with --generate-hashes", pkg.Name)
	}
	key := pkg.Name + ";" + pkg.Marker
	if before, dup := p.seen[key]; dup {
		p.fail(first.position, "%s is pinned twice for the same environment, first on line %d", pkg.Name, before.line)
		return
	}
	p.seen[key] = first.position
	p.lock.Packages = append(p.lock.Packages, pkg)
}

// pinned reads "name==version". What it quotes in errors cannot hold an address
// and its password.
func (p *parser) pinned(at position, spec string, pkg *Package) bool {
	m := pin.FindStringSubmatch(spec)
	if m != nil {
		pkg.Name, pkg.Version = normalise(m[1]), m[2]
		return true
	}
	switch {
	case strings.Contains(spec, "://") || strings.ContainsAny(spec, `@/\`):
		p.fail(at, "an address or a path; a lock pins packages by name, version and hash")
	case strings.Contains(spec, "["):
		p.fail(at, "%q has extras, which mean nothing once everything is pinned; compile the lock with --strip-extras", spec)
	default:
		p.fail(at, "%q is not pinned; want name==version", spec)
	}
	return false
}

// option refuses an option: only well-formed hashes have a place in a lock.
func (p *parser) option(w word) {
	name, _, _ := strings.Cut(w.text, "=")
	is := func(names ...string) bool {
		for _, n := range names {
			// Short options take their value without a space, too.
			if name == n || len(n) == 2 && n[1] != '-' && strings.HasPrefix(name, n) && !strings.HasPrefix(name, "--") {
				name = n
				return true
			}
		}
		return false
	}
	switch {
	case is("--hash"):
		if hash.MatchString(w.text) {
			p.fail(w.position, "a hash with no package before it")
			return
		}
		p.fail(w.position, "bad hash; want --hash=sha256: and 64 lower-case hexadecimal digits")
	case is("-i", "-f", "--index-url", "--pypi-url", "--extra-index-url", "--find-links", "--no-index", "--trusted-host"):
		p.fail(w.position, "%s: a lock may not say where packages come from; configure the index of the machine", name)
	case is("-e", "--editable"):
		p.fail(w.position, "%s: an editable package has no hash and cannot be locked", name)
	case is("-r", "-c", "--requirement", "--constraint"):
		p.fail(w.position, "%s: a lock is one file and includes no other", name)
	case strings.HasPrefix(name, "-"):
		p.fail(w.position, "%s: unknown option; a lock has --hash only", name)
	default:
		p.fail(w.position, "unexpected text after the options; want --hash=sha256:…")
	}
}
