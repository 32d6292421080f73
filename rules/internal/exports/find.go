// Package exports opens a folder that AIPerf wrote, anywhere and long ago: it
// finds the files, says whether they are of one run, and closes the ledger on
// them. Nobody of ours saw the run, so nothing is taken for granted: what the
// files prove is said, what they contradict is a finding, and what they leave
// open is said too.
//
// The names and forms are those of AIPerf 0.13.0.
package exports

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"assay/rules/internal/recordlog"
)

// Names that AIPerf gives unless a prefix was asked for.
const (
	RawFile      = "profile_export_raw.jsonl"
	RawDir       = "raw_records" // what a run without a success, or a killed one, leaves
	FiguresFile  = "profile_export.jsonl"
	SummaryFile  = "profile_export_aiperf.json"
	ManifestFile = "phase_manifest.json"
	InputsFile   = "inputs.json"
	LogFile      = "logs/aiperf.log"
	// RecordsFile is the name under which a server's records are looked for.
	RecordsFile = "records.jsonl"
)

// RawSuffix is how the name of a raw export ends, with any prefix.
const RawSuffix = "_raw.jsonl"

// Role says what a file is to the run.
type Role string

const (
	Raw      Role = "raw export"
	Figures  Role = "figures"
	Summary  Role = "summary"
	Manifest Role = "phase manifest"
	Inputs   Role = "inputs"
	Log      Role = "log"
	Records  Role = "server records"
	// Leftover is a part of a raw export beside the whole one.
	Leftover Role = "leftover"
)

// File is a file of the run.
type File struct {
	Role Role   `json:"role"`
	Name string `json:"name"` // below the folder, or as it was given
	Size int64  `json:"bytes"`

	path string
	info fs.FileInfo
}

// Open finds the files of one run in a folder. records names the file of the
// server's records, with which its rotated files are read; "" for RecordsFile in
// the folder, if it is there. The error holds all that is wrong with what was
// found.
func Open(dir, records string) (*Run, error) {
	entries, err := readDir(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{dir: dir, found: findings{}}
	raw, err := rawNames(dir, entries)
	if err != nil {
		return nil, err
	}
	figures, summary := FiguresFile, SummaryFile
	if stem, ok := strings.CutSuffix(raw[0], RawSuffix); ok && raw[0] != RawFile {
		figures, summary = stem+".jsonl", stem+".json" // --profile-export-prefix
	}
	var errs []error
	for _, name := range raw {
		errs = append(errs, r.add(Raw, name, true))
	}
	for _, f := range []struct {
		role Role
		name string
	}{{Figures, figures}, {Summary, summary}, {Manifest, ManifestFile}, {Inputs, InputsFile}, {Log, LogFile}} {
		errs = append(errs, r.add(f.role, f.name, false))
	}
	if path.Dir(raw[0]) != RawDir {
		parts, _ := fs.Glob(os.DirFS(dir), RawDir+"/*.jsonl")
		for _, name := range parts {
			errs = append(errs, r.add(Leftover, name, false))
		}
	}
	errs = append(errs, r.addRecords(records))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r.readSmall()
	return r, nil
}

func readDir(dir string) ([]fs.DirEntry, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		hint := "name the folder that AIPerf wrote (its --artifact-dir)"
		if tool := toolOf(dir); tool != "" {
			hint = "it is " + tool
		}
		return nil, fmt.Errorf("%s is a file, not a folder: %s", dir, hint)
	}
	return os.ReadDir(dir)
}

// rawNames names the raw exports of the one run in a folder.
func rawNames(dir string, entries []fs.DirEntry) ([]string, error) {
	var whole []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), RawSuffix) && !e.IsDir() {
			whole = append(whole, e.Name())
		}
	}
	switch {
	case slices.Contains(whole, RawFile) && len(whole) == 1:
		return whole, nil
	case len(whole) > 1:
		return nil, fmt.Errorf("%s holds %d runs (%s): copy each with its files into a folder of its own", dir, len(whole), strings.Join(whole, ", "))
	case len(whole) == 1:
		return whole, nil
	}
	parts, err := fs.Glob(os.DirFS(dir), RawDir+"/*.jsonl")
	if err != nil || len(parts) > 0 {
		return parts, err
	}
	return nil, strange(dir, entries)
}

// add notes a file. One that is not there is an error only if it must be;
// whatever is there must be a regular file that can be opened.
func (r *Run) add(role Role, name string, must bool) error {
	full := r.path(name)
	f, err := look(full)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !must && !isLink(full):
		return nil
	case err != nil && !must:
		r.unread(err)
		return nil
	case err != nil:
		return err
	}
	f.Role, f.Name = role, name
	r.Files = append(r.Files, f)
	return nil
}

func (r *Run) addRecords(given string) error {
	at := given
	if at == "" {
		at = filepath.Join(r.dir, RecordsFile)
	}
	files, err := recordlog.Files(at)
	if errors.Is(err, fs.ErrNotExist) && given == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("server records: %w", err)
	}
	var errs []error
	for _, name := range files {
		f, err := look(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("server records: %w", err))
			continue
		}
		f.Role, f.Name = Records, filepath.Base(name)
		r.Files = append(r.Files, f)
	}
	return errors.Join(errs...)
}

// look opens a file to see that it can be. What is not regular is not opened: a
// pipe would wait for ever.
func look(name string) (File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is not a regular file (%s)", name, info.Mode().Type())
	}
	f, err := os.Open(name)
	if err != nil {
		return File{}, err
	}
	return File{Size: info.Size(), path: name, info: info}, f.Close()
}

// isLink: a link that leads nowhere is not the same as no file.
func isLink(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// of returns the files with a role.
func (r *Run) of(role Role) []File {
	var files []File
	for _, f := range r.Files {
		if f.Role == role {
			files = append(files, f)
		}
	}
	return files
}

// one returns the only file with a role, nil if there is none.
func (r *Run) one(role Role) *File {
	for i := range r.Files {
		if r.Files[i].Role == role {
			return &r.Files[i]
		}
	}
	return nil
}
