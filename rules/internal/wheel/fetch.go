package wheel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Requirement is a wheel pinned by name, version and SHA-256. Where there are
// wheels for several platforms, Hashes has one for each.
type Requirement struct {
	Name, Version string
	Hashes        []string // "sha256:" and 64 lower-case hexadecimal digits
}

var (
	word    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.!+_-]*$`)
	sha256s = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// check also keeps anything out of pip's requirements file that is no pin.
func (r Requirement) check() error {
	if !word.MatchString(r.Name) || !word.MatchString(r.Version) {
		return fmt.Errorf("wheel: %q version %q is no pinned package", r.Name, r.Version)
	}
	if len(r.Hashes) == 0 {
		return fmt.Errorf("wheel: %s==%s has no hash, so nothing could be trusted to be it", r.Name, r.Version)
	}
	for _, h := range r.Hashes {
		if !sha256s.MatchString(h) {
			return fmt.Errorf("wheel: %s==%s: bad hash %q, want sha256: and 64 lower-case hexadecimal digits", r.Name, r.Version, h)
		}
	}
	return nil
}

// Fetch returns the wheel of req that python's pip installs: from dir if it is
// there and whole, else downloaded by that pip, from where the user's own
// configuration says. It lies in dir as <hex of its SHA-256>/<its name>.whl.
// Lines of pip's output go to progress.
//
// A wheel in dir counts if it is the only one that req allows, if pip chose it
// before for the same interpreter and platform, or if it is for all platforms. (A
// package with wheels of both kinds, in a folder that machines share, is the one
// case in which pip might have chosen another.)
func Fetch(ctx context.Context, python, dir string, req Requirement, progress func(string)) (file string, sha digest.Digest, err error) {
	if err := req.check(); err != nil {
		return "", "", err
	}
	several := len(req.Hashes) > 1
	chosen, note := digest.Digest(req.Hashes[0]), choice{}
	if several {
		if note, err = choiceFor(ctx, python, dir, req); err != nil {
			return "", "", err
		}
		if chosen, err = note.get(); err != nil {
			return "", "", err
		}
	}
	if file, sha, err = lookUp(ctx, dir, req, chosen, progress); err != nil || file != "" {
		return file, sha, err
	}
	if file, sha, err = fetch(ctx, python, dir, req, progress); err != nil || !several {
		return file, sha, err
	}
	return file, sha, note.set(sha)
}

// lookUp returns the stored wheel that counts, or "": the chosen one, which may
// be none, before one for all platforms.
func lookUp(ctx context.Context, dir string, req Requirement, chosen digest.Digest, progress func(string)) (string, digest.Digest, error) {
	for _, h := range req.Hashes {
		if sha := digest.Digest(h); sha == chosen {
			if file, err := stored(ctx, dir, sha, anyFile, progress); err != nil || file != "" {
				return file, sha, err
			}
		}
	}
	for _, h := range req.Hashes {
		sha := digest.Digest(h)
		if file, err := stored(ctx, dir, sha, universal, progress); err != nil || file != "" {
			return file, sha, err
		}
	}
	return "", "", nil
}

// fetch downloads and stores.
func fetch(ctx context.Context, python, dir string, req Requirement, progress func(string)) (file string, sha digest.Digest, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	tmp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	downloaded, err := download(ctx, python, tmp, req, progress)
	if err != nil {
		return "", "", fmt.Errorf("wheel: %s==%s: %w", req.Name, req.Version, err)
	}
	sha, err = sum(ctx, downloaded)
	if err != nil {
		return "", "", err
	}
	if !slices.Contains(req.Hashes, sha.String()) {
		return "", "", fmt.Errorf("wheel: %s==%s: %s has %s, expected %s; the file was discarded",
			req.Name, req.Version, filepath.Base(downloaded), sha, strings.Join(req.Hashes, " or "))
	}
	file, err = store(dir, downloaded, sha)
	return file, sha, err
}

func anyFile(string) bool { return true }

// stored returns the whole wheel of this digest in dir if its name is accepted,
// or "". A damaged one is removed.
func stored(ctx context.Context, dir string, want digest.Digest, accept func(file string) bool, progress func(string)) (string, error) {
	files, err := wheelsIn(filepath.Join(dir, want.Encoded()))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if !accept(file) {
			continue
		}
		got, err := sum(ctx, file)
		if err != nil {
			return "", err
		}
		if got == want {
			return file, nil
		}
		progress(fmt.Sprintf("%s is damaged: it has %s, expected %s; removing it", filepath.Base(file), got, want))
		if err := os.Remove(file); err != nil {
			return "", err
		}
	}
	return "", nil
}

// wheelsIn lists the wheels in a folder; one that does not exist has none.
func wheelsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".whl") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

func sum(ctx context.Context, file string) (digest.Digest, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	d := digest.SHA256.Digester()
	if _, err := io.Copy(d.Hash(), &contextReader{ctx, f}); err != nil {
		return "", fmt.Errorf("reading %s: %w", file, err)
	}
	return d.Digest(), nil
}

// contextReader ends a copy when the context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// store moves a file to its place in dir, so that after a crash it is there
// whole or not at all.
func store(dir, file string, sha digest.Digest) (string, error) {
	home := filepath.Join(dir, sha.Encoded())
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	target := filepath.Join(home, filepath.Base(file))
	if err := sync(file); err != nil {
		return "", err
	}
	if err := os.Rename(file, target); err != nil {
		return "", err
	}
	return target, errors.Join(sync(home), sync(dir))
}

func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
