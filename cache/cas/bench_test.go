package cas

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkPut puts 64 MiB that the store does not have. The metric x-floor is
// its time relative to what nobody can do without, measured in turn with it: one
// sha256 of the bytes and one copy of them that reaches the disk.
func BenchmarkPut(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<20/16)
	plain := filepath.Join(b.TempDir(), "copy")
	var floor time.Duration
	b.SetBytes(int64(len(data)))
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		binary.LittleEndian.PutUint64(data, uint64(i))
		started := time.Now()
		sha256.Sum256(data)
		if err := writeSynced(plain, data); err != nil {
			b.Fatal(err)
		}
		floor += time.Since(started)
		b.StartTimer()

		ref, err := s.Put(b.Context(), bytes.NewReader(data))
		if err != nil {
			b.Fatal(err)
		}

		b.StopTimer()
		if err := errors.Join(s.Remove(ref.Digest), os.Remove(plain)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(b.Elapsed().Seconds()/floor.Seconds(), "x-floor")
}

// BenchmarkPutAgain puts a file whose content is there: a sha256 is all it takes.
func BenchmarkPutAgain(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<20/16)
	file := filepath.Join(b.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		b.Fatal(err)
	}
	for range 2 { // stored, and checked once
		if _, err := s.PutFile(b.Context(), file); err != nil {
			b.Fatal(err)
		}
	}
	var floor time.Duration
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		b.StopTimer()
		started := time.Now()
		sha256.Sum256(data)
		floor += time.Since(started)
		b.StartTimer()
		if _, err := s.PutFile(b.Context(), file); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/floor.Seconds(), "x-floor")
}

func writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
