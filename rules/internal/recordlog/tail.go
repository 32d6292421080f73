package recordlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"assay/cache/durable"
)

const (
	// maxTail is far above the length of a record. A file that ends in more bytes
	// without a newline is something else, which nobody wants cut.
	maxTail = 16 << 20
	// tailStep is how much of the end is looked at at a time.
	tailStep = 4 << 10
)

// mend makes the file end with a whole line. A record that only lacks its newline
// gets it; what else follows the last newline is moved into a file beside the
// log.
func (l *Log) mend() error {
	end, err := lastLine(l.file, l.size)
	if err != nil {
		return fmt.Errorf("%s: %w", l.opts.Path, err)
	}
	if end == l.size {
		return nil
	}
	tail := make([]byte, l.size-end)
	if _, err := l.file.ReadAt(tail, end); err != nil {
		return err
	}
	// Half an object is no JSON, so what is JSON is whole.
	if tail[0] == '{' && json.Valid(tail) {
		if _, err := l.file.Write([]byte{'\n'}); err != nil {
			return err
		}
		l.size++
		l.opts.Log.Warn("the last record had no newline, as a killed process leaves it; it has one now", "file", l.opts.Path, "offset", end)
		return nil
	}
	aside, err := saveTail(l.opts.Path, end, tail)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(end); err != nil {
		return err
	}
	l.size = end
	l.opts.Log.Warn("the file ended in half a record, as a killed process leaves it; it was moved aside", "file", l.opts.Path, "offset", end, "bytes", len(tail), "to", aside)
	return nil
}

// lastLine finds the end of the last whole line by reading the file from its
// end.
func lastLine(f io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, tailStep)
	for end := size; end > 0; {
		part := buf[:min(tailStep, end)]
		start := end - int64(len(part))
		if _, err := f.ReadAt(part, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		if end = start; size-end > maxTail {
			return 0, fmt.Errorf("no line ends in its last %d bytes, so this is no file of records; name another", maxTail)
		}
	}
	return 0, nil
}

// saveTail writes a torn tail beside the log. An earlier one that was torn at the
// same place is kept; the same one, of an Open that was killed, is not written
// again.
func saveTail(path string, offset int64, tail []byte) (string, error) {
	name := fmt.Sprintf("%s.torn-%d", path, offset)
	for n := 2; ; n++ {
		old, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, durable.WriteFile(name, tail, 0o644)
		}
		if err != nil || bytes.Equal(old, tail) {
			return name, err
		}
		name = fmt.Sprintf("%s.torn-%d.%d", path, offset, n)
	}
}
