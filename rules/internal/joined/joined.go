// Package joined writes the joined records of a sample, a row a request, as a
// Parquet file: what the ledger has as JSON lines, in the form that data frames and
// SQL engines read without being told a schema. docs/joined.md explains every
// column.
package joined

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	"assay/rules/internal/ledger"
)

// Version is that of the table, in the file's metadata under VersionKey. It is
// raised when the meaning of a column changes or a column goes away.
const Version = 1

// VersionKey is the key of the version in the metadata of a file.
const VersionKey = "assay.joined.version"

const (
	// groupRows bounds a row group, and with it what a Writer holds: some 20 MB. A
	// reader's threads share a file by its row groups.
	groupRows = 1 << 16
	batchRows = 256
)

// Writer writes the table of one sample. Equal entries give equal bytes.
type Writer struct {
	sample string
	file   *parquet.GenericWriter[row]
	rows   []row
}

// NewWriter writes to w, and returns errors of w from Write and Close.
func NewWriter(w io.Writer, sample string) *Writer {
	return &Writer{sample: sample, file: parquet.NewGenericWriter[row](w,
		parquet.Compression(&parquet.Zstd),
		parquet.MaxRowsPerRowGroup(groupRows),
		parquet.KeyValueMetadata(VersionKey, fmt.Sprint(Version)),
		// The default is read off the binary, and differs between builds.
		parquet.CreatedBy("assay", fmt.Sprint(Version), "joined"),
	)}
}

// Write appends an entry, which must stay as it is until Close.
func (w *Writer) Write(e *ledger.Entry) error {
	w.rows = append(w.rows, newRow(w.sample, e))
	if len(w.rows) < batchRows {
		return nil
	}
	return w.flush()
}

func (w *Writer) flush() error {
	_, err := w.file.Write(w.rows)
	w.rows = w.rows[:0]
	return err
}

// Close writes what is left and the footer; it does not close what is below.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.file.Close()
}
