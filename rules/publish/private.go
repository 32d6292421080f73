package publish

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// secret is something that must not be published.
type secret struct {
	what string
	// find returns how a finding in a line is quoted, or "".
	find func(line string) string
}

// matching is a secret that a pattern describes. Every finding has the literal
// text in it, which is far quicker to look for. If the pattern has a group, only
// that is quoted: an error must not leak what it keeps from leaking.
func matching(what, literal, pattern string) secret {
	re := regexp.MustCompile(pattern)
	return secret{what, func(line string) string {
		if !strings.Contains(line, literal) {
			return ""
		}
		found := re.FindStringSubmatch(line)
		switch len(found) {
		case 0:
			return ""
		case 1:
			return found[0]
		default:
			return found[1] + "…"
		}
	}}
}

// credentials are those that can be told from other text by their form.
var credentials = func() []secret {
	list := []secret{
		matching("a bearer token", "earer", `\b([Bb]earer\s+)[A-Za-z0-9._~+/-]{16,}`),
		matching("a private key", "PRIVATE KEY", `-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`),
		matching("credentials in a URL", "://", `\b(https?://)[^\s/?#@"'<>{}]+@`),
	}
	for _, prefix := range []string{
		"sk-", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "nvapi-", "AIza", "AKIA", "ASIA",
		"xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-",
	} {
		list = append(list, matching("an access key", prefix, `\b(`+prefix+`)[A-Za-z0-9_-]{16,}`))
	}
	return list
}()

// secrets are the private facts of this machine and invocation, and what is
// private anywhere.
func secrets(dirs ...string) []secret {
	list := append(slices.Clone(credentials), secret{"an absolute path", absolutePath})
	add := func(what, literal, before, after string) {
		list = append(list, matching(what, literal, before+regexp.QuoteMeta(literal)+after))
	}
	for _, dir := range dirs {
		if len(dir) > 1 {
			add("a folder of this machine", dir, "", "")
		}
	}
	// A name of one or two letters, or that every machine has, gives nothing away.
	if host, err := os.Hostname(); err == nil && len(host) > 2 && host != "localhost" {
		add("the host name", host, `\b`, `\b`)
	}
	if u, err := user.Current(); err == nil {
		if len(u.HomeDir) > 1 {
			add("the home folder", u.HomeDir, "", `\b`)
		}
		if len(u.Username) > 2 {
			add("the user name", u.Username, `[/@~]`, `\b`)
		}
	}
	return list
}

var (
	// twoSegments is a path from its slash on. What ends a segment here can be in a
	// file's name, but a path that is cut off there is still seen.
	twoSegments = regexp.MustCompile("^(?:/[^\\s\\\\/\"'`<>(){}\\[\\],;:|=&*]+){2,}")
	// public are the paths that are the same everywhere: of the server's interface,
	// and the null device.
	public = regexp.MustCompile(`^/(?:v1/|health/|dev/null\b)`)
	// placeholder stands for a folder, so that what follows is relative to it.
	placeholder = regexp.MustCompile(`\{[A-Za-z0-9_]+\}$`)
	// escape is a character of a JSON string that is no part of a word, though its
	// name has letters.
	escape = regexp.MustCompile(`\\(?:[bfnrt]|u[0-9A-Fa-f]{4})`)
)

// absolutePath returns the first path in a line that starts at the root of a file
// system and has two segments or more. Relative paths, URLs, MIME types, labels
// (//package:target) and tags (</td>) have slashes too, but after a word or
// another slash, or a single segment.
func absolutePath(line string) string {
	for at := 0; ; at++ {
		next := strings.IndexByte(line[at:], '/')
		if next < 0 {
			return ""
		}
		at += next
		if fromRoot(line[:at]) {
			if path := twoSegments.FindString(line[at:]); path != "" && !public.MatchString(path) {
				return path
			}
		}
	}
}

// fromRoot says whether a slash after this text starts a path.
func fromRoot(before string) bool {
	if strings.HasSuffix(before, "file://") || strings.HasSuffix(before, "file://localhost") {
		return true
	}
	last, _ := utf8.DecodeLastRuneInString(before)
	word := unicode.IsLetter(last) || unicode.IsDigit(last) || strings.ContainsRune("_.~+/", last)
	return !word && !(last == '}' && placeholder.MatchString(before))
}

// refusePrivate reports every line of the files that holds a secret. Publishing
// refuses rather than leaks.
func refusePrivate(files []file, list []secret) error {
	var errs []error
	for _, f := range files {
		for i, line := range bytes.Split(f.data, []byte("\n")) {
			text := strings.ReplaceAll(escape.ReplaceAllString(string(line), " "), `\/`, "/")
			for _, s := range list {
				if found := s.find(text); found != "" {
					errs = append(errs, fmt.Errorf("%s:%d would publish %s (%q)", f.name, i+1, s.what, found))
				}
			}
		}
	}
	return errors.Join(errs...)
}
