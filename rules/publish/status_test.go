package publish

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"assay/rules/internal/ledger"
	"assay/rules/internal/server"
	"assay/rules/validatefamily"
)

// A row whose adapter nobody verified is not qualified, whatever was measured.
func TestUnverifiedAdapter(t *testing.T) {
	row := Row{Server: server.Spec{Engine: server.LlamaHTTP, Adapter: "some-server", Verified: "some-server 1.0"}}
	row.Profile.Bundle, row.Profile.ServedFile = digest.FromString("bundle"), digest.FromString("file")
	row.Figures.Measured, row.Figures.Counts = 3, map[ledger.Class]int{ledger.Completed: 3}
	verdicts := []validatefamily.Verdict{{Passed: true, Bundle: row.Profile.Bundle, ServedFile: row.Profile.ServedFile}}
	if s := status(row, verdicts); s.State != qualified || len(s.Reasons) != 0 {
		t.Fatalf("verified: %+v", s)
	}
	row.Server.Verified = ""
	s := status(row, verdicts)
	if s.State != validated || s.Detail != "not qualified" || len(s.Reasons) != 1 || !strings.Contains(s.Reasons[0], `"some-server" is unverified`) {
		t.Errorf("unverified: %+v", s)
	}
	row.Status = s
	if !slices.Contains(gaps(row), s.Reasons[0]) {
		t.Errorf("the row's gaps do not say so: %q", gaps(row))
	}
}
