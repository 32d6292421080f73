package conformance

import (
	"context"
	"fmt"
	"time"

	"assay/rules/internal/worker"
)

func endOfInput(ctx context.Context, s *session) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.sent, s.got = "the end of standard input", ""
	s.p.stdin.Close()
	_, err := s.leaves(ctx, s.limits.End)
	return err
}

func endOfInputInRequest(ctx context.Context, s *session) error {
	limit := s.limits.End
	var err error
	if s.hello.Protocol == worker.BufferedVersion { // it may answer first, since it need not read while it works
		limit += s.limits.Answer
		_, err = s.begin(ctx, s.generate(s.first(), false, prompt(s.first(), greeting)), nil)
	} else {
		_, err = s.underway(ctx)
	}
	if err != nil {
		return err
	}
	s.sent, s.got = s.sent+", then the end of standard input", ""
	s.p.stdin.Close()
	_, err = s.leaves(ctx, limit)
	return err
}

func shutdown(ctx context.Context, s *session) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.send(ctx, new(worker.Shutdown), nil); err != nil {
		return err
	}
	status, err := s.leaves(ctx, s.limits.End)
	if err == nil && status != nil {
		err = fmt.Errorf("it died: %w", status)
	}
	return err
}

// leaves awaits the end of a worker that was told to, within the limit, and notes
// what outlives it.
func (s *session) leaves(ctx context.Context, limit time.Duration) (status, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not exit within %s", limit))
	defer cancel()
	if err := s.awaitExit(ctx); err != nil {
		return nil, err
	}
	status = s.p.proc.Wait()
	if s.p.survivors() {
		s.survivors = append(s.survivors, finding{"processes of the worker's group were there after its own end", s.sent, ""})
	}
	s.discard()
	return status, nil
}
