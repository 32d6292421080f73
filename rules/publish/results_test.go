package publish

import (
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/server"
)

// A row whose adapter nobody verified says so among its gaps.
func TestUnverifiedAdapterIsAGap(t *testing.T) {
	row := Row{Server: server.Spec{Engine: server.LlamaHTTP, Adapter: "some-server"}}
	unverified := func(gap string) bool { return strings.Contains(gap, `"some-server" is unverified`) }
	if !slices.ContainsFunc(gaps(row), unverified) {
		t.Errorf("the row's gaps do not say so: %q", gaps(row))
	}
	row.Server.Verified = "some-server 1.0"
	if slices.ContainsFunc(gaps(row), unverified) {
		t.Errorf("a verified one is called unverified: %q", gaps(row))
	}
}
