package join

import (
	"slices"
	"time"

	"assay/rules/internal/ledger"
)

// conditions are what a sample says of its run beside the requests.
func conditions(sample *Sample) ledger.Conditions {
	s := &sample.Facts
	cpus := slices.Concat(s.CPUs.Server, s.CPUs.Client)
	slices.Sort(cpus)
	c := ledger.Conditions{
		Model: s.Server.Model, BootID: s.Host.BootID, Started: s.Started, Finished: s.Finished,
		Quiet: s.Quiet, CPUs: len(slices.Compact(cpus)), ClientCPUs: len(s.CPUs.Client), ClientBusy: s.ClientBusy,
	}
	if s.Workload.Arrival == "constant" {
		c.Rate = s.Workload.RequestRate
	}
	if sample.Imported != nil {
		// Its times are the client's, and the server may have had another clock.
		c.Started, c.Finished = time.Time{}, time.Time{}
	}
	return c
}
