package upkeep

import (
	"context"
	"errors"
	"fmt"

	"assay/cache/ac"
	"assay/cache/cas"
	"assay/engine/layout"
	"assay/engine/lock"
)

// Verified is what Verify read and found.
type Verified struct {
	Blobs, Results, Samples int
	Bytes                   int64
	// Problems are corrupt blobs and records, which were set aside, and records
	// of which something is missing.
	Problems []error
}

// Verify reads every blob and every record of the cache directory.
func Verify(ctx context.Context, dir layout.Dir) (*Verified, error) {
	release, err := lock.AcquireMode(ctx, dir.InUse(), lock.Shared, "", nil)
	if err != nil {
		return nil, err
	}
	defer release()
	blobs, err := cas.Open(dir.Content())
	if err != nil {
		return nil, err
	}
	results := ac.Open(dir.Records())
	v := &Verified{}
	note := func(what string, err error) error {
		if errors.Is(err, cas.ErrMissing) {
			if what != "" {
				err = fmt.Errorf("%s: %w", what, err)
			}
			v.Problems = append(v.Problems, err)
			return nil
		}
		return err
	}
	for ref, err := range blobs.All() {
		if err == nil {
			err = note("", blobs.Verify(ctx, ref))
		}
		if err != nil {
			return nil, err
		}
		v.Blobs++
		v.Bytes += ref.Size
	}
	complete := func(what string, preimage, output cas.Ref) error {
		_, err := blobs.Bytes(preimage)
		return errors.Join(note(what+": preimage", err), note(what, blobs.Complete(output)))
	}
	for r, err := range results.Results() {
		if err == nil {
			err = complete("result "+r.Key.String(), r.Preimage, r.Output)
		}
		if err := note("", err); err != nil {
			return nil, err
		}
		v.Results++
	}
	for s, err := range results.AllSamples() {
		if err == nil {
			err = complete("sample "+s.ID+" of "+s.Key.String(), s.Preimage, s.Output)
		}
		if err := note("", err); err != nil {
			return nil, err
		}
		v.Samples++
	}
	return v, ctx.Err()
}
