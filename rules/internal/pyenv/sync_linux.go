package pyenv

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree makes everything below dir durable. One call for the whole file
// system takes less than one for each of thousands of files.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	return nil
}
