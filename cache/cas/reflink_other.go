//go:build !linux

package cas

import (
	"errors"
	"os"
)

func reflink(dst, src *os.File) error { return errors.ErrUnsupported }
