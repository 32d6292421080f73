package supervise

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// tailWindow bounds what Tail reads, in bytes from the file's end.
const tailWindow = 64 << 10

// Tail returns the last n lines of a file, or fewer if they are not within its
// last 64 KiB.
func Tail(path string, n int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	start := max(0, info.Size()-tailWindow)
	text, err := io.ReadAll(io.NewSectionReader(f, start, tailWindow))
	if err != nil {
		return "", fmt.Errorf("read the end of %s: %w", path, err)
	}
	if start > 0 { // the window opens inside a line
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	lines := bytes.SplitAfter(bytes.TrimRight(text, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], nil)), nil
}
