package publish

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/rules/internal/status"
	"assay/rules/inventory"
)

// Each row of a group is drawn once, in a strip that is as wide as all of its rows.
func TestStripsHoldEveryRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) inventory.Row {
			r := inventory.Row{Status: Status{State: rapid.SampledFrom(status.States).Draw(t, "state")}}
			r.Group, r.Role = "text", rapid.SampledFrom([]inventory.Role{inventory.Matrix, "pilot"}).Draw(t, "role")
			return r
		}), 1, 30).Draw(t, "rows")
		drawn := 0
		for _, s := range strips(inventory.Of(rows).Groups[0]) {
			at := 0.0
			for _, segment := range s.Segments {
				if math.Abs(segment.Start-at) > 1e-9 || segment.Count == 0 {
					t.Fatalf("a segment of %+v starts at %g, want %g", s, segment.Start, at)
				}
				at += segment.Width
				drawn += segment.Count
			}
			if math.Abs(at-100) > 1e-9 {
				t.Fatalf("%+v ends at %g %%", s, at)
			}
		}
		if drawn != len(rows) {
			t.Fatalf("%d of %d rows are drawn", drawn, len(rows))
		}
	})
}

// A state without a style of its own would be drawn black.
func TestEveryStateHasAStyle(t *testing.T) {
	style, err := sources.ReadFile("html/style.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range status.States {
		if !strings.Contains(string(style), "\n."+class(state)+" { --class:") {
			t.Errorf("%q has no style", state)
		}
	}
}
