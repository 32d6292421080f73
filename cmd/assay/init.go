package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"assay/starlark/graph"
	"assay/starlark/interp"
	"assay/starlark/schema"
)

const firstStages = `# A chain from a checkpoint to a report. Uncomment it, put the files it names
# beside this one, and run: assay build //:report
#
# checkpoint(name = "weights", file = "model.gguf", hf_id = "owner/model", licence = "Apache-2.0")
# family(name = "family", id = "model", serving = "serving.json", tasks = ["chat"])
# bundle(name = "bundle", checkpoint = ":weights", family = ":family", context = 512, precision = "Q4_1")
# python_env(name = "llama", lock = "llama.lock")
# python_env(name = "aiperf", lock = "aiperf.lock", record = ["aiperf"])
# serve(name = "server", bundle = ":bundle", runtime = ":llama")
# aiperf_run(name = "chat", server = ":server", client = ":aiperf", endpoint = "chat")
# join(name = "joined", run = ":chat")
# publish(name = "report", joins = [":joined"], dir = "out/report", title = "A first report")
`

func (a *app) initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Make this folder the root of a workspace",
		Long:  "Writes " + interp.WorkspaceFile + ", a " + graph.PackageFile + " with a chain to uncomment, and an entry for the output folder in .gitignore. It never overwrites a file.",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			here, err := os.Getwd()
			if err != nil {
				return err
			}
			return a.init(here)
		},
	}
}

func (a *app) init(dir string) error {
	name := filepath.Base(dir)
	if !schema.ValidName(name) {
		name = "workspace"
	}
	files := []struct{ name, text string }{
		{interp.WorkspaceFile, fmt.Sprintf("# The root of the workspace: labels such as //:report start here.\nworkspace(name = %q)\n", name)},
		{graph.PackageFile, firstStages},
	}
	var taken []error
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			taken = append(taken, fmt.Errorf("%s exists", f.name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(taken) > 0 {
		return usageError{fmt.Errorf("%w\nhint: nothing was written; init is for a folder that is no workspace yet", errors.Join(taken...))}
	}
	for _, f := range files {
		if err := create(filepath.Join(dir, f.name), f.text); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout, "wrote", f.name)
	}
	return a.ignoreOutput(filepath.Join(dir, ".gitignore"))
}

// ignoreOutput keeps what publish writes out of the repository.
func (a *app) ignoreOutput(path string) error {
	const entry = "/out/"
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if strings.TrimSpace(line) == entry {
			return nil
		}
	}
	if len(data) > 0 && !strings.HasSuffix(string(data), "\n") {
		data = append(data, '\n')
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, entry+"\n"...))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "added %s to .gitignore\n", entry)
	return err
}

// create writes a file that must not exist.
func create(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
