package publish

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
)

// secret is something that must not be published.
type secret struct {
	what string
	re   *regexp.Regexp
}

// rooted matches absolute paths of the places where people and tools keep files.
var rooted = regexp.MustCompile(`(?:^|[\s"'=:(,\[])(/(?:home|root|Users|tmp|var|private|mnt|media|opt|srv|work|workspace|data)/[^\s"',)\]]*)`)

// secrets are the private facts of this machine and invocation.
func secrets(dirs ...string) []secret {
	list := []secret{{"an absolute path", rooted}}
	for _, dir := range dirs {
		if len(dir) > 1 {
			list = append(list, secret{"a folder of this machine", regexp.MustCompile(regexp.QuoteMeta(dir))})
		}
	}
	// A name of one or two letters, or that every machine has, gives nothing away.
	if host, err := os.Hostname(); err == nil && len(host) > 2 && host != "localhost" {
		list = append(list, secret{"the host name", regexp.MustCompile(`\b` + regexp.QuoteMeta(host) + `\b`)})
	}
	if u, err := user.Current(); err == nil {
		if len(u.HomeDir) > 1 {
			list = append(list, secret{"the home folder", regexp.MustCompile(regexp.QuoteMeta(u.HomeDir) + `\b`)})
		}
		if len(u.Username) > 2 {
			list = append(list, secret{"the user name", regexp.MustCompile(`[/@~]` + regexp.QuoteMeta(u.Username) + `\b`)})
		}
	}
	return list
}

// refusePrivate reports every line of the files that holds a secret. Publishing
// refuses rather than leaks.
func refusePrivate(files []file, list []secret) error {
	var errs []error
	for _, f := range files {
		for i, line := range bytes.Split(f.data, []byte("\n")) {
			for _, s := range list {
				if found := s.re.Find(line); found != nil {
					errs = append(errs, fmt.Errorf("%s:%d would publish %s (%q)", f.name, i+1, s.what, bytes.TrimSpace(found)))
				}
			}
		}
	}
	return errors.Join(errs...)
}
