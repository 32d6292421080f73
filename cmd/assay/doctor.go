package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"assay/engine/journal"
	"assay/engine/layout"
	"assay/engine/lock"
	"assay/engine/supervise"
	"assay/rules"
)

// Verdicts of a finding.
const (
	fine = "ok"
	warn = "warn"
	fail = "fail"
)

// finding is what doctor says about one thing that builds need.
type finding struct{ verdict, about, text string }

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check what builds need of this machine",
		Long:  "Checks what builds need of this machine, a line each: ok, warn or fail, and what to do. Nothing is changed and no network is used. Ends with exit code 4 if something fails.",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := a.cacheDir()
			if err != nil {
				return err
			}
			findings := a.examine(cmd.Context(), layout.Dir(dir))
			if cmd.Context().Err() != nil {
				return context.Cause(cmd.Context())
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			failed := 0
			for _, f := range findings {
				fmt.Fprintf(w, "%s\t%s\t%s\n", f.verdict, f.about, f.text)
				if f.verdict == fail {
					failed++
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if failed > 0 {
				return actionError{fmt.Errorf("%s would keep builds from working", plural(failed, "finding"))}
			}
			return nil
		},
	}
}

func (a *app) examine(ctx context.Context, cache layout.Dir) []finding {
	var all []finding
	add := func(verdict, about, format string, args ...any) {
		all = append(all, finding{verdict, about, fmt.Sprintf(format, args...)})
	}
	host := a.host(string(cache))
	python, err := rules.FindPython(ctx, host.Python)
	switch {
	case err != nil:
		add(fail, "python", "%v", err)
	case python.Pip == "":
		add(fine, "python", "%s at %s", python.Version, python.Executable)
		add(fail, "pip", "%s has no pip; install it with: %s -m ensurepip", python.Executable, python.Executable)
	default:
		add(fine, "python", "%s at %s", python.Version, python.Executable)
		add(fine, "pip", "%s", python.Pip)
	}
	switch version, fetched, err := rules.UV(host); {
	case err != nil:
		add(warn, "uv", "%v", err)
	case fetched:
		add(fine, "uv", "%s is fetched", version)
	default:
		add(warn, "uv", "%s is not fetched yet; the first python_env does it with pip and needs the network", version)
	}
	if err := writable(string(cache)); err != nil {
		add(fail, "cache", "%v; make it writable, or name another folder in ASSAY_CACHE", err)
	} else {
		verdict, text := fileSystem(string(cache))
		add(verdict, "cache", "%s %s", cache, text)
	}
	switch cpus, err := supervise.AllowedCPUs(); {
	case err != nil:
		add(warn, "cpus", "%v", err)
	case len(cpus) < 2:
		add(warn, "cpus", "1 may be used: server and load generator share it, and each row says so")
	default:
		add(fine, "cpus", "%d may be used; server and load generator get sets of their own up to %s", len(cpus), plural(len(cpus)-1, "server thread"))
	}
	verdict, text := namespaces(ctx)
	add(verdict, "namespaces", "%s", text)
	verdict, text = clock(cache, time.Now())
	add(verdict, "clock", "%s", text)
	verdict, text = leftovers(cache)
	add(verdict, "leftovers", "%s", text)
	return all
}

// writable makes the folder if needed and tries to write in it.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// clock looks for a clock that was never set, or that went back: builds are
// named and ordered by it, and certificates are judged by it.
func clock(cache layout.Dir, now time.Time) (verdict, text string) {
	if now.Year() < 2025 {
		return fail, fmt.Sprintf("it says %s; set it", now.Format(time.DateTime))
	}
	names, err := journal.Names(cache.Logs())
	if err != nil {
		return warn, err.Error()
	}
	if len(names) > 0 && names[0] > now.Add(time.Minute).UTC().Format("20060102T150405Z") {
		return warn, fmt.Sprintf("it says %s, and build %s is later: it went back, so builds and samples are out of order", now.Format(time.DateTime), names[0])
	}
	return fine, now.Format(time.DateTime)
}

// leftovers counts builds that were killed and have not been cleaned up after.
func leftovers(cache layout.Dir) (verdict, text string) {
	locks, err := filepath.Glob(filepath.Join(cache.Work(), "*.lock"))
	if err != nil {
		return warn, err.Error()
	}
	dead := 0
	for _, path := range locks {
		if release, ok := lock.Try(path); ok {
			release()
			dead++
		}
	}
	if dead > 0 {
		return warn, fmt.Sprintf("of %s that was killed; the next build ends what still runs of it and removes its files", plural(dead, "build"))
	}
	return fine, "no build was killed"
}
